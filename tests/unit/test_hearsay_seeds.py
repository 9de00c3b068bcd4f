"""Where a worker looks for others while nobody tells it: what it finds, and what it passes over."""

from pathlib import Path
from typing import Any, cast

import pytest

from epp_worker.hearsay.seeds import MAX_SEEDS, Seeds
from fleet.errors import StoreUnavailable
from fleet.model import Addresses, Member
from fleet.store.contract import MemberBeat, Store


class FakeStore:
    """Knows members by their internal addresses, or is away."""

    def __init__(self, *internal: str) -> None:
        self.internal = internal
        self.away = False

    async def members(self) -> tuple[MemberBeat, ...]:
        if self.away:
            raise StoreUnavailable("away")
        members = (
            Member(f"w{number}", "i", Addresses("", "", address, ""))
            for number, address in enumerate(self.internal)
        )
        return tuple(MemberBeat(member, 0.5) for member in members)


def seeds(peers: str, store: FakeStore) -> Seeds:
    return Seeds(peers, cast(Store, cast(Any, store)))


async def test_members_addresses_names_and_files_are_one_list(tmp_path: Path) -> None:
    """Each once; a member that has not said where it listens is no address."""
    listed = tmp_path / "peers"
    listed.write_text("10.0.0.3:9004\n\n 10.0.0.4:9004 \n")
    store = FakeStore("10.0.0.1:9004", "", "10.0.0.2:9004")
    peers = f"10.0.0.2:9004,dns:127.0.0.1:9005,file:{listed}"
    assert set(await seeds(peers, store).find()) == {
        "10.0.0.1:9004",
        "10.0.0.2:9004",
        "127.0.0.1:9005",
        "10.0.0.3:9004",
        "10.0.0.4:9004",
    }


async def test_ipv6_addresses_are_in_brackets() -> None:
    """As it is dialled."""
    assert await seeds("dns:[::1]:9004", FakeStore()).find() == ("[::1]:9004",)


async def test_what_cannot_be_found_is_passed_over(tmp_path: Path) -> None:
    """The store is away, the file is not there, or is none of ours: the rest is found."""
    store = FakeStore("10.0.0.1:9004")
    store.away = True
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00")
    peers = f"file:{tmp_path / 'none'},file:{binary},10.0.0.9:9004"
    assert await seeds(peers, store).find() == ("10.0.0.9:9004",)
    assert await seeds("", store).find() == ()


@pytest.mark.parametrize("count", [MAX_SEEDS, MAX_SEEDS + 50])
async def test_no_more_are_asked_than_the_bound(count: int) -> None:
    """However many there are."""
    store = FakeStore(*(f"10.0.{n // 250}.{n % 250}:9004" for n in range(count)))
    assert len(await seeds("", store).find()) == MAX_SEEDS
