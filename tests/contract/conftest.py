"""Fixtures of the contract suites."""

from tests.contract.store_fixtures import valkey_server, valkey_world, world

__all__ = ["valkey_server", "valkey_world", "world"]
