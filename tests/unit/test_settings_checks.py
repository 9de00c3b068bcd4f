"""Rules between settings: each names both fields and their values."""

import pytest

from fleet.errors import SettingsError
from fleet.settings import Settings, load_settings
from fleet.settings.checks import check


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (
            {"membership.heartbeat_seconds": "0.7"},
            "membership.heartbeat_seconds: 3 x membership.heartbeat_seconds (0.7) must be at most "
            "membership.ttl_seconds (2): two late or lost beats must not kill a worker",
        ),
        (
            {"election.renew_seconds": "1.5"},
            "redis.request_timeout_seconds: 2 x redis.request_timeout_seconds (0.3) + "
            "election.renew_seconds (1.5) must be at most election.ttl_seconds (2): a leader must "
            "be able to lose one answer and still renew in time",
        ),
        (
            {"redis.request_timeout_seconds": "0.4"},
            "redis.request_timeout_seconds: 6 x redis.request_timeout_seconds (0.4) must be at "
            "most election.ttl_seconds (2): one hanging request must not use up the lease",
        ),
        (
            {"election.lease_renew_seconds": "1.5"},
            "election.lease_request_timeout_seconds: 2 x election.lease_request_timeout_seconds "
            "(1) + election.lease_renew_seconds (1.5) must be at most election.lease_ttl_seconds "
            "(3): a leader must be able to lose one answer and still renew in time",
        ),
        (
            {"coordinator.map_poll_seconds": "3", "election.ttl_seconds": "9"},
            "coordinator.map_poll_seconds: coordinator.map_poll_seconds (3) must be below "
            "election.lease_ttl_seconds (3): a follower's map must be fresher than the time a "
            "take-over needs",
        ),
        (
            {"worker.propagation_seconds": "30", "coordinator.move_deadline_seconds": "60"},
            "worker.propagation_seconds: worker.propagation_seconds (30) must be below "
            "worker.quiet_seconds (30): a drained pool must be kept until gateways have followed",
        ),
        (
            {"scrape.interval_seconds": "2", "scrape.idle_interval_seconds": "1"},
            "scrape.interval_seconds: scrape.interval_seconds (2) must be at most "
            "scrape.idle_interval_seconds (1): a busy pool is scraped at least as often as an "
            "idle one",
        ),
        (
            {"placement.cap_ratio": "1.2"},
            "placement.cap_ratio: placement.cap_ratio (1.2) must be at most "
            "placement.cap_ratio_high (1.1): a fresh cap must lie within its own bounds",
        ),
        (
            {"worker.stray_hold_seconds": "20", "worker.opening_hold_seconds": "10"},
            "worker.stray_hold_seconds: worker.stray_hold_seconds (20) must be at most "
            "worker.opening_hold_seconds (10): a pool that opens here is worth at least the wait "
            "of one that nobody may have",
        ),
        (
            {"worker.http_port": "9002"},
            "worker.http_port: is 9002 like worker.ext_proc_port; each listener needs a port of "
            "its own",
        ),
    ],
)
def test_a_broken_rule_names_both_sides(flags: dict[str, str], expected: str) -> None:
    """The message has the fields, their values and the reason."""
    with pytest.raises(SettingsError) as caught:
        load_settings(None, {}, flags)
    assert caught.value.problems == (expected,)


def test_a_rule_about_a_field_that_is_wrong_by_itself_is_not_told() -> None:
    """One cause, one line; a rule between other fields is told all the same."""
    with pytest.raises(SettingsError) as caught:
        load_settings(None, {}, {"membership.heartbeat_seconds": "x", "worker.http_port": "9003"})
    assert [line.partition(":")[0] for line in caught.value.problems] == [
        "membership.heartbeat_seconds",
        "worker.http_port",
    ]


def test_the_bounds_themselves_are_good() -> None:
    """3 x 0.1 is at most 0.3, whatever binary fractions say; the defaults break no rule."""
    flags = {"membership.heartbeat_seconds": "0.1", "membership.ttl_seconds": "0.3"}
    assert load_settings(None, {}, flags).membership.ttl_seconds == 0.3
    assert check(Settings()) == ()
