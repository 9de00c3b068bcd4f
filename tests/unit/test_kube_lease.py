"""The Kubernetes Lease against an API server that is played in memory, in virtual time."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from coordinator.election.contract import Standing, Term
from coordinator.election.kube_lease import KubeLeaseElection
from fleet.errors import StoreRefused, StoreUnavailable
from fleet.model import LeaderInfo
from fleet.settings.model import ElectionSettings
from tests.contract.election_worlds import LoopClock
from tests.fake_api_store import LEASES
from tests.memory_kube import NAMESPACE, MemoryApiServer, MemoryKube

A = LeaderInfo("c-a", "10.0.0.1:8080", "10.0.0.1:8081")
B = LeaderInfo("c-b", "10.0.0.2:8080", "10.0.0.2:8081")
SETTINGS = ElectionSettings()
TTL, RENEW = SETTINGS.lease_ttl_seconds, SETTINGS.lease_renew_seconds
NAME = "epp-fleet-blue"

pytestmark = pytest.mark.looptime


class World:
    """Two candidates of one API server."""

    def __init__(self) -> None:
        self.server = MemoryApiServer()
        self.kube_a, self.kube_b = MemoryKube(self.server), MemoryKube(self.server)
        clock = LoopClock()
        self.a = KubeLeaseElection(self.kube_a, A, SETTINGS, "blue", clock)
        self.b = KubeLeaseElection(self.kube_b, B, SETTINGS, "blue", clock)
        self.tasks: list[asyncio.Task[None]] = []

    @property
    def lease(self) -> dict[str, Any]:
        return self.server.store.find(LEASES, NAMESPACE, NAME)

    def edit(self, **annotations: str) -> None:
        """As somebody with kubectl does."""
        body = {"metadata": {"annotations": annotations}}
        self.server.store.patch(LEASES, NAMESPACE, NAME, body)

    def delete(self) -> None:
        self.server.store.delete(LEASES, NAMESPACE, NAME)

    async def follow(self, election: KubeLeaseElection) -> None:
        """Let it watch."""
        self.tasks.append(asyncio.create_task(election.watch()))
        await asyncio.sleep(0.01)

    async def renewing(self, term: Term, seconds: float) -> Term:
        """Let A renew at its pace for this long."""
        end = LoopClock().monotonic() + seconds
        while LoopClock().monotonic() < end:
            await asyncio.sleep(RENEW)
            kept, _ = await self.a.renew(term)
            assert kept is not None
            term = kept
        return term

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    yield world
    await world.close()


def now() -> float:
    return LoopClock().monotonic()


async def won(election: KubeLeaseElection, floor: int = 0) -> Term:
    term = await election.acquire(floor=floor)
    assert term is not None
    return term


async def test_the_lease_shows_people_who_leads(world: World) -> None:
    """In the fields that kubectl and others know, and epoch and addresses as annotations."""
    await won(world.a, floor=6)
    metadata, spec = world.lease["metadata"], world.lease["spec"]
    assert metadata["labels"] == {"epp-fleet.dev/fleet": "blue"}
    annotations = dict(metadata["annotations"])
    assert annotations.pop("epp-fleet.dev/request")
    assert annotations == {
        "epp-fleet.dev/epoch": "7",
        "epp-fleet.dev/http": A.http,
        "epp-fleet.dev/internal": A.internal,
    }
    stamp = spec.pop("acquireTime")
    assert spec.pop("renewTime") == stamp
    assert stamp.startswith("1970-01-01T00:00:") and stamp.endswith("Z") and len(stamp) == 27
    assert spec == {"holderIdentity": "c-a", "leaseDurationSeconds": 3, "leaseTransitions": 0}


async def test_the_epoch_is_the_annotation_never_the_transitions(world: World) -> None:
    """Deleting the Lease starts leaseTransitions anew; the floor carries the epoch over."""
    first = await won(world.a, floor=30)
    await world.a.release(first)
    world.server.store.patch(LEASES, NAMESPACE, NAME, {"spec": {"leaseTransitions": 900}})
    second = await won(world.b)
    assert second.epoch == 32
    assert world.lease["spec"]["leaseTransitions"] == 901
    world.delete()
    third = await won(world.b, floor=second.epoch)
    assert third.epoch == 33
    assert world.lease["spec"]["leaseTransitions"] == 0


@pytest.mark.parametrize("text", ["", "-4", "1e9", "x" * 100, "9" * 30])
async def test_an_epoch_that_is_no_number_is_none(world: World, text: str) -> None:
    """The holder finds its term gone and acquires above the floor."""
    term = await won(world.a, floor=4)
    world.edit(**{"epp-fleet.dev/epoch": text})
    lost, standing = await world.a.renew(term)
    assert (lost, standing.epoch) == (None, 0)
    assert (await won(world.a, floor=5)).epoch == 6


async def test_an_epoch_above_all_sense_is_refused(world: World) -> None:
    """Loudly, for somebody has to look."""
    with pytest.raises(StoreRefused, match="above"):
        await world.a.acquire(floor=2**50)


# -- answers that were lost ---------------------------------------------------------------------


async def test_a_lost_answer_is_looked_for(world: World) -> None:
    """The write landed: the Lease names holder and request, so nothing is written again."""
    world.server.losing = 1
    sent = now()
    term = await won(world.a)
    assert term.epoch == 1
    assert term.deadline == pytest.approx(sent + 0.95 * TTL)
    assert [method for method, _ in world.server.requests] == ["GET", "POST", "GET"]


async def test_a_write_that_did_not_land_is_written_again(world: World) -> None:
    """With the same epoch."""
    world.server.dropping = 1
    assert (await won(world.a)).epoch == 1
    assert [method for method, _ in world.server.requests] == ["GET", "POST", "GET", "POST"]


async def test_a_write_that_landed_unheard_is_the_same_request_next_time(world: World) -> None:
    """The call ended unknown. Its repetition renews what it finds and gives the same epoch."""
    world.server.losing = 1
    original = world.kube_a.get
    answers = iter([True, False])

    async def get(path: str, **options: Any) -> Any:
        world.kube_a.cut = not next(answers)
        return await original(path, **options)

    world.kube_a.get = get  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailable):
        await world.a.acquire(floor=0)
    world.kube_a.get = original  # type: ignore[method-assign]
    world.kube_a.cut = False
    before = world.lease["metadata"]["annotations"]["epp-fleet.dev/request"]
    await asyncio.sleep(1.0)
    sent = now()
    term = await won(world.a)
    assert term.epoch == 1
    assert term.deadline == pytest.approx(sent + 0.95 * TTL)
    assert world.lease["metadata"]["annotations"]["epp-fleet.dev/request"] == before


async def test_a_renewal_without_an_answer_is_unknown_and_the_next_one_finds_out(
    world: World,
) -> None:
    """It landed, so the version that we know is old: a 409, a read, and it goes on."""
    term = await won(world.a)
    world.server.losing = 1
    with pytest.raises(StoreUnavailable):
        await world.a.renew(term)
    kept, standing = await world.a.renew(term)
    assert kept is not None
    assert kept.deadline == pytest.approx(now() + 0.95 * TTL)
    assert standing.leader == A


async def test_an_api_server_that_may_not_be_asked_is_a_refusal(world: World) -> None:
    """Not "unknown": an operator has to mend the RBAC, and the message names what."""
    world.server.forbidden = True
    with pytest.raises(StoreRefused, match="may not GET"):
        await world.a.acquire(floor=0)


async def test_an_api_server_that_is_away_is_unknown(world: World) -> None:
    """Whatever is asked."""
    term = await won(world.a)
    world.server.available = False
    for asked in (world.a.acquire(floor=0), world.a.renew(term), world.a.release(term)):
        with pytest.raises(StoreUnavailable):
            await asked
    with pytest.raises(StoreUnavailable):
        await world.b.observe()


# -- the fence ----------------------------------------------------------------------------------


async def test_a_write_in_between_is_read_again(world: World) -> None:
    """B takes the Lease between A's read and A's write: A sees that and lets it be."""

    def take() -> None:
        body = {
            "metadata": {"name": NAME, "annotations": {"epp-fleet.dev/epoch": "9"}},
            "spec": {"holderIdentity": B.id, "leaseDurationSeconds": 3},
        }
        world.server.store.create(LEASES, NAMESPACE, body)

    world.server.before_write = take
    assert await world.a.acquire(floor=0) is None
    assert world.lease["spec"]["holderIdentity"] == B.id


async def test_what_others_write_beside_it_is_kept(world: World) -> None:
    """An annotation by hand costs one more read, not the term."""
    term = await won(world.a)
    world.edit(note="by hand")
    kept, _ = await world.a.renew(term)
    assert kept is not None
    await world.a.renew(kept)
    assert world.lease["metadata"]["annotations"]["note"] == "by hand"
    assert world.lease["metadata"]["annotations"]["epp-fleet.dev/epoch"] == "1"


async def test_a_deleted_lease_is_lost(world: World) -> None:
    """As an emptied store: nobody, epoch 0. It is for the candidate to acquire above its own."""
    term = await won(world.a, floor=4)
    world.delete()
    lost, standing = await world.a.renew(term)
    assert (lost, standing) == (None, Standing(None, 0))
    await world.a.release(term)  # nothing to give up


async def test_a_late_release_frees_nobody_elses_lease(world: World) -> None:
    """B has it meanwhile."""
    term = await won(world.a)
    await world.b.observe()
    await asyncio.sleep(TTL)
    await won(world.b)
    await world.a.release(term)
    assert world.lease["spec"]["holderIdentity"] == B.id


# -- the observer's clock -----------------------------------------------------------------------


async def test_an_observer_counts_from_when_it_saw_the_last_change(world: World) -> None:
    """Not from renewTime: B's wall clock may be an hour off either way."""
    await won(world.a)
    stamp = {"spec": {"renewTime": "2001-01-01T00:00:00.000000Z"}}
    world.server.store.patch(LEASES, NAMESPACE, NAME, stamp)
    seen = await world.b.observe()
    assert seen.leader == A
    assert seen.expires_in == pytest.approx(TTL)
    await asyncio.sleep(TTL - 0.01)
    assert (await world.b.observe()).leader == A
    assert await world.b.acquire(floor=0) is None
    await asyncio.sleep(0.02)
    assert await world.b.observe() == Standing(None, 1)
    assert (await won(world.b)).epoch == 2


async def test_the_holder_has_stopped_before_any_observer_may_begin(world: World) -> None:
    """Its deadline is from before its request; an observer can only have seen that later."""
    term = await won(world.a)
    await world.b.observe()
    while await world.b.acquire(floor=0) is None:
        await asyncio.sleep(0.001)
    assert now() - term.deadline >= 0.05 * TTL - 0.001


async def test_a_renewal_that_the_observer_sees_starts_its_wait_anew(world: World) -> None:
    """Also when it learns of it only by the read before its write."""
    term = await won(world.a)
    await world.b.observe()
    await world.renewing(term, 2 * TTL)
    assert await world.b.acquire(floor=0) is None
    assert (await world.b.observe()).leader == A


async def test_a_holder_with_a_longer_ttl_is_given_it(world: World) -> None:
    """During a roll-out of settings both must count alike; a silly duration is cut to 300 s."""
    await won(world.a)
    for duration, waits in ((20, 20.0), (1, TTL), (10**9, 300.0)):
        patch = {"spec": {"leaseDurationSeconds": duration}}
        world.server.store.patch(LEASES, NAMESPACE, NAME, patch)
        assert (await world.b.observe()).expires_in == pytest.approx(waits)


# -- following ----------------------------------------------------------------------------------


async def test_a_follower_that_is_told_of_renewals_asks_nothing(world: World) -> None:
    """Ten seconds, a look every 0.1 s: no request at all."""
    term = await won(world.a)
    await world.follow(world.b)
    asked = len(world.server.requests)
    renewing = asyncio.create_task(world.renewing(term, 10.0))
    while not renewing.done():
        assert (await world.b.observe()).leader == A
        await asyncio.sleep(0.1)
    methods = [method for method, _ in world.server.requests[asked:]]
    assert set(methods) == {"PUT"}


async def test_a_follower_hears_of_a_release_at_once(world: World) -> None:
    """And of a deletion; not of mere renewals."""
    term = await won(world.a)
    await world.follow(world.b)
    await world.b.observe()
    news = asyncio.create_task(world.b.changed())
    term = await world.renewing(term, 2 * RENEW)
    assert not news.done()
    await world.a.release(term)
    await asyncio.sleep(0.001)
    assert news.done()
    assert await world.b.observe() == Standing(None, 1)
    again = asyncio.create_task(world.b.changed())
    world.delete()
    await asyncio.sleep(0.001)
    assert again.done()
    assert await world.b.observe() == Standing(None, 0)


async def test_what_was_observed_is_no_news(world: World) -> None:
    """The look's own answer does not call for another look."""
    await won(world.a)
    await world.b.observe()
    news = asyncio.create_task(world.b.changed())
    await asyncio.sleep(1.0)
    assert not news.done()
    news.cancel()


async def test_a_dead_watch_is_made_good_by_looking(world: World) -> None:
    """The watch ended and cannot be opened: after two silent renewals each look is a request."""
    term = await won(world.a)
    await world.follow(world.b)
    world.server.end_watches()
    world.server.available = False
    await asyncio.sleep(3 * RENEW)
    world.server.available = True
    await world.a.release(term)
    assert (await world.b.observe()).leader is None


async def test_a_watch_without_a_word_is_opened_anew(world: World) -> None:
    """A half-open socket: ten silent renewals, then another watch, which begins with the Lease."""
    await won(world.a)
    await world.follow(world.b)
    world.kube_b.cut = True
    await world.a.release(await won(world.a))
    await asyncio.sleep(5 * RENEW)
    world.kube_b.cut = False
    news = asyncio.create_task(world.b.changed())
    await asyncio.sleep(6 * RENEW)
    assert news.done()


async def test_a_watch_that_lags_takes_nothing_back(world: World) -> None:
    """An event of an older resourceVersion than was read already is no change."""
    await won(world.a)
    await world.follow(world.b)
    old = {"type": "MODIFIED", "object": dict(world.lease)}
    term = await won(world.a, floor=8)
    await asyncio.sleep(0.01)
    assert term.epoch == 9
    world.b._heard(old)
    assert (await world.b.observe()).epoch == 9
