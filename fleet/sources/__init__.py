"""Pools, pods and Services, from a folder of manifests."""
