"""One living incarnation: the signs of life it gave, and for how long each has been missing.

Silence is measured in the time that we listened: what passed while we ourselves stood still is
taken out (`Life.excuse`). Pure; all times are monotonic seconds of the leader's clock.
"""

from dataclasses import dataclass

from fleet.model import Member


@dataclass(slots=True)
class Life:
    """What is known of one incarnation.

    Attributes:
        heard: last message on the control stream; when it became known, before the first.
        down_since: when the control stream broke; None = it is up, or never was.
        beat: time of the last beat; None = the store says nothing about it.
        last_beat: of the last beat that it ever told of: a sign of life, wherever it is gone to.
        refusal: the last look at which both ports refused, while that is half a proof.
        refused_at: when the proof was complete.
        answered, unanswered: the last health check of each kind.
    """

    member: Member
    heard: float
    reached: bool = False
    control_up: bool = False
    down_since: float | None = None
    beat: float | None = None
    last_beat: float | None = None
    refusal: float | None = None
    refused_at: float | None = None
    answered: float | None = None
    unanswered: float | None = None
    pod_gone: bool = False
    pod_doubted: bool = False
    pod_ending: bool = False

    def excuse(self, seconds: float, now: float) -> None:
        """We could not listen for so long, up to `now`: it counts for nobody as silence."""
        self.heard = min(self.heard + seconds, now)
        if self.beat is not None:
            self.beat = min(self.beat + seconds, now)
        if self.last_beat is not None:
            self.last_beat = min(self.last_beat + seconds, now)
        if self.answered is not None:
            self.answered = min(self.answered + seconds, now)

    def beaten(self, at: float) -> None:
        """The store tells of a beat at `at`; one that was rolled back takes no newer one back."""
        self.beat = self.last_beat = at if self.last_beat is None else max(self.last_beat, at)

    def beat_age(self, now: float, known_since: float | None) -> float | None:
        """Seconds without a beat that the store could have told; None = it tells nothing.

        Args:
            known_since: since when the store has answered without a break; None = it does not.
        """
        if self.beat is None or known_since is None:
            return None
        return now - max(self.beat, known_since)

    def silent(self, now: float, known_since: float | None, seconds: float) -> bool:
        """Whether every channel has been silent for `seconds`, or twice that without the store.

        The latter counts from the last sign of life; a beat that the store has forgotten was one.
        """
        beat = self.beat_age(now, known_since)
        if beat is not None:
            return beat >= seconds and now - self.heard >= seconds
        signs_of_life = (self.heard, self.answered, self.last_beat)
        answer = max(at for at in signs_of_life if at is not None)
        if self.unanswered is None or self.unanswered < answer:
            return False
        return now - answer >= 2 * seconds


def signs(life: Life, now: float, known_since: float | None, digits: int = 1) -> str:
    """How old each sign of life is: `beat 2.1 s, control 2.3 s`."""
    beat = life.beat_age(now, known_since)
    told = ["beat unknown" if beat is None else f"beat {beat:.{digits}f} s"]
    if not life.reached:
        told.append("control never up")
    elif life.down_since is not None:
        told.append(f"control down {now - life.down_since:.{digits}f} s")
    else:
        told.append(f"control {now - life.heard:.{digits}f} s")
    if beat is None and life.unanswered is not None:
        since = "never" if life.answered is None else f"{now - life.answered:.{digits}f} s ago"
        told.append(f"health check unanswered, last answer {since}")
    return ", ".join(told)


def reasons(life: Life, now: float, known_since: float | None, ttl: float) -> str:
    """Every signal that had fired when it was declared dead, and what else was known."""
    fired = []
    if life.refused_at is not None and not life.control_up:
        fired.append(f"refused: both ports, {now - life.refused_at:.1f} s ago")
    if life.pod_gone:
        fired.append("pod gone")
    if life.silent(now, known_since, ttl):
        fired.append(f"silent: {signs(life, now, known_since)}")
    else:
        fired.append(signs(life, now, known_since))
    return "; ".join(fired)
