"""Which leaders are heard, and what a verdict means."""

import pytest

from epp_worker.control.rules import Admission, Sentence, admit, understand
from fleet.control.messages import LeaderHello, Verdict
from fleet.model import LeaderInfo


def hello(epoch: int, fleet: str = "f") -> LeaderHello:
    return LeaderHello(fleet, epoch, LeaderInfo("c0", "h:1", "h:2"))


@pytest.mark.parametrize(
    ("message", "admission"),
    [
        (hello(7), Admission.ADMIT),
        (hello(8), Admission.ADMIT),
        (hello(6), Admission.LOWER_EPOCH),
        (hello(9, fleet="g"), Admission.OTHER_FLEET),
    ],
)
def test_a_lower_epoch_is_refused(message: LeaderHello, admission: Admission) -> None:
    """Seen: 7. The same epoch again is the same leader dialling anew."""
    assert admit("f", 7, message) is admission


@pytest.mark.parametrize(
    ("verdict", "sentence"),
    [
        (Verdict("i1", "dead", "silent"), Sentence.REJOIN),
        (Verdict("i1", "duplicate", "taken"), Sentence.EXIT),
        (Verdict("i0", "dead", "silent"), Sentence.IGNORE),
        (Verdict("i0", "duplicate", "taken"), Sentence.IGNORE),
        (Verdict("i1", "promoted", "?"), Sentence.IGNORE),
    ],
)
def test_a_verdict_concerns_the_incarnation_that_it_names(
    verdict: Verdict, sentence: Sentence
) -> None:
    """One that was meant for an earlier life changes nothing."""
    assert understand("i1", verdict).sentence is sentence
