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
incarnation. Being absent from the store's members is "unknown", not "dead", and so is a beat of the
future (the store's clock stepped back). Silence counts only while we listened: of the time between
two looks of ours at most a quarter of the TTL counts, so that a leader that stood still buries
nobody when it wakes.

All times are monotonic seconds of the leader's clock.
"""

from collections.abc import Iterable
from dataclasses import replace

from coordinator.graves import Graves
from coordinator.life import Life, reasons, signs
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

CLOCK_NOISE_SECONDS = 0.01
"""A beat that is younger than nothing by more than this was written before a clock stepped back."""

LISTENED_SHARE = 0.25
"""Of the TTL: what of the time between two signs that we ourselves run counts as listened to."""

REFUSAL_WINDOW_GAPS = 10.0
"""Two refusals prove a death if they are at most this many refusal gaps apart."""


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
        self._lives: dict[str, Life] = {}
        self._strangers: dict[str, tuple[Member, float]] = {}
        self._deaths: list[Death] = []
        self._store_known_since: float | None = None
        self._self_suspect_since: float | None = None
        self._pods_gone: frozenset[PodAt] = frozenset()
        self._graves = Graves(wall - now)
        self._listened = now

    # -- signals ------------------------------------------------------------------------------

    def listening(self, now: float) -> None:
        """We run and listen; called often, by every signal and every look among others.

        What passed since the last call beyond `LISTENED_SHARE` of the TTL was a pause of our own.
        """
        missed = now - self._listened - self._ttl * LISTENED_SHARE
        self._listened = max(self._listened, now)
        if missed <= 0:
            return
        for life in self._lives.values():
            life.excuse(missed, now)
        if self._store_known_since is not None:
            self._store_known_since = min(self._store_known_since + missed, now)
        if self._self_suspect_since is not None:
            self._self_suspect_since = min(self._self_suspect_since + missed, now)

    def knew(self, member: Member, now: float) -> None:
        """A worker known from an earlier map or from our time as a follower."""
        if member.id not in self._lives and not self.is_dead(member):
            self._lives[member.id] = Life(member, heard=now)

    def died_before(self, dead: Iterable[DeadMember]) -> None:
        """These incarnations were declared dead by an earlier leader, which is final."""
        for each in dead:
            self._graves.died_before(each)
            life = self._lives.get(each.id)
            if life is not None and life.member.incarnation == each.incarnation:
                # It said hello before we heard of its death; its next hello gets the last word.
                del self._lives[each.id]

    def store_seen(self, beats: Iterable[tuple[Member, float]], now: float) -> None:
        """One whole read of the store's members, each with the age of its last beat in seconds."""
        self.listening(now)
        if self._store_known_since is None:
            self._store_known_since = now
        self._strangers.clear()
        present = set()
        for member, age in beats:
            if age >= -CLOCK_NOISE_SECONDS:
                present.add(member.id)
                self._beat(member, now - max(0.0, age), now)
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
            life = self._lives[member.id] = Life(member, heard=now)
        life.beaten(beaten)
        if not life.control_up:
            life.member = member

    def hello(self, member: Member, now: float) -> Answer:
        """A worker answered on a control stream, by its own words."""
        self.listening(now)
        if self.is_dead(member):
            return Answer.DEAD
        life = self._lives.get(member.id)
        if life is not None and life.member.incarnation != member.incarnation:
            if life.control_up:
                return Answer.DUPLICATE
            self._bury(life, Signal.INCARNATION, now)
            life = None
        if life is None:
            life = self._lives[member.id] = Life(member, heard=now)
        life.member, life.heard = member, now
        life.reached = life.control_up = True
        life.down_since = life.refusal = life.refused_at = None
        return Answer.JOINED

    def reported(
        self, member: Member, *, draining: bool, seen: EpochVersion, load: Load, now: float
    ) -> None:
        """A report came on the control stream of this incarnation."""
        self.listening(now)
        life = self._life(member)
        if life is None:
            return
        life.heard = now
        life.member = replace(life.member, draining=draining, seen=seen, load=load)

    def control_down(self, member: Member, now: float) -> None:
        """The control stream of this incarnation broke."""
        life = self._life(member)
        if life is not None:
            life.control_up, life.down_since = False, now

    def connects(self, member: Member, ext_proc: Connect, health: Connect, now: float) -> None:
        """One attempt at both ports."""
        life = self._life(member)
        if life is None:
            return
        if life.control_up or ext_proc is not Connect.REFUSED or health is not Connect.REFUSED:
            life.refusal = None
        elif life.refusal is not None and now - life.refusal <= self._window:
            life.refused_at = now
        else:
            life.refusal = now

    def health_checked(self, member: Member, *, answered: bool, now: float) -> None:
        """A health check over gRPC was answered (with whatever status) or not."""
        self.listening(now)
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
        gone = tuple(gone)
        self._pods_gone = frozenset(gone)
        lost = {id(life) for pod in gone if (life := self._in_pod(pod)) is not None}
        leaving = {id(life) for pod in ending if (life := self._in_pod(pod)) is not None}
        for life in self._lives.values():
            life.pod_gone, life.pod_ending = id(life) in lost, id(life) in leaving
            life.pod_doubted = life.pod_doubted and life.pod_gone

    def _in_pod(self, pod: PodAt) -> Life | None:
        life = self._lives.get(pod.name)
        return life if life is None or _lives_in(life.member, pod) else None

    def _life(self, member: Member) -> Life | None:
        life = self._lives.get(member.id)
        same = life is not None and life.member.incarnation == member.incarnation
        return life if same else None

    # -- verdicts -----------------------------------------------------------------------------

    def judge(self, now: float) -> Judgement:
        """Apply the rules as of `now`; deaths are handed out once."""
        self.listening(now)
        for life in list(self._lives.values()):
            if life.refused_at is not None and not life.control_up:
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

    def _silent(self, life: Life, now: float, share: float) -> bool:
        """Whether every channel has been silent for `share` of the time that means death."""
        return life.silent(now, self._store_known_since, self._ttl * share)

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

    def _judged(self, life: Life, now: float) -> Judged:
        known = self._store_known_since
        beat = life.beat_age(now, known)
        if now - life.heard >= self._ttl or (beat is not None and beat >= self._ttl):
            why = f"silent: {signs(life, now, known, digits=0)}"
            return Judged(life.member, MemberState.SUSPECT, Signal.SILENT, life.reached, why)
        draining = life.member.draining or life.pod_ending
        state = MemberState.DRAINING if draining else MemberState.ALIVE
        return Judged(life.member, state, None, life.reached)

    def _bury(self, life: Life, signal: Signal, now: float) -> None:
        why = reasons(life, now, self._store_known_since, self._ttl)
        if signal is Signal.INCARNATION:
            why = f"another incarnation said hello; {why}"
        member = life.member
        del self._lives[member.id]
        self._deaths.append(Death(member, signal, why))
        self._graves.bury(member, signal, why, now)

    # -- views --------------------------------------------------------------------------------

    def is_dead(self, member: Member) -> bool:
        """Whether this incarnation was declared dead."""
        return member in self._graves

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
        return self._graves.latest()

    def all_reached(self) -> bool:
        """Whether every known worker has said hello in this term (the dead are known no more)."""
        return all(life.reached for life in self._lives.values())

    def contacts(self, now: float) -> tuple[Member, ...]:
        """Whom to keep a control stream to: the living, and strangers that beat at present.

        A stranger is an incarnation that beats under a living worker's id from another address or
        while that one's stream is down, or one that was declared dead: it is owed a last word. Not
        so whoever lives on in a pod that is gone: whatever it became would be dead at once.
        """
        living = [life.member for life in self._lives.values() if life.member.addresses.internal]
        return (*living, *self._beating_strangers(now))

    def _beating_strangers(self, now: float) -> list[Member]:
        found = []
        for member, beaten in self._strangers.values():
            if any(_lives_in(member, pod) for pod in self._pods_gone):
                continue
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
        return self._graves.shown(now, self._lives)


def _lives_in(member: Member, pod: PodAt) -> bool:
    """Whether the pod is this worker's; one that never had an address is whoever bears its name."""
    host = member.addresses.ext_proc.rpartition(":")[0].strip("[]")
    return member.id == pod.name and pod.host in ("", host)
