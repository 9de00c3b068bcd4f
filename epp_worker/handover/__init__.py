"""Warm stand-bys: what is known of a pool, streamed from the worker that owns it."""
