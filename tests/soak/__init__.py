"""Figures of a whole fleet on a real control plane: minutes each, so by hand, not in CI."""
