"""What a single value may be: stated beside the field, as `Annotated[...]` metadata.

A limit answers one question, `problem(value)`: None, or what is wrong and what to do. Values that
may hold a password are shown masked (`shown`).
"""

import re
from dataclasses import dataclass
from typing import Annotated, Protocol

from fleet.settings.peers import split_peers
from fleet.settings.store_url import read_store_url

_DNS_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_SHOWN = 100
_HOST = r"(?:\[[^\]/]*\]|[^:/\[\]]*)(?::[0-9]{0,6})?"
_PLACE = re.compile(rf"{_HOST}(?:,{_HOST})*(?:/.*)?", re.DOTALL)
"""Hosts whose ports are numbers, and a path."""


def masked_url(url: str) -> str:
    """`url` without whatever may be a password; hidden wholly where its parts cannot be told."""
    scheme, separator, rest = url.partition("://")
    if not separator or ("@" in rest and "?" in rest):
        return f"{scheme}://***" if separator else "***"
    rest, question, _ = rest.partition("?")
    if "@" in rest:
        rest = "***@" + rest.rpartition("@")[2]
    elif not _PLACE.fullmatch(rest):
        return f"{scheme}://***"  # `user:password` whose host was forgotten, say
    return f"{scheme}://{rest}{'?***' if question else ''}"


def is_dns_label(text: str) -> bool:
    """Whether `text` is an RFC 1123 label: 1..63 of a-z, 0-9 and inner `-`."""
    return _DNS_LABEL.fullmatch(text) is not None


class Limit(Protocol):
    """What a field's value must keep to."""

    def problem(self, value: object) -> str | None:
        """What is wrong with `value` and what to do, or None."""
        ...

    def text(self) -> str:
        """The limit for the reference of all settings; empty if there is nothing to say."""
        ...


@dataclass(frozen=True, slots=True)
class Range:
    """A number from `low` to `high`; `above` means that `low` itself is too low."""

    low: float
    high: float
    above: bool = False

    def problem(self, value: object) -> str | None:
        """See `Limit.problem`."""
        if not isinstance(value, int | float):
            return None
        too_low = value <= self.low if self.above else value < self.low
        if not too_low and value <= self.high:
            return None
        return f"must be {self.text()}"

    def text(self) -> str:
        """See `Limit.text`."""
        if self.above:
            return f"above {self.low:,g}, at most {self.high:,.10g}"
        return f"{self.low:,.10g} to {self.high:,.10g}"


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few words."""

    words: tuple[str, ...]

    def problem(self, value: object) -> str | None:
        """See `Limit.problem`."""
        return None if value in self.words else f"must be {self.text()}"

    def text(self) -> str:
        """See `Limit.text`."""
        *others, last = self.words
        return f"{', '.join(others)} or {last}" if others else last


@dataclass(frozen=True, slots=True)
class DnsLabel:
    """A name that may stand in keys, labels and host names."""

    def problem(self, value: object) -> str | None:
        """See `Limit.problem`."""
        return None if is_dns_label(str(value)) else f"must be {self.text()}"

    def text(self) -> str:
        """See `Limit.text`."""
        return "a DNS label: 1 to 63 of a-z, 0-9 and inner '-'"


@dataclass(frozen=True, slots=True)
class NotEmpty:
    """Any text but none."""

    def problem(self, value: object) -> str | None:
        """See `Limit.problem`."""
        return None if str(value).strip() else "must not be empty"

    def text(self) -> str:
        """See `Limit.text`."""
        return ""


@dataclass(frozen=True, slots=True)
class PeerList:
    """Where peers are looked for."""

    def problem(self, value: object) -> str | None:
        """See `Limit.problem`."""
        try:
            tuple(split_peers(str(value)))
        except ValueError as error:
            return str(error)
        return None

    def text(self) -> str:
        """See `Limit.text`."""
        return ""


@dataclass(frozen=True, slots=True)
class StoreUrl:
    """Where Redis or Valkey listens; may carry a password, which is never shown."""

    def problem(self, value: object) -> str | None:
        """See `Limit.problem`."""
        try:
            read_store_url(str(value))
        except ValueError as error:
            return str(error)
        return None

    def text(self) -> str:
        """See `Limit.text`."""
        return ""


def shown(value: object, limit: Limit | None = None) -> str:
    """`value` for a message: text quoted, passwords masked, about 100 characters at most."""
    if isinstance(limit, StoreUrl):
        value = masked_url(str(value))
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


Port = Annotated[int, Range(1, 65535)]
Host = Annotated[str, NotEmpty()]
