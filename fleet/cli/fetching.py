"""The map and the workers, from whichever coordinator answers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fleet.errors import FleetError
from fleet.local.api import CoordinatorApi

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What one coordinator said.

    Attributes:
        answered_by: its address.
    """

    shard_map: Json
    workers: tuple[Json, ...]
    answered_by: str


def lacking(error: Exception) -> FleetError:
    """A coordinator answered with something that is no such document."""
    return FleetError(f"the coordinator's answer lacks something ({error}); is it of this version?")


async def fetch(api: CoordinatorApi) -> Snapshot:
    """Read both.

    Raises:
        Unreachable: no coordinator answers.
        FleetError: one answers with something else.
    """
    shard_map, workers = await api.shard_map(), await api.workers()
    try:
        return Snapshot(shard_map, tuple(workers["workers"]), api.answered)
    except (KeyError, TypeError) as error:
        raise lacking(error) from error
