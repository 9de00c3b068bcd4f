"""The shared memory of the fleet: one contract, Redis and in-memory."""
