"""Picking an endpoint: pure decisions over endpoints and their metrics."""
