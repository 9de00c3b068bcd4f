"""Who is alive: signals go in, one verdict per worker comes out. No I/O; time is handed in.

A worker is dead when
- its control stream is down AND its ext_proc and health ports both refuse connections, twice in a
  row (a time-out, an unreachable host or an accepted connection proves nothing);
- a new incarnation says hello under its id while its own control stream is down;
- its pod is gone: deleted, ended, or replaced by another of the same name;
- its beat and its control stream have both been silent for the TTL; while the store cannot say
  anything about its beat: control stream and health check unanswered for two TTLs.

Invariants: silence of one channel alone never kills. If more than half fall silent at once, we
suspect ourselves first, for at most two TTLs; refusals are never doubted. If the pods of more than
half are gone at once while these workers still talk to us, we doubt the list of pods: each of them
is dead as soon as it is silent for the TTL or its control stream is down. Dead is final for an
incarnation. Being absent from the store's members is "unknown", not "dead".

All times are monotonic seconds of the leader's clock.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from coordinator.verdicts import Answer, Connect, Death, Judged, Judgement, PodAt
from fleet.model import (
    DeadMember,
    EpochVersion,
    Load,
    Member,
    MemberState,
    Signal,
)
from fleet.settings.model import MembershipSettings

MAX_DEAD = 256
"""Dead incarnations remembered, the latest."""

SHOW_DEAD_SECONDS = 60.0
"""How long a dead worker is still shown to people."""

REFUSAL_WINDOW_GAPS = 10.0
"""Two refusals prove a death if they are at most this many refusal gaps apart."""


@dataclass(slots=True)
class _Life:
    """One living incarnation."""

    member: Member
    heard: float
    """Last message on the control stream; when it became known, before the first."""
    reached: bool = False
    control_up: bool = False
    beat: float | None = None
    """Time of the last beat; None = the store says nothing about it."""
    refusal: float | None = None
    refused: bool = False
    answered: float | None = None
    """Last answered health check."""
    unanswered: float | None = None
    """Last unanswered health check."""
    pod_gone: bool = False
    pod_doubted: bool = False
    pod_ending: bool = False


@dataclass(frozen=True, slots=True)
class _Grave:
    member: Member
    signal: Signal
    died: float


class Membership:
    """The signals of one term of leadership."""

    def __init__(
        self,
        settings: MembershipSettings,
        *,
        now: float,
        wall: float = 0.0,
    ) -> None:
        """Begin at monotonic `now`; `wall` is the same moment for people."""
        self._ttl = settings.ttl_seconds
        self._window = settings.refusal_gap_seconds * REFUSAL_WINDOW_GAPS
        self._lives: dict[str, _Life] = {}
        self._dead: dict[tuple[str, str], DeadMember] = {}
        self._graves: list[_Grave] = []
        self._strangers: dict[str, tuple[Member, float]] = {}
        self._deaths: list[Death] = []
        self._store_known_since: float | None = None
        self._self_suspect_since: float | None = None
        self._wall_offset = wall - now

    # -- signals ------------------------------------------------------------------------------

    def knew(self, member: Member, now: float) -> None:
        """A worker known from an earlier map or from our time as a follower."""
        if member.id not in self._lives and not self.is_dead(member):
            self._lives[member.id] = _Life(member, heard=now)

    def died_before(self, dead: Iterable[DeadMember]) -> None:
        """These incarnations were declared dead by an earlier leader, which is final."""
        for each in dead:
            self._dead.setdefault((each.id, each.incarnation), each)

    def store_seen(self, beats: Iterable[tuple[Member, float]], now: float) -> None:
        """One whole read of the store's members, each with the age of its last beat in seconds."""
        if self._store_known_since is None:
            self._store_known_since = now
        self._strangers.clear()
        present = set()
        for member, age in beats:
            present.add(member.id)
            self._beat(member, now - age, now)
        for worker, life in self._lives.items():
            if worker not in present:
                life.beat = None

    def store_unknown(self) -> None:
        """The store could not be read: beats say nothing until it can again."""
        self._store_known_since = None

    def _beat(self, member: Member, beaten: float, now: float) -> None:
        life = self._lives.get(member.id)
        if self.is_dead(member) or (life and life.member.incarnation != member.incarnation):
            self._strangers[member.id] = (member, beaten)
            return
        if life is None:
            life = self._lives[member.id] = _Life(member, heard=now)
        life.beat = beaten
        if not life.control_up:
            life.member = member

    def hello(self, member: Member, now: float) -> Answer:
        """A worker answered on a control stream, by its own words."""
        if self.is_dead(member):
            return Answer.DEAD
        life = self._lives.get(member.id)
        if life is not None and life.member.incarnation != member.incarnation:
            if life.control_up:
                return Answer.DUPLICATE
            self._bury(life, Signal.INCARNATION, now)
            life = None
        if life is None:
            life = self._lives[member.id] = _Life(member, heard=now)
        life.member, life.heard = member, now
        life.reached = life.control_up = True
        life.refusal, life.refused = None, False
        return Answer.JOINED

    def reported(
        self, member: Member, *, draining: bool, seen: EpochVersion, load: Load, now: float
    ) -> None:
        """A report came on the control stream of this incarnation."""
        life = self._life(member)
        if life is None:
            return
        life.heard = now
        life.member = replace(life.member, draining=draining, seen=seen, load=load)

    def control_down(self, member: Member) -> None:
        """The control stream of this incarnation broke."""
        life = self._life(member)
        if life is not None:
            life.control_up = False

    def connects(self, member: Member, ext_proc: Connect, health: Connect, now: float) -> None:
        """One attempt at both ports."""
        life = self._life(member)
        if life is None:
            return
        if life.control_up or ext_proc is not Connect.REFUSED or health is not Connect.REFUSED:
            life.refusal = None
        elif life.refusal is not None and now - life.refusal <= self._window:
            life.refused = True
        else:
            life.refusal = now

    def health_checked(self, member: Member, *, answered: bool, now: float) -> None:
        """A health check over gRPC was answered (with whatever status) or not."""
        life = self._life(member)
        if life is None:
            return
        if answered:
            life.answered, life.unanswered = now, None
        else:
            life.unanswered = now

    def pods_seen(self, *, gone: Iterable[PodAt], ending: Iterable[PodAt]) -> None:
        """What the list of pods says at present, in whole.

        Args:
            gone: pods that are no more. Without a host whoever bears the name is meant; with one,
                whoever beats under the name from elsewhere lives in another pod.
            ending: pods that are being deleted: their workers drain, whatever they say themselves.
        """
        lost = {id(life) for pod in gone if (life := self._in_pod(pod)) is not None}
        leaving = {id(life) for pod in ending if (life := self._in_pod(pod)) is not None}
        for life in self._lives.values():
            life.pod_gone, life.pod_ending = id(life) in lost, id(life) in leaving
            life.pod_doubted = life.pod_doubted and life.pod_gone

    def _in_pod(self, pod: PodAt) -> _Life | None:
        life = self._lives.get(pod.name)
        if life is None or not pod.host:
            return life
        known = life.member.addresses.ext_proc.rpartition(":")[0].strip("[]")
        return life if known == pod.host else None

    def _life(self, member: Member) -> _Life | None:
        life = self._lives.get(member.id)
        same = life is not None and life.member.incarnation == member.incarnation
        return life if same else None

    # -- verdicts -----------------------------------------------------------------------------

    def judge(self, now: float) -> Judgement:
        """Apply the rules as of `now`; deaths are handed out once."""
        for life in list(self._lives.values()):
            if life.refused and not life.control_up:
                self._bury(life, Signal.REFUSED, now)
        self._bury_podless(now)
        doubt = self._doubt_ourselves(now)
        if not doubt:
            for life in list(self._lives.values()):
                if self._silent(life, now, 1.0):
                    self._bury(life, Signal.SILENT, now)
        living = tuple(self._judged(life, now) for _, life in sorted(self._lives.items()))
        deaths, self._deaths = tuple(self._deaths), []
        return Judgement(living, deaths)

    def _bury_podless(self, now: float) -> None:
        gone = [life for life in self._lives.values() if life.pod_gone]
        doubt = 2 * len(gone) > len(self._lives)
        for life in gone:
            talks = life.control_up and now - life.heard < self._ttl
            life.pod_doubted = talks and (doubt or life.pod_doubted)
            if not life.pod_doubted:
                self._bury(life, Signal.POD_GONE, now)

    def _silent(self, life: _Life, now: float, share: float) -> bool:
        """Whether every channel has been silent for `share` of the time that means death."""
        if life.beat is not None and self._store_known_since is not None:
            beat = max(life.beat, self._store_known_since)
            return now - max(beat, life.heard) >= self._ttl * share
        heard = life.heard if life.answered is None else max(life.heard, life.answered)
        if life.unanswered is None or life.unanswered < heard:
            return False
        return now - heard >= 2 * self._ttl * share

    def _doubt_ourselves(self, now: float) -> bool:
        # Peers cut off together pass the TTL one beat after another: half of it counts here, or
        # the first of them would be buried before the pattern shows.
        silent = sum(self._silent(life, now, 0.5) for life in self._lives.values())
        if 2 * silent <= len(self._lives):
            self._self_suspect_since = None
            return False
        if not any(self._silent(life, now, 1.0) for life in self._lives.values()):
            return True
        if self._self_suspect_since is None:
            self._self_suspect_since = now
        return now - self._self_suspect_since < 2 * self._ttl

    def _judged(self, life: _Life, now: float) -> Judged:
        control = now - life.heard >= self._ttl
        known = self._store_known_since
        beat = (
            life.beat is not None and known is not None and now - max(life.beat, known) >= self._ttl
        )
        if control or beat:
            return Judged(life.member, MemberState.SUSPECT, Signal.SILENT, life.reached)
        draining = life.member.draining or life.pod_ending
        state = MemberState.DRAINING if draining else MemberState.ALIVE
        return Judged(life.member, state, None, life.reached)

    def _bury(self, life: _Life, signal: Signal, now: float) -> None:
        member = life.member
        del self._lives[member.id]
        self._deaths.append(Death(member, signal))
        self._graves.append(_Grave(member, signal, now))
        self._dead[member.id, member.incarnation] = DeadMember(
            member.id, member.incarnation, signal.value, now + self._wall_offset
        )
        while len(self._dead) > MAX_DEAD:
            del self._dead[next(iter(self._dead))]

    # -- views --------------------------------------------------------------------------------

    def is_dead(self, member: Member) -> bool:
        """Whether this incarnation was declared dead."""
        return (member.id, member.incarnation) in self._dead

    def current(self, worker: str) -> Member | None:
        """The living incarnation under this id."""
        life = self._lives.get(worker)
        return None if life is None else life.member

    def up(self, worker: str) -> bool:
        """Whether the control stream of this worker is up."""
        life = self._lives.get(worker)
        return life is not None and life.control_up

    def dead(self) -> tuple[DeadMember, ...]:
        """The latest dead incarnations, oldest first."""
        return tuple(self._dead.values())

    def all_reached(self) -> bool:
        """Whether every known worker has said hello in this term (the dead are known no more)."""
        return all(life.reached for life in self._lives.values())

    def contacts(self, now: float) -> tuple[Member, ...]:
        """Whom to keep a control stream to: the living, and strangers that beat at present.

        A stranger is an incarnation that beats under a living worker's id from another address or
        while that one's stream is down, or one that was declared dead: it is owed a last word.
        """
        living = [life.member for life in self._lives.values() if life.member.addresses.internal]
        return (*living, *self._beating_strangers(now))

    def _beating_strangers(self, now: float) -> list[Member]:
        found = []
        for member, beaten in self._strangers.values():
            life = self._lives.get(member.id)
            here = life is not None and (
                life.member.addresses.internal == member.addresses.internal
            )
            if now - beaten < self._ttl and not (here and life is not None and life.control_up):
                found.append(member)
        return found

    def to_check(self, now: float) -> tuple[Member, ...]:
        """Whose health port to ask: silent on the control stream for half a TTL, beat unknown."""
        return tuple(
            life.member
            for life in self._lives.values()
            if now - life.heard >= self._ttl / 2
            and (life.beat is None or self._store_known_since is None)
        )

    def buried(self, now: float) -> tuple[Judged, ...]:
        """Workers that died within the last minute and did not come back under their id."""
        self._graves = [g for g in self._graves if now - g.died < SHOW_DEAD_SECONDS]
        latest = {g.member.id: g for g in self._graves if g.member.id not in self._lives}
        return tuple(
            Judged(grave.member, MemberState.DEAD, grave.signal, True)
            for _, grave in sorted(latest.items())
        )
