"""What log lines look like, what is left out of them, and how lag is measured."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from fleet import telemetry
from fleet.errors import StoreUnavailable
from fleet.settings import LogSettings
from fleet.telemetry import LoopLag, RateLimited, never_log, setup_logging

log = logging.getLogger("fleet.test")


class _Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _root_logger() -> Iterator[None]:
    """Give the root logger back as it was."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level
    logging.captureWarnings(False)


def _console(**settings: str) -> io.StringIO:
    out = io.StringIO()
    setup_logging(LogSettings(**settings), "worker-0", stream=out)
    return out


def test_the_console_shows_keys_behind_the_event() -> None:
    """Time, level, process, event, then key=value; values with spaces are quoted."""
    out = _console()
    log.warning("owner dead", extra={"worker": "w-1", "why": "no answer", "count": 3, "zone": ""})
    line = out.getvalue()
    assert line.count("\n") == 1
    for part in ("WARNING", "worker-0", "owner dead", "worker=w-1", 'why="no answer"', "count=3"):
        assert part in line
    assert 'zone=""' in line
    assert "logger=fleet.test" in line
    assert "\x1b" not in line


def test_a_terminal_obeys_no_value() -> None:
    """Escapes of one byte and of two, what turns a line round, and another line: all are quoted."""
    out = _console()
    evil = "a\x1b[2J\x9b2J\x7f\u202eb\r\nERROR"
    log.warning("peer said", extra={"why": evil})
    log.warning(evil)  # as a library might
    lines = out.getvalue().removesuffix("\n").split("\n")
    assert len(lines) == 2
    assert all(line.isprintable() for line in lines)
    assert all(r"a\u001b[2J\u009b2J\u007f\u202eb\r\nERROR" in line for line in lines)


def test_colour_is_for_terminals_only() -> None:
    """A file or a collector gets no escape codes, a terminal does."""
    out = _Terminal()
    setup_logging(LogSettings(), "w", stream=out)
    log.error("bad")
    assert "\x1b[31mERROR" in out.getvalue()


def test_a_peers_text_cannot_forge_or_flood_lines() -> None:
    """Line breaks and escape codes are escaped, long values cut."""
    out = _console()
    log.info("refused", extra={"got": "x\nERROR \x1b[31m", "body": "y" * 100_000})
    log.info("two\nlines")
    assert out.getvalue().count("\n") == 2
    assert "\x1b" not in out.getvalue()
    assert len(out.getvalue()) < 3000


def test_json_has_the_keys_as_members() -> None:
    """One object per line; numbers stay numbers; a key of ours is not overwritten."""
    out = _console(format="json")
    log.info("owner dead", extra={"worker": "w-1", "lag": 0.5, "n": 2, "event": "x", "o": None})
    entry = json.loads(out.getvalue())
    assert entry.pop("time").endswith("Z")
    assert entry == {
        "level": "info",
        "process": "worker-0",
        "logger": "fleet.test",
        "event": "owner dead",
        "worker": "w-1",
        "lag": 0.5,
        "n": 2,
        "event_": "x",
        "o": None,
    }


@pytest.mark.parametrize("form", ["console", "json"])
def test_an_expected_fault_is_one_line_without_a_traceback(form: str) -> None:
    """FleetErrors, also in groups, are told shortly; anything else with its traceback."""
    out = _console(format=form)
    for error in (StoreUnavailable("no answer"), ExceptionGroup("g", [StoreUnavailable("gone")])):
        log.error("failed", exc_info=error)
    text = out.getvalue()
    assert text.count("\n") == 2
    assert "StoreUnavailable: no answer" in text
    assert "StoreUnavailable: gone" in text
    assert "Traceback" not in text
    try:
        raise ValueError("odd")
    except ValueError:
        log.exception("failed")
    assert "Traceback" in out.getvalue()
    assert "ValueError: odd" in out.getvalue()


def test_the_level_is_kept_and_a_second_setup_replaces_the_first() -> None:
    """Nothing below the level, and no line twice."""
    first, second = _console(), _console(level="error")
    log.warning("quiet")
    log.error("loud")
    assert first.getvalue() == ""
    assert second.getvalue().count("\n") == 1


def test_repeats_are_counted_and_told_once() -> None:
    """Within 10 s one line per event and key; the next one says how many were left out."""
    out, clock = _console(format="json"), _Clock()
    limited = RateLimited(log, clock, seconds=10)
    for _ in range(5):
        limited.warning("store away", extra={"worker": "a"})
        limited.warning("store away", key="b")
        clock.now += 1
    clock.now = 110.0
    limited.warning("store away")
    entries = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [entry.get("repeats") for entry in entries] == [None, None, 4]


def test_repeats_are_counted_for_a_bounded_number_of_events() -> None:
    """Keys that a peer invents do not make the table grow without end."""
    _console(level="error")
    limited = RateLimited(log, _Clock())
    for number in range(5000):
        limited.warning("odd", key=str(number))
    assert len(limited._seen) <= 1024


def test_lag_is_how_late_the_last_timer_ran_and_grows_during_a_hang() -> None:
    """Every 0.5 s: on time is 0; 0.2 s late is 0.2; while nothing ticks it is the overdue time."""
    clock = _Clock()
    lag = LoopLag(clock, interval_seconds=0.5)
    assert lag.value == 0.0
    lag.tick()
    clock.now += 0.5
    lag.tick()
    assert lag.value == 0.0
    clock.now += 0.7
    lag.tick()
    assert lag.value == pytest.approx(0.2)
    clock.now += 3.5
    assert lag.value == pytest.approx(3.0)


@pytest.mark.parametrize("form", ["console", "json"])
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("cannot reach redis://:s3cret@h:6379/0", "cannot reach redis://***@h:6379/0"),
        ("redis+sentinel://u:p@a:1,b:2/s", "redis+sentinel://***@a:1,b:2/s"),
        ("sent Authorization: Bearer abc.DEF-123= twice", "sent Authorization: Bearer *** twice"),
        ("token tok-en-of-this-fleet seen", "token *** seen"),
        ("mail a@b.c at http://h:1/x", "mail a@b.c at http://h:1/x"),
    ],
)
def test_secrets_are_struck_out(
    form: str, text: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Should one get into the text of an error; in the event, the keys and tracebacks."""
    monkeypatch.setattr(telemetry, "_never", set())
    never_log("tok-en-of-this-fleet", "short")
    out = _console(format=form)
    try:
        raise ValueError(text)
    except ValueError:
        log.exception("failed", extra={"said": text})
    told = out.getvalue()
    assert shown in told
    assert (text in told) is (text == shown)


def test_a_short_secret_is_not_struck_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be in half the lines."""
    monkeypatch.setattr(telemetry, "_never", set())
    never_log("", "epp")
    out = _console()
    log.warning("epp up")
    assert "epp up" in out.getvalue()
