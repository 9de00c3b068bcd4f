"""Who was declared dead, which is final for an incarnation; people see it for a while. Pure."""

from collections.abc import Container
from dataclasses import dataclass

from coordinator.verdicts import Judged
from fleet.model import DeadMember, Member, MemberState, Signal

MAX_DEAD = 256
"""Dead incarnations remembered, the latest."""

SHOW_DEAD_SECONDS = 60.0
"""How long a dead worker is still shown to people."""


@dataclass(frozen=True, slots=True)
class _Grave:
    member: Member
    signal: Signal
    died: float
    why: str


class Graves:
    """The dead of one term, and those that it was told of."""

    def __init__(self, wall_offset: float) -> None:
        """`wall_offset`: wall-clock seconds minus monotonic ones."""
        self._wall_offset = wall_offset
        self._dead: dict[tuple[str, str], DeadMember] = {}
        self._graves: list[_Grave] = []

    def bury(self, member: Member, signal: Signal, why: str, now: float) -> None:
        """This incarnation is dead from now on."""
        self._graves.append(_Grave(member, signal, now, why))
        self._dead[member.id, member.incarnation] = DeadMember(
            member.id, member.incarnation, signal.value, now + self._wall_offset, why
        )
        while len(self._dead) > MAX_DEAD:
            del self._dead[next(iter(self._dead))]

    def died_before(self, dead: DeadMember) -> None:
        """An earlier leader declared it dead."""
        self._dead.setdefault((dead.id, dead.incarnation), dead)

    def __contains__(self, member: Member) -> bool:
        return (member.id, member.incarnation) in self._dead

    def latest(self) -> tuple[DeadMember, ...]:
        """The latest dead incarnations, oldest first."""
        return tuple(self._dead.values())

    def shown(self, now: float, living: Container[str]) -> tuple[Judged, ...]:
        """Who died within the last minute and did not come back under its id."""
        self._graves = [g for g in self._graves if now - g.died < SHOW_DEAD_SECONDS]
        latest = {g.member.id: g for g in self._graves if g.member.id not in living}
        return tuple(
            Judged(grave.member, MemberState.DEAD, grave.signal, True, grave.why)
            for _, grave in sorted(latest.items())
        )
