"""What a process says of itself: log lines for people or for collectors, and its loop's lag.

A log call is a short event with keys, `log.info("owner dead", extra={"worker": id})`. The console
shows `key=value` at the end of the line; JSON has the keys as members. A `FleetError` is an
expected fault: it is told in one line, without a traceback.

Events are fixed texts: what varies is in the keys, and docs/logs.md lists both. No line has a
token, a password or what a request says; should one get into an error's text all the same, by way
of a library perhaps, it is struck out: passwords in URLs, bearer tokens, what `never_log` was told.
"""

import json
import logging
import re
import sys
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TextIO

from fleet.clock import Clock
from fleet.errors import FleetError
from fleet.settings.model import LogSettings

_MAX_VALUE = 2000
"""Characters of one value: a peer's text must not fill the log."""

_MAX_EVENTS = 1024
"""Different repeated events that are counted at once."""

_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_COLOURS = {
    "DEBUG": "\x1b[2m",
    "WARNING": "\x1b[33m",
    "ERROR": "\x1b[31m",
    "CRITICAL": "\x1b[1;31m",
}
_RESET = "\x1b[0m"

_SECRETS = re.compile(r"(?<=://)[^/\s@\"']*:[^/\s\"']*(?=@)|(?<=[Bb]earer )[\w.~+/=-]+")
"""User and password of a URL, and bearer tokens, wherever they stand."""

_STRUCK_OUT = "***"
_LEAST_SECRET = 6
"""Characters: a shorter word would be struck out of half the lines."""

_never: set[str] = set()


def never_log(*secrets: str) -> None:
    """Strike these out of every line from now on, should they get into one."""
    _never.update(secret for secret in secrets if len(secret) >= _LEAST_SECRET)


def _clean(line: str) -> str:
    for secret in _never:
        if secret in line:
            line = line.replace(secret, _STRUCK_OUT)
    # Lines that cannot have one are told from the others without the search: 0.1 us, not 3.
    if "@" in line or "earer " in line:
        line = _SECRETS.sub(_STRUCK_OUT, line)
    return line


def _extra(record: logging.LogRecord) -> dict[str, object]:
    return {key: value for key, value in vars(record).items() if key not in _PLAIN}


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"


def _bounded(text: str) -> str:
    return text if len(text) <= _MAX_VALUE else f"{text[:_MAX_VALUE]}..."


def _expected(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(_expected(inner) for inner in error.exceptions)
    return isinstance(error, FleetError)


def _one_line(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(_one_line(inner) for inner in error.exceptions)
    return f"{type(error).__name__}: {error}"


def _error_of(record: logging.LogRecord) -> BaseException | None:
    return record.exc_info[1] if record.exc_info else None


def _console_value(value: object) -> str:
    text = _bounded(str(value))
    if text and text.isprintable() and not any(mark in text for mark in ' ="'):
        return text
    return _quoted(text)


def _quoted(text: str) -> str:
    """In quotes; nothing in it that a terminal would obey."""
    return json.dumps(text, ensure_ascii=not text.isprintable()).replace("\x7f", "\\u007f")


class ConsoleFormatter(logging.Formatter):
    """One aligned line per event: time, level, process, event, keys, and which module said it."""

    def __init__(self, process: str, *, colour: bool) -> None:
        super().__init__()
        self._process = process
        self._colour = colour

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter.format`."""
        level = f"{record.levelname:<7}"
        if self._colour and record.levelname in _COLOURS:
            level = f"{_COLOURS[record.levelname]}{level}{_RESET}"
        event = _bounded(record.getMessage())
        if not event.isprintable():  # a library's: ours are fixed
            event = _quoted(event)[1:-1]
        keys = _extra(record)
        error = _error_of(record)
        if error is not None:
            keys["error"] = _one_line(error)
        keys["logger"] = record.name
        pairs = "  ".join(f"{key}={_console_value(value)}" for key, value in keys.items())
        line = f"{_time(record)}  {level}  {self._process:<12}  {event:<28}  {pairs}"
        if error is not None and record.exc_info and not _expected(error):
            line += "\n" + self.formatException(record.exc_info)
        return _clean(line)


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, process, logger, event, the keys, error, traceback."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter.format`. A key that is ours already gets a `_` behind it."""
        members: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "process": self._process,
            "logger": record.name,
            "event": _bounded(record.getMessage()),
        }
        for key, value in _extra(record).items():
            members[f"{key}_" if key in members else key] = _json_value(value)
        error = _error_of(record)
        if error is not None:
            members["error"] = _bounded(_one_line(error))
            if record.exc_info and not _expected(error):
                members["traceback"] = self.formatException(record.exc_info)
        return _clean(json.dumps(members, ensure_ascii=False))


def _json_value(value: object) -> object:
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if abs(value) < float("inf") else str(value)
    return _bounded(str(value))


def where_it_broke(error: BaseException) -> str:
    """The places of a traceback in one line: neither the error's text nor locals, which may quote a
    request."""
    stack = traceback.extract_tb(error.__traceback__)
    return " > ".join(f"{at.filename}:{at.lineno} {at.name}" for at in stack)


def setup_logging(settings: LogSettings, process: str, *, stream: TextIO | None = None) -> None:
    """Send all log records of this process to `stream` (standard error); replaces what was set up.

    Args:
        process: the id shown on every line.
        stream: colour is used only if it is a terminal.
    """
    out = sys.stderr if stream is None else stream
    handler = logging.StreamHandler(out)
    if settings.format == "json":
        handler.setFormatter(JsonFormatter(process))
    else:
        handler.setFormatter(ConsoleFormatter(process, colour=out.isatty()))
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(settings.level.upper())
    logging.captureWarnings(True)


class RateLimited:
    """A logger for events that a fault repeats: one line per event and key within `seconds`.

    What was left out is counted, and the next line of that event says how many (`repeats`).
    """

    def __init__(self, logger: logging.Logger, clock: Clock, *, seconds: float = 10.0) -> None:
        self._logger = logger
        self._clock = clock
        self._seconds = seconds
        self._seen: dict[tuple[int, str, str], tuple[float, int]] = {}

    def log(
        self,
        level: int,
        event: str,
        *,
        key: str = "",
        extra: Mapping[str, object] | None = None,
        error: BaseException | None = None,
    ) -> None:
        """Log `event`, unless it was logged less than `seconds` ago with the same level and key.

        Args:
            key: tells apart what must not be counted together (a worker's id).
        """
        name = (level, event, key)
        now = self._clock.monotonic()
        logged, repeats = self._seen.pop(name, (None, 0))
        if logged is not None and now - logged < self._seconds:
            self._seen[name] = (logged, repeats + 1)
            return
        if len(self._seen) >= _MAX_EVENTS:
            del self._seen[next(iter(self._seen))]
        self._seen[name] = (now, 0)
        keys = dict(extra or {})
        if repeats:
            keys["repeats"] = repeats
        self._logger.log(level, event, extra=keys, exc_info=error)

    def warning(
        self,
        event: str,
        *,
        key: str = "",
        extra: Mapping[str, object] | None = None,
        error: BaseException | None = None,
    ) -> None:
        """`log` at WARNING."""
        self.log(logging.WARNING, event, key=key, extra=extra, error=error)


class LoopLag:
    """How late an event loop runs a timer that should fire every `interval_seconds`.

    The loop calls `tick()`; anyone, another thread too, reads `value`. It keeps growing while the
    loop stands still, so a hang shows before it ends.
    """

    def __init__(self, clock: Clock, *, interval_seconds: float) -> None:
        self._clock = clock
        self._interval = interval_seconds
        self._last: float | None = None
        self._late = 0.0

    def tick(self) -> None:
        """The timer fired."""
        now = self._clock.monotonic()
        if self._last is not None:
            self._late = max(0.0, now - self._last - self._interval)
        self._last = now

    @property
    def value(self) -> float:
        """Seconds: how late the last tick was, or how overdue the next one is, if that is more."""
        if self._last is None:
            return 0.0
        return max(self._late, self._clock.monotonic() - self._last - self._interval)
