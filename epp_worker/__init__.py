"""Serves: Envoy's ext_proc protocol for the pools that this worker holds."""
