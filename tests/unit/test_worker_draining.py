"""Who is sent away, and when a stopping worker may leave."""

import math
from dataclasses import replace

from epp_worker.draining import Farewells, Next, StopFacts, StopLimits, next_step

LIMITS = StopLimits(leader_gap=4.0, hand_over=32.0, streams=600.0, quiet=30.0)
FACTS = StopFacts(
    since_stop=1.0, held=3, leader_away=0.0, peers=True, open_streams=5, since_needed=0.0
)


def test_nobody_is_sent_away_before_routes_had_their_time() -> None:
    """A stray within the propagation time is normal."""
    farewells = Farewells()
    assert not farewells.stray("c", "gw", now=10.0, due=10.5)
    assert farewells.stray("c", "gw", now=10.5, due=10.5)


def test_one_connection_is_told_at_most_every_two_seconds() -> None:
    """Streams that race with the GOAWAY bring no second one."""
    farewells = Farewells()
    told = [
        now for now in (0.0, 0.5, 1.0, 1.9, 2.0, 3.0, 4.1) if farewells.stray("c", "gw", now, 0.0)
    ]
    assert told == [0.0, 2.0, 4.1]


def test_a_replacement_connection_waits_its_turn() -> None:
    """A gateway behind a slow kube-proxy reconnects to us; it is not bounced without pause."""
    farewells = Farewells()
    assert farewells.stray("c1", "gw", 0.0, 0.0)
    assert not farewells.stray("c2", "gw", 0.1, 0.0)
    assert not farewells.stray("c2", "gw", 1.9, 0.0)
    assert farewells.stray("c2", "gw", 2.0, 0.0)


def test_all_old_connections_of_a_gateway_go_at_once() -> None:
    """Eight threads of one Envoy need not wait for each other."""
    farewells = Farewells()
    for thread in range(8):
        assert not farewells.stray(thread, "gw", now=0.5, due=1.0)
    assert all(farewells.stray(thread, "gw", now=1.0 + thread / 10, due=1.0) for thread in range(8))


def test_gateways_do_not_wait_for_each_other() -> None:
    """The pause is one gateway's own."""
    farewells = Farewells()
    assert farewells.stray("c1", "gw-1", 0.0, 0.0)
    assert farewells.stray("c2", "gw-2", 0.0, 0.0)


def test_connections_are_forgotten_after_a_minute() -> None:
    """What is kept per connection does not grow for ever."""
    farewells = Farewells()
    farewells.stray("c", "gw", 0.0, 0.0)
    farewells.prune(61.0)
    assert farewells.__dict__["_first_stray"] == {}
    assert farewells.__dict__["_last_by_host"] == {}


def test_groups_are_handed_over_first() -> None:
    """With a leader and a peer, a worker stays until others have taken over."""
    assert next_step(FACTS, LIMITS) is Next.HAND_OVER
    assert next_step(replace(FACTS, peers=None), LIMITS) is Next.HAND_OVER


def test_without_anybody_to_take_over_it_leaves() -> None:
    """No peer; or none is known of, and no leader came for longer than a fail-over takes."""
    assert next_step(replace(FACTS, peers=False), LIMITS) is Next.LEAVE
    unknown = replace(FACTS, peers=None)
    assert next_step(replace(unknown, leader_away=math.inf), LIMITS) is Next.LEAVE
    assert next_step(replace(unknown, leader_away=3.9), LIMITS) is Next.HAND_OVER


def test_while_nobody_leads_it_serves_on_for_its_peers_to_be_given_its_groups() -> None:
    """Gateways have nowhere else to go: it waits as long as it would for open streams."""
    forsaken = replace(FACTS, leader_away=math.inf)
    assert next_step(replace(forsaken, since_stop=599.0), LIMITS) is Next.HAND_OVER
    assert next_step(replace(forsaken, since_stop=600.1), LIMITS) is Next.LEAVE


def test_a_hand_over_that_never_comes_does_not_hold_it_for_ever() -> None:
    """Longer than a move may take: it goes."""
    assert next_step(replace(FACTS, since_stop=32.1), LIMITS) is Next.LEAVE


def test_afterwards_it_waits_for_quiet_and_for_streams() -> None:
    """Both must hold: 30 s without strays, and no open stream within the bound."""
    over = replace(FACTS, held=0, since_stop=40.0)
    assert next_step(replace(over, since_needed=29.9, open_streams=0), LIMITS) is Next.WAIT
    assert next_step(replace(over, since_needed=30.0), LIMITS) is Next.WAIT
    assert next_step(replace(over, since_needed=30.0, open_streams=0), LIMITS) is Next.LEAVE
    assert next_step(replace(over, since_needed=30.0, since_stop=600.0), LIMITS) is Next.LEAVE


def test_a_worker_that_never_owned_anything_leaves_at_once() -> None:
    """Nothing can stray to it."""
    idle = replace(FACTS, held=0, open_streams=0, since_needed=math.inf)
    assert next_step(idle, LIMITS) is Next.LEAVE
