"""Who may read, by TokenReview and SubjectAccessReview: decisions, what is kept, and outages."""

import asyncio
import logging

import pytest

from fleet.errors import (
    KubeError,
    KubeForbidden,
    KubeNotFound,
    KubeRefused,
    KubeThrottled,
    KubeUnavailable,
)
from fleet.kube.read_access import Allowed, Decision, Forbidden, ReadAccess, Stranger, Unknown
from fleet.kube.read_answers import Answers, Pace
from fleet.kube.reviews import (
    ACCESS_REVIEWS,
    TOKEN_REVIEWS,
    User,
    access_review,
    allowed_in,
    user_of,
)
from tests.review_kube import PROMETHEUS, ReviewKube, StillClock

BOTH = ["tokenreviews", "subjectaccessreviews"]


class Reader:
    """A `ReadAccess` with an API server of its own and time that moves when told."""

    def __init__(self) -> None:
        self.clock = StillClock()
        self.kube = ReviewKube()
        self.kube.users = {"good": PROMETHEUS, "poor": "jane"}
        self.kube.rights = {(PROMETHEUS, "/metrics")}
        self.access = ReadAccess(self.kube, self.clock)

    async def ask(self, token: str = "good", path: str = "/metrics") -> Decision:
        return await self.access.decide(token, path)


@pytest.fixture
async def reader() -> Reader:
    return Reader()


@pytest.mark.parametrize(
    ("token", "path", "expected", "calls"),
    [
        ("good", "/metrics", Allowed(PROMETHEUS), BOTH),
        ("good", "/api/v1/map", Forbidden(PROMETHEUS), BOTH),
        ("poor", "/metrics", Forbidden("jane"), BOTH),
        ("bad", "/metrics", Stranger(), BOTH[:1]),
    ],
)
async def test_decisions(
    reader: Reader, token: str, path: str, expected: Decision, calls: list[str]
) -> None:
    """First who it is, then whether he may; the second answer to the same comes from memory."""
    assert await reader.ask(token, path) == expected
    assert reader.kube.calls() == calls
    assert await reader.ask(token, path) == expected
    assert reader.kube.calls() == []


async def test_what_is_asked(reader: Reader) -> None:
    """The token for the API server's own audience; all that is known of the user, and the path."""
    await reader.ask()
    assert reader.kube.asked == [
        (TOKEN_REVIEWS, {"token": "good"}),
        (
            ACCESS_REVIEWS,
            {
                "user": PROMETHEUS,
                "uid": "u1",
                "groups": ["system:authenticated"],
                "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
            },
        ),
    ]


async def test_how_long_answers_count(reader: Reader) -> None:
    """A yes 60 s; a no 5 s: a right that is given or taken is seen then."""
    await reader.ask("good")
    await reader.ask("poor")
    reader.kube.calls()
    reader.kube.rights = {("jane", "/metrics")}
    reader.clock.advance(4.9)
    assert await reader.ask("poor") == Forbidden("jane")
    reader.clock.advance(0.2)
    assert await reader.ask("poor") == Allowed("jane")
    assert reader.kube.calls() == ["subjectaccessreviews"]
    reader.clock.advance(54.8)
    assert await reader.ask("good") == Allowed(PROMETHEUS)
    reader.clock.advance(0.2)
    assert await reader.ask("good") == Forbidden(PROMETHEUS)
    assert reader.kube.calls() == BOTH


async def test_a_token_that_is_withdrawn(reader: Reader) -> None:
    """It is nobody's after 60 s, and the old yes does not come back in an outage."""
    await reader.ask()
    del reader.kube.users["good"]
    reader.clock.advance(60.0)
    assert await reader.ask() == Stranger()
    reader.kube.fault = KubeUnavailable("played")
    reader.clock.advance(6.0)
    assert isinstance(await reader.ask(), Unknown)


AWAY = [
    KubeUnavailable("played"),
    KubeThrottled("played", retry_after_seconds=1.0),
    KubeForbidden("played", status=403),
    KubeNotFound("played", status=404),
]


@pytest.mark.parametrize("fault", AWAY, ids=lambda fault: type(fault).__name__)
async def test_while_nobody_can_be_asked(reader: Reader, fault: KubeError) -> None:
    """An old yes counts until it is 5 minutes old; others wait; one call in 5 s looks again."""
    await reader.ask()
    await reader.ask("poor")
    reader.kube.calls()
    reader.kube.fault = fault
    reader.clock.advance(61.0)
    assert await reader.ask() == Allowed(PROMETHEUS)
    # The old yes to who he is, the next question is not even asked.
    assert reader.kube.calls() == ["tokenreviews"]
    assert await reader.ask("new") == Unknown(5.0)
    reader.clock.advance(4.0)
    assert await reader.ask("poor") == Unknown(1.0)
    assert reader.kube.calls() == []
    reader.clock.advance(234.9)  # 299.9 s
    assert await reader.ask() == Allowed(PROMETHEUS)
    reader.clock.advance(0.1)
    assert isinstance(await reader.ask(), Unknown)
    reader.kube.fault = None
    reader.clock.advance(5.0)
    assert await reader.ask() == Allowed(PROMETHEUS)


@pytest.mark.parametrize("status", [400, 413, 422])
async def test_a_token_that_the_server_cannot_read(reader: Reader, status: int) -> None:
    """It is nobody's; for others the API server is not away."""
    reader.kube.fault = KubeRefused("played", status=status)
    assert await reader.ask("odd") == Stranger()
    reader.kube.fault = None
    assert await reader.ask() == Allowed(PROMETHEUS)


async def test_many_ask_at_once(reader: Reader) -> None:
    """They share one call of each kind; one who goes does not take the answer from the others."""
    reader.kube.gate.clear()
    asking = [asyncio.create_task(reader.ask()) for _ in range(50)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    asking[0].cancel()
    await asyncio.sleep(0)
    reader.kube.gate.set()
    found = await asyncio.gather(*asking, return_exceptions=True)
    assert isinstance(found[0], asyncio.CancelledError)
    assert found[1:] == [Allowed(PROMETHEUS)] * 49
    assert reader.kube.calls() == BOTH


async def test_guessing_is_bounded_and_hurts_nobody(reader: Reader) -> None:
    """40 guesses at once and 20 a second reach the API server; a known reader waits for none."""
    await reader.ask()
    reader.clock.advance(61.0)
    reader.kube.calls()
    found = [await reader.ask(f"guess-{number}") for number in range(100)]
    assert found.count(Stranger()) == 40
    assert isinstance(found[-1], Unknown)
    assert len(reader.kube.calls()) == 40
    assert await reader.ask() == Allowed(PROMETHEUS)
    assert reader.kube.calls() == BOTH
    reader.clock.advance(1.0)
    found = [await reader.ask(f"more-{number}") for number in range(100)]
    assert found.count(Stranger()) == 20


async def test_a_token_that_takes_too_long_hurts_no_known_reader(reader: Reader) -> None:
    """Whoever makes such up, again and again, cannot use up the 5 minutes of others."""
    await reader.ask()
    reader.clock.advance(61.0)
    reader.kube.fault = KubeUnavailable("played: no answer in time")
    assert isinstance(await reader.ask("slow"), Unknown)
    reader.kube.fault = None
    reader.kube.calls()
    assert await reader.ask() == Allowed(PROMETHEUS)
    assert reader.kube.calls() == BOTH
    assert isinstance(await reader.ask("other"), Unknown)


async def test_no_token_is_kept_or_logged(reader: Reader, caplog: pytest.LogCaptureFixture) -> None:
    """Nowhere in what it holds, nor in what it says of a fault that quotes one."""
    caplog.set_level(logging.DEBUG)
    token = "very-secret-token"
    reader.kube.users[token] = "jane"
    await reader.ask(token)
    held = [vars(reader.access._users), vars(reader.access._rights), reader.access._asking]
    assert len(reader.access._users) == 1
    assert token not in str(held)
    reader.kube.fault = KubeUnavailable(f"no JSON: {token}")
    reader.clock.advance(61.0)
    await reader.ask(token)
    (record,) = caplog.records
    assert record.getMessage() == "reads cannot be authorized"
    assert token not in str(vars(record))


async def test_our_own_right_that_is_missing_is_named(
    reader: Reader, caplog: pytest.LogCaptureFixture
) -> None:
    """As the client says it: it can be copied into a rule; once for each outage."""
    reader.kube.fault = KubeForbidden('RBAC lacks verb "create" on ...', status=403)
    for _ in range(3):
        await reader.ask()
    (record,) = caplog.records
    assert vars(record)["problem"] == 'RBAC lacks verb "create" on ...'


async def test_closing_ends_what_is_open(reader: Reader) -> None:
    """Who waits is cancelled; nothing is left running."""
    reader.kube.gate.clear()
    asking = asyncio.create_task(reader.ask())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await reader.access.close()
    with pytest.raises(asyncio.CancelledError):
        await asking


def test_memory_is_bounded() -> None:
    """The oldest goes, and bad answers never drive out good ones."""
    answers = Answers[str](3)
    answers.put(b"good", "yes", 0.0, positive=True)
    for number in range(10):
        answers.put(bytes([number]), "no", 0.0, positive=False)
    assert len(answers) == 4
    assert answers.fresh(b"good", 1.0) == "yes"
    assert [answers.fresh(bytes([number]), 1.0) for number in (6, 7, 9)] == [None, "no", "no"]
    answers.put(b"good", "no", 1.0, positive=False)
    assert answers.old(b"good", 1.0) is None
    assert answers.fresh(b"good", 1.0) == "no"


def test_the_bucket() -> None:
    """Never more than it holds."""
    pace = Pace(per_second=2.0, at_once=3.0)
    assert [pace.take(0.0) for _ in range(4)] == [True, True, True, False]
    assert [pace.take(0.5) for _ in range(2)] == [True, False]
    assert [pace.take(100.0) for _ in range(4)] == [True, True, True, False]


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"kind": "Status", "status": "Success"},
        {"kind": "SubjectAccessReview"},
        {"kind": "TokenReview", "status": {"authenticated": True}},
        {"kind": "TokenReview", "status": {"authenticated": True, "user": {"username": ""}}},
    ],
)
def test_an_answer_that_is_none(answer: dict[str, object]) -> None:
    """It proves nothing: neither that somebody may, nor that nobody may."""
    with pytest.raises(KubeUnavailable):
        user_of(answer)
    with pytest.raises(KubeUnavailable):
        allowed_in(answer)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"allowed": True}, True),
        ({"allowed": "true"}, False),
        ({"allowed": False, "evaluationError": "no such role"}, False),
        ({"allowed": True, "denied": True}, False),
        ({}, False),
    ],
)
def test_only_a_clear_yes_counts(status: dict[str, object], expected: bool) -> None:
    """Whatever else is said."""
    assert allowed_in({"kind": "SubjectAccessReview", "status": status}) is expected


def test_extra_fields_of_a_user_go_along() -> None:
    """An authorizer may look at them (scopes, the pod of a service account)."""
    raw = {"username": "jane", "groups": ["a"], "extra": {"scopes": ["x"]}, "more": 1}
    answer = {"kind": "TokenReview", "status": {"authenticated": True, "user": raw}}
    user = user_of(answer)
    assert user == User("jane", {"user": "jane", "groups": ["a"], "extra": {"scopes": ["x"]}})
    assert access_review(user, "/")["spec"]["extra"] == {"scopes": ["x"]}
