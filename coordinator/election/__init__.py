"""Who leads."""
