"""A manifest's fields, read so that every error can name object, path, fault and remedy."""

import re
from collections.abc import Iterator, Mapping

from fleet.errors import ManifestError

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
MAX_LABEL = 63
MAX_SUBDOMAIN = 253
MAX_PORT = 65535
_SHOWN = 60


def is_dns_label(text: str) -> bool:
    """Whether `text` is an RFC 1123 label: what namespaces and Services are named by."""
    return len(text) <= MAX_LABEL and _LABEL.fullmatch(text) is not None


def is_dns_subdomain(text: str) -> bool:
    """Whether `text` is an RFC 1123 subdomain: what other objects are named by."""
    return len(text) <= MAX_SUBDOMAIN and _SUBDOMAIN.fullmatch(text) is not None


def is_label_value(text: str) -> bool:
    """Whether `text` may be the value of a Kubernetes label."""
    return len(text) <= MAX_LABEL and _LABEL_VALUE.fullmatch(text) is not None


def shown(value: object) -> str:
    """A value as errors quote it, cut to a line's length."""
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


class Field:
    """One value of a manifest together with where it stands.

    A missing field and an explicit null are the same, as on an API server.
    """

    __slots__ = ("path", "subject", "value")

    def __init__(self, subject: str, path: str, value: object) -> None:
        self.subject = subject
        self.path = path
        self.value = value

    def fault(self, what: str, remedy: str) -> ManifestError:
        """The error that says `what` is wrong here and how to repair it."""
        where = f"{self.subject}: {self.path}" if self.path else self.subject
        return ManifestError(f"{where}: {what}; {remedy}")

    @property
    def missing(self) -> bool:
        """Absent or null."""
        return self.value is None

    def required(self, remedy: str) -> "Field":
        """This, which must be there."""
        if self.missing:
            raise self.fault("missing", remedy)
        return self

    def get(self, key: str) -> "Field":
        """The field `key` of this mapping; missing if this is missing itself.

        Raises:
            ManifestError: this is no mapping.
        """
        path = f"{self.path}.{key}" if self.path else key
        return Field(self.subject, path, self.mapping().get(key))

    def mapping(self) -> Mapping[object, object]:
        """This as a mapping, empty if missing."""
        if self.value is None:
            return {}
        if not isinstance(self.value, Mapping):
            raise self.fault(f"{shown(self.value)} is no mapping", "give `key: value` lines")
        return self.value

    def items(self) -> Iterator["Field"]:
        """The elements of this list, none if missing."""
        if self.value is None:
            return
        if not isinstance(self.value, list):
            raise self.fault(f"{shown(self.value)} is no list", "give `- ` items")
        for index, value in enumerate(self.value):
            yield Field(self.subject, f"{self.path}[{index}]", value)

    def text(self, default: str | None = None) -> str:
        """This as a string.

        Args:
            default: what a missing field means; None = it must be there.
        """
        if self.value is None:
            if default is None:
                raise self.fault("missing", "it is required")
            return default
        if not isinstance(self.value, str):
            raise self.fault(f"{shown(self.value)} is no string", "put it in quotes")
        return self.value

    def choice(self, allowed: tuple[str, ...], default: str) -> str:
        """This as one of `allowed`."""
        value = self.text(default)
        if value not in allowed:
            raise self.fault(f"{shown(value)} is unknown", f"use {' or '.join(allowed)}")
        return value

    def port(self, default: int | None = None) -> int:
        """This as a port number, 1..65535."""
        if self.value is None:
            if default is None:
                raise self.fault("missing", f"give a port number from 1 to {MAX_PORT}")
            return default
        if isinstance(self.value, bool) or not isinstance(self.value, int):
            raise self.fault(f"{shown(self.value)} is no number", "give it without quotes")
        if not 1 <= self.value <= MAX_PORT:
            raise self.fault(f"{self.value} is no port", f"give a number from 1 to {MAX_PORT}")
        return self.value

    def integer(self, lowest: int, highest: int) -> int:
        """This as a whole number of a range; it must be there."""
        if isinstance(self.value, bool) or not isinstance(self.value, int):
            what = "missing" if self.missing else f"{shown(self.value)} is no whole number"
            raise self.fault(what, f"give one from {lowest} to {highest}, without quotes")
        if not lowest <= self.value <= highest:
            raise self.fault(
                f"{shown(self.value)} is out of range", f"give one from {lowest} to {highest}"
            )
        return self.value

    def texts(self) -> dict[str, str]:
        """This as a mapping of strings to strings, empty if missing."""
        result: dict[str, str] = {}
        for key, value in self.mapping().items():
            if not isinstance(key, str):
                raise self.fault(f"the key {shown(key)} is no string", "put it in quotes")
            if not isinstance(value, str):
                raise Field(self.subject, f"{self.path}[{key[:_SHOWN]}]", value).fault(
                    f"{shown(value)} is no string", "put it in quotes"
                )
            result[key] = value
        return result


def spec_of(top: Field) -> Field:
    """The `spec` of an object, which must have one."""
    return top.get("spec").required("it is required")
