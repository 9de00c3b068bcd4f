"""Scenes for tests of membership: workers, and what is heard of them, at times that are said."""

from coordinator.membership import Membership
from coordinator.verdicts import Answer, Connect, Judgement
from fleet.model import Addresses, EpochVersion, Load, Member, MemberState, Signal
from fleet.settings.model import MembershipSettings

SETTINGS = MembershipSettings(heartbeat_seconds=0.5, ttl_seconds=2.0, refusal_gap_seconds=0.05)
R, A, U = Connect.REFUSED, Connect.ACCEPTED, Connect.UNKNOWN


def worker(number: int, incarnation: str = "a", host: str = "") -> Member:
    host = host or f"10.0.0.{number}"
    return Member(
        f"worker-{number}",
        incarnation,
        Addresses(f"{host}:9002", f"{host}:9003", f"{host}:9004", f"{host}:9090"),
    )


def fleet_of(count: int, *, up: bool = True) -> tuple[Membership, list[Member]]:
    """`count` workers, beating and (if `up`) on the control stream at time 0."""
    membership = Membership(SETTINGS, now=0.0)
    members = [worker(n) for n in range(count)]
    beat(membership, members, 0.0)
    if up:
        for member in members:
            assert membership.hello(member, 0.0) is Answer.JOINED
    return membership, members


def beat(membership: Membership, members: list[Member], now: float, age: float = 0.0) -> None:
    membership.store_seen([(member, age) for member in members], now)


def report(
    membership: Membership, members: list[Member], now: float, *, draining: bool = False
) -> None:
    for member in members:
        membership.reported(
            member, draining=draining, seen=EpochVersion(1, 1), load=Load(), now=now
        )


def listen(membership: Membership, since: float, now: float) -> None:
    """Time passes while the leader runs: without this it would have stood still."""
    for step in range(1, int((now - since) / 0.25) + 1):
        membership.listening(since + step * 0.25)


def deaths(judgement: Judgement) -> dict[str, Signal]:
    return {death.member.id: death.signal for death in judgement.deaths}


def states(judgement: Judgement) -> dict[str, MemberState]:
    return {judged.member.id: judged.state for judged in judgement.living}
