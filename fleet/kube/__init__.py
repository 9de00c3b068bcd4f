"""The Kubernetes API server: a thin, raw client."""
