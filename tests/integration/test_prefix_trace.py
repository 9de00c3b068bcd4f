"""A real service's requests: how much of their prompts the picks find cached."""

import sys

import pytest

from epp_worker.scheduling.pool import PoolState
from epp_worker.scheduling.prefix.slot import PREFIX
from epp_worker.scheduling.state_slots import StateSlot
from tests.prefix_pools import pool_of
from tests.prefix_trace import (
    SERVERS,
    Ours,
    Policy,
    QueueOnly,
    Random,
    Rule,
    Service,
    served,
    trace,
)

REQUESTS = 1000
NEWS_SECONDS = 0.05
POINTS = 0.02
"""What a change of owner may cost."""


def test_hit_rate_is_that_of_the_rule(capsys: pytest.CaptureFixture[str]) -> None:
    """With the same capacity our picks are the rule's, request by request, so the hit rate is equal
    to the token. Where servers report their cache, ours believes in its real size: other picks, as
    good (the whole trace is in the performance table). Both are far above what queues find."""
    policies: dict[str, Policy] = {
        "random": Random(),
        "queue only": QueueOnly(),
        "rule": Rule(),
        "ours": Ours(told=False),
        "ours, cache size reported": Ours(),
    }
    found = {name: served(policy, REQUESTS).hit_rate for name, policy in policies.items()}
    with capsys.disabled():
        for name, rate in found.items():
            sys.stdout.write(f"\n  prefix hit rate, {REQUESTS} requests, {name}: {rate:.2%}")
    assert found["ours"] == found["rule"]
    assert found["ours, cache size reported"] >= found["rule"] - 0.005
    assert found["rule"] > 2 * max(found["random"], found["queue only"])


def slot_of(pool: PoolState) -> StateSlot:
    slot = pool.slot(PREFIX)
    assert slot is not None
    return slot


class Stream:
    """An owner's changes on their way to a stand-by: in batches, as they are sent."""

    def __init__(self, owner: PoolState, follower: PoolState) -> None:
        self.owner, self.follower = slot_of(owner), slot_of(follower)
        self.owner.record(lambda: None)
        for piece in self.owner.snapshot(32 * 1024):
            self.follower.apply("life", piece, relay=False)
        self._at = 0.0

    def pass_time(self, now: float) -> None:
        """What changed before is told, a batch at a time."""
        if now - self._at >= NEWS_SECONDS:
            self._at = now
            self.flush()

    def flush(self) -> None:
        """All is told."""
        while (piece := self.owner.drain_delta(32 * 1024)) is not None:
            self.follower.apply("life", piece, relay=False)


@pytest.mark.parametrize("crash", [False, True], ids=["planned move", "crash"])
def test_hit_rate_after_a_change_of_owner(*, crash: bool) -> None:
    """A stand-by that joined after a third of the trace takes over after two thirds. After a
    planned move it picks exactly as the owner would have; a crash costs it the last batch of news,
    and less than two points of the hit rate. A newcomer that knows nothing loses far more."""
    undisturbed = rest(served(Ours(), 0), None)
    ours = Ours()
    standby = pool_of(SERVERS)
    after = rest(Service(ours), standby, crash=crash)
    cold = rest(Service(Ours()), pool_of(SERVERS), told=False)
    assert after >= undisturbed - POINTS
    assert crash or after == undisturbed
    assert cold < undisturbed - POINTS


def rest(
    service: Service, heir: PoolState | None, *, crash: bool = False, told: bool = True
) -> float:
    """The hit rate of the last third of the trace, served by the heir if there is one."""
    ours = service.policy
    assert isinstance(ours, Ours)
    stream: Stream | None = None
    before = (0, 0)
    for number, asked in enumerate(trace(REQUESTS)):
        if stream is not None:
            stream.pass_time(asked.at)
        if number == REQUESTS // 3 and heir is not None and told:
            stream = Stream(ours.pool, heir)
        if number == 2 * REQUESTS // 3:
            before = (sum(server.hit for server in service.servers), service.tokens)
            if heir is not None:
                if stream is not None and not crash:
                    stream.flush()
                stream = None
                ours.move_to(heir)
        service.serve(asked)
    hits = sum(server.hit for server in service.servers) - before[0]
    return hits / (service.tokens - before[1])
