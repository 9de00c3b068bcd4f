"""What an API server's answer means: raw JSON, or the right `KubeError`.

Pure. An answer that proves nothing (5xx, 408, no JSON where JSON was promised) is KubeUnavailable;
a 4xx is the server's own word and carries its own message.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final, cast

import msgspec

from fleet.errors import (
    KubeConflict,
    KubeError,
    KubeForbidden,
    KubeGone,
    KubeNotFound,
    KubeRefused,
    KubeThrottled,
    KubeUnavailable,
)
from fleet.kube.contract import Raw
from fleet.kube.targets import Target

MAX_MESSAGE: Final = 1000
"""Characters of the server's own message that are repeated."""

DEFAULT_RETRY_SECONDS: Final = 1.0
MAX_RETRY_SECONDS: Final = 300.0
"""A longer Retry-After (or one in a broken clock's future) is cut to this."""

_RBAC: Final = re.compile(r'User "[^"]*" cannot ')
"""How the API server's authorizer speaks; quota and admission, also 403, speak otherwise."""

_KINDS: Final[Mapping[int, type[KubeRefused]]] = {
    403: KubeForbidden,
    404: KubeNotFound,
    409: KubeConflict,
    410: KubeGone,
}


def decode(body: bytes | bytearray, target: Target) -> Raw:
    """One JSON object.

    Raises:
        KubeUnavailable: it is none; something other than an API server may have answered.
    """
    try:
        value = msgspec.json.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise KubeUnavailable(f"{target}: the answer is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise KubeUnavailable(f"{target}: the answer is no JSON object")
    return cast("Raw", value)


def answer_of(body: bytes | bytearray, target: Target) -> Raw:
    """The body of a 2xx answer.

    Raises:
        KubeError: a Status that tells of a failure, whatever the HTTP status said.
        KubeUnavailable: no JSON object.
    """
    raw = decode(body, target)
    if raw.get("kind") == "Status" and raw.get("status") == "Failure":
        raise _status_error(raw, target)
    return raw


def refusal_of(
    target: Target, status: int, headers: Mapping[str, str], body: bytes, now: datetime
) -> KubeError:
    """What an answer outside 2xx means.

    Args:
        now: for a Retry-After that is a date, where the server sends no Date of its own.
    """
    raw = _status_object(body) or {}
    return _refusal(target, status, raw, _text(raw, body), _retry_after(headers, raw, now))


def event_of(line: bytes | bytearray, target: Target) -> Raw:
    """One line of a watch.

    Raises:
        KubeError: a bare Status instead of an event means what its code means.
        KubeUnavailable: the line is no event.
    """
    event = decode(line, target)
    if isinstance(event.get("type"), str) and isinstance(event.get("object"), dict):
        return event
    if event.get("kind") == "Status":
        raise _status_error(event, target)
    raise KubeUnavailable(f"{target}: a line of the watch is no event")


def _status_error(raw: Raw, target: Target) -> KubeError:
    code = raw.get("code")
    code = code if isinstance(code, int) else 500
    return _refusal(target, code, raw, _text(raw, b""), _from_details(raw))


def _refusal(
    target: Target, status: int, raw: Mapping[str, Any], text: str, retry_seconds: float
) -> KubeError:
    message = f"{target}: HTTP {status}: {text}" if text else f"{target}: HTTP {status}"
    reason = raw.get("reason")
    reason = reason if isinstance(reason, str) else ""
    if status == 401:
        message = f"{message}; the credentials were refused"
        return KubeForbidden(message, status=status, reason=reason)
    if status == 403 and (_RBAC.search(text) or not text):
        message = f"{message}; RBAC lacks {target.rule()}"
    if status == 429:
        return KubeThrottled(message, retry_after_seconds=retry_seconds)
    if 400 <= status < 500 and status != 408:
        return _KINDS.get(status, KubeRefused)(message, status=status, reason=reason)
    return KubeUnavailable(message)


def _status_object(body: bytes) -> Raw | None:
    try:
        value = msgspec.json.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _text(raw: Mapping[str, Any], body: bytes) -> str:
    message = raw.get("message")
    if not isinstance(message, str):
        message = body[:MAX_MESSAGE].decode("utf-8", "replace")
    return " ".join(message.split())[:MAX_MESSAGE]


def _retry_after(headers: Mapping[str, str], raw: Mapping[str, Any], now: datetime) -> float:
    """Seconds from the header (a number or an HTTP date), else from the Status object."""
    text = headers.get("Retry-After", "").strip()
    if text.isascii() and text.isdigit():
        return min(float(text[:10]), MAX_RETRY_SECONDS)
    until = _date(text)
    if until is not None:
        # Against the server's own Date: our clocks may differ.
        since = _date(headers.get("Date", "")) or now
        return min(max((until - since).total_seconds(), 0.0), MAX_RETRY_SECONDS)
    return _from_details(raw)


def _date(text: str) -> datetime | None:
    try:
        parsed = parsedate_to_datetime(text)
    except (TypeError, ValueError, IndexError):
        return None
    return parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC)


def _from_details(raw: Mapping[str, Any]) -> float:
    details = raw.get("details")
    seconds = details.get("retryAfterSeconds") if isinstance(details, dict) else None
    if isinstance(seconds, int) and not isinstance(seconds, bool) and seconds >= 0:
        return min(float(seconds), MAX_RETRY_SECONDS)
    return DEFAULT_RETRY_SECONDS
