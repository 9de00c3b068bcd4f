"""The coordinator's HTTP: API, metrics, health."""
