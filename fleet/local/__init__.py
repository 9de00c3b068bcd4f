"""A whole fleet on this machine."""
