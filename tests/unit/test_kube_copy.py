"""The local copy of an API server's objects: two readings of one name, and who listens."""

import asyncio

from fleet.model import Service
from fleet.sources.contract import Change, Kind, Object, ObjectKey
from fleet.sources.kubernetes_copy import RankedCopy, Reading

A, B, C = ObjectKey("ns1", "a"), ObjectKey("ns1", "b"), ObjectKey("ns2", "c")


def service(key: ObjectKey, uid: str = "1") -> Service:
    return Service(*key, uid=uid, selector={}, type="ClusterIP", ports={})


class Heard:
    """A subscription's changes as (old uid, new uid)."""

    def __init__(self, copy: RankedCopy, namespace: str | None = None) -> None:
        self.synced = False
        self.closed = 0
        self.uids: list[tuple[str | None, str | None]] = []
        self.watch = copy.subscribe(
            Kind.SERVICE,
            self,
            namespace,
            synced=lambda: self.synced,
            on_close=self._count,
        )

    def __call__(self, change: Change) -> None:
        self.uids.append((_uid(change.old), _uid(change.new)))

    def _count(self) -> None:
        self.closed += 1


def _uid(value: Object | None) -> str | None:
    return value.uid if value is not None else None


def put(copy: RankedCopy, key: ObjectKey, uid: str | None, rank: int = 0) -> None:
    value = service(key, uid) if uid is not None else None
    copy.read(Kind.SERVICE, rank, [Reading(key, value)])


async def test_rank_0_hides_rank_1() -> None:
    """One name is one object: what is seen changes only when the visible reading does."""
    copy = RankedCopy()
    heard = Heard(copy)
    await asyncio.sleep(0)
    put(copy, A, "old", rank=1)
    put(copy, A, "new", rank=0)
    put(copy, A, "older", rank=1)
    put(copy, A, "newer", rank=0)
    put(copy, A, None, rank=0)
    put(copy, A, None, rank=1)
    assert heard.uids == [
        (None, "old"),
        ("old", "new"),
        ("new", "newer"),
        ("newer", "older"),
        ("older", None),
    ]


async def test_the_same_reading_twice_is_no_change() -> None:
    """A pod seen by two watches is told once, and stays while one of them has it."""
    copy = RankedCopy()
    heard = Heard(copy)
    await asyncio.sleep(0)
    put(copy, A, "1", rank=1)
    put(copy, A, "1", rank=0)
    put(copy, A, None, rank=1)
    assert heard.uids == [(None, "1")]
    assert set(copy.objects(Kind.SERVICE, None)) == {A}


async def test_snapshots_do_not_change() -> None:
    """Of one namespace and of all; the same one as long as nothing changes."""
    copy = RankedCopy()
    put(copy, A, "1")
    put(copy, C, "1")
    one, everything = copy.objects(Kind.SERVICE, "ns1"), copy.objects(Kind.SERVICE, None)
    assert copy.objects(Kind.SERVICE, "ns1") is one
    put(copy, B, "1")
    put(copy, C, None)
    assert (set(one), set(everything)) == ({A}, {A, C})
    assert set(copy.objects(Kind.SERVICE, "ns1")) == {A, B}
    assert set(copy.objects(Kind.SERVICE, None)) == {A, B}
    assert copy.objects(Kind.SERVICE, "ns2") == {}
    assert copy.objects(Kind.POD, None) == {}


async def test_listeners_hear_of_their_namespace() -> None:
    """From the list on, which comes at the loop's next turn."""
    copy = RankedCopy()
    put(copy, A, "1")
    heard, elsewhere = Heard(copy, "ns1"), Heard(copy, "ns2")
    put(copy, B, "2")
    assert heard.uids == []
    await asyncio.sleep(0)
    put(copy, B, "3")
    assert heard.uids == [(None, "1"), (None, "2"), ("2", "3")]
    assert elsewhere.uids == []


async def test_synced_when_the_list_is_here() -> None:
    """Either at the first list, or when it comes later; only for whom it came."""
    copy = RankedCopy()
    early, late, elsewhere = Heard(copy, "ns1"), Heard(copy, "ns1"), Heard(copy, "ns2")
    early.synced = True
    await asyncio.sleep(0)
    assert (early.watch.synced(), late.watch.synced()) == (True, False)
    copy.mark_synced(Kind.POD, lambda _: True)
    assert not late.watch.synced()
    copy.mark_synced(Kind.SERVICE, lambda namespace: namespace == "ns1")
    assert late.watch.synced()
    assert not elsewhere.watch.synced()


async def test_a_closed_subscription_is_forgotten() -> None:
    """Once; also by a listener that closes its own while it is called."""
    copy = RankedCopy()
    heard = Heard(copy)
    await asyncio.sleep(0)
    heard.watch.close()
    heard.watch.close()
    put(copy, A, "1")
    assert (heard.closed, heard.uids) == (1, [])
    copy.close()
    assert heard.closed == 1
