"""Where gateways learn the owners from."""
