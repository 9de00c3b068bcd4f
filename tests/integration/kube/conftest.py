"""Tests on a real Kubernetes control plane."""

from tests.control_plane.fixtures import control_plane, kube, namespace, own_plane

__all__ = ["control_plane", "kube", "namespace", "own_plane"]
