"""Rules between settings: a thing that waits for another waits longer than the other may take.

Pure functions of `Settings`. Each finding names all fields it speaks of, with their values.
"""

import ipaddress
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fleet.settings.kinds import coordinator_problems, kind_problems
from fleet.settings.model import CoordinatorSettings, Settings, WorkerSettings
from fleet.settings.ownership_checks import ownership_problems
from fleet.settings.security_checks import (
    certificate_problems,
    plaintext_problems,
    read_problems,
    serving_problems,
)


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that is broken.

    Attributes:
        fields: paths of the fields it compares; the message is filed under the first.
        message: both sides with their values, why, and what to change.
    """

    fields: tuple[str, ...]
    message: str


def _value(settings: Settings, path: str) -> float:
    section, _, name = path.rpartition(".")
    value: float = getattr(getattr(settings, section), name)
    return value


@dataclass(frozen=True, slots=True)
class _Sum:
    """`factor x field + factor x field ...`: one side of a comparison."""

    terms: tuple[tuple[float, str], ...]

    def value(self, settings: Settings) -> float:
        return sum(factor * _value(settings, path) for factor, path in self.terms)

    def text(self, settings: Settings) -> str:
        return " + ".join(
            f"{'' if factor == 1 else f'{factor:g} x '}{path} ({_value(settings, path):g})"
            for factor, path in self.terms
        )

    def fields(self) -> tuple[str, ...]:
        return tuple(path for _, path in self.terms)


@dataclass(frozen=True, slots=True)
class _Order:
    """`low` must not be above `high` (or must be below it, if `strict`)."""

    low: _Sum
    high: _Sum
    why: str
    strict: bool = False

    def __call__(self, settings: Settings) -> Iterator[Finding]:
        low, high = self.low.value(settings), self.high.value(settings)
        # 1e-9: 3 x 0.1 must count as at most 0.3.
        if low < high - 1e-9 or (not self.strict and low <= high + 1e-9):
            return
        relation = "must be below" if self.strict else "must be at most"
        sides = f"{self.low.text(settings)} {relation} {self.high.text(settings)}"
        yield Finding((*self.low.fields(), *self.high.fields()), f"{sides}: {self.why}")


def _side(*terms: str | tuple[float, str]) -> _Sum:
    return _Sum(tuple((1.0, term) if isinstance(term, str) else term for term in terms))


def _ports_differ(section: str) -> Callable[[Settings], Iterator[Finding]]:
    def rule(settings: Settings) -> Iterator[Finding]:
        part = getattr(settings, section)
        seen: dict[int, str] = {}
        for name in type(part).__slots__:
            if not name.endswith("_port"):
                continue
            port, path = getattr(part, name), f"{section}.{name}"
            if port in seen:
                message = f"is {port} like {seen[port]}; each listener needs a port of its own"
                yield Finding((path, seen[port]), message)
            seen.setdefault(port, path)

    return rule


def _ownership(settings: Settings) -> Iterator[Finding]:
    for path, problem in ownership_problems(settings.ownership):
        yield Finding((path,), problem)


def _certificates(settings: Settings) -> Iterator[Finding]:
    for fields, message in certificate_problems(settings.security):
        yield Finding(fields, message)
    for fields, message in serving_problems(settings.worker):
        yield Finding(fields, message)


def _reads(settings: Settings) -> Iterator[Finding]:
    for fields, message in read_problems(settings):
        yield Finding(fields, message)


def _kinds_fit(settings: Settings) -> Iterator[Finding]:
    for fields, message in kind_problems(settings):
        yield Finding(fields, message)


RULES: tuple[Callable[[Settings], Iterator[Finding]], ...] = (
    _Order(
        _side((3, "membership.heartbeat_seconds")),
        _side("membership.ttl_seconds"),
        "two late or lost beats must not kill a worker",
    ),
    _Order(
        _side((2, "redis.request_timeout_seconds"), "election.renew_seconds"),
        _side("election.ttl_seconds"),
        "a leader must be able to lose one answer and still renew in time",
    ),
    _Order(
        _side((6, "redis.request_timeout_seconds")),
        _side("election.ttl_seconds"),
        "one hanging request must not use up the lease",
    ),
    _Order(
        _side((2, "election.lease_request_timeout_seconds"), "election.lease_renew_seconds"),
        _side("election.lease_ttl_seconds"),
        "a leader must be able to lose one answer and still renew in time",
    ),
    _Order(
        _side("coordinator.map_poll_seconds"),
        _side("election.lease_ttl_seconds"),
        "a follower's map must be fresher than the time a take-over needs",
        strict=True,
    ),
    _Order(
        _side("membership.refusal_gap_seconds"),
        _side("membership.ttl_seconds"),
        "two refusals must prove a death sooner than silence does",
        strict=True,
    ),
    _Order(
        _side("coordinator.tick_seconds"),
        _side("membership.ttl_seconds"),
        "the leader must look more often than workers may be silent",
        strict=True,
    ),
    _Order(
        _side("coordinator.map_poll_seconds"),
        _side("election.ttl_seconds"),
        "a follower's map must be fresher than the time a take-over needs",
        strict=True,
    ),
    _Order(
        _side("worker.propagation_seconds"),
        _side("coordinator.move_deadline_seconds"),
        "a move must be given longer than gateways need to follow it",
        strict=True,
    ),
    _Order(
        _side("scrape.timeout_seconds"),
        _side("coordinator.move_deadline_seconds"),
        "a gainer scrapes each endpoint once before it acknowledges",
        strict=True,
    ),
    _Order(
        _side("worker.propagation_seconds"),
        _side("worker.quiet_seconds"),
        "a drained pool must be kept until gateways have followed",
        strict=True,
    ),
    _Order(
        _side("worker.share_poll_seconds"),
        _side("worker.stray_hold_seconds"),
        "a held stream must outlast the repair of a share that was missed",
        strict=True,
    ),
    _Order(
        _side("worker.stray_hold_seconds"),
        _side("worker.opening_hold_seconds"),
        "a pool that opens here is worth at least the wait of one that nobody may have",
    ),
    _Order(
        _side("worker.max_body_bytes"),
        _side("worker.max_buffered_bytes"),
        "the largest body must fit the worker's budget",
    ),
    _Order(
        _side("worker.max_body_bytes"),
        _side("bounds.max_buffered_bytes_per_pool"),
        "the largest body must fit a pool's part of it",
    ),
    _Order(
        _side("scrape.interval_seconds"),
        _side("scrape.idle_interval_seconds"),
        "a busy pool is scraped at least as often as an idle one",
    ),
    _Order(
        _side("placement.cap_ratio_low"),
        _side("placement.cap_ratio"),
        "a fresh cap must lie within its own bounds",
    ),
    _Order(
        _side("placement.cap_ratio"),
        _side("placement.cap_ratio_high"),
        "a fresh cap must lie within its own bounds",
    ),
    _kinds_fit,
    _ports_differ("worker"),
    _ports_differ("coordinator"),
    _ownership,
    _certificates,
    _reads,
)


def check(settings: Settings) -> tuple[Finding, ...]:
    """Every broken rule between settings that every process shares."""
    return tuple(finding for rule in RULES for finding in rule(settings))


def _wildcard(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return host == "*"


def check_process(settings: Settings, section: str) -> tuple[Finding, ...]:
    """What a `worker` or `coordinator` process needs on top: a token, an address to be reached,
    certificates unless that is a loopback address, and (a coordinator) somewhere to write routes.

    Args:
        section: `worker` or `coordinator`.
    """
    found = []
    listener: WorkerSettings | CoordinatorSettings = getattr(settings, section)
    host, advertised = f"{section}.host", f"{section}.advertise_host"
    if _wildcard(listener.advertise_host or listener.host):
        found.append(
            Finding(
                (advertised, host),
                f"others cannot reach {listener.advertise_host or listener.host!r}; set it to this "
                f"process' own address (in a pod EPP_FLEET_{section.upper()}__ADVERTISE_HOST from "
                f"status.podIP), or set {host} to one",
            )
        )
    if section == "coordinator":
        found += [Finding(fields, message) for fields, message in coordinator_problems(settings)]
    if not settings.security.token_file:
        message = "is empty; every process of a fleet needs the file with the fleet's token"
        found.append(Finding(("security.token_file",), message))
    found += [
        Finding(fields, message)
        for fields, message in plaintext_problems(settings.security, section, listener)
    ]
    return tuple(found)
