"""Label selectors as Kubernetes writes them, equality-based and set-based: strict and pure.

    app=llama, tier!=batch, env in (prod, canary), zone notin (a), gpu, !legacy

Requirements are joined by commas and must all hold. As on an API server, `!=` and `notin` also
hold for an object without the label. An empty selector is refused: to claim everything must be
said in so many words.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_SET = re.compile(r"(\S+)\s+(in|notin)\s*\((.*)\)", re.DOTALL)
_EQUAL = re.compile(r"([^=!]*?)\s*(==|=|!=)\s*(.*)", re.DOTALL)
_MAX_PREFIX = 253


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition on one label.

    Attributes:
        values: the values meant; None = any value, so presence alone counts.
        negated: holds for whatever has none of the values (or not the label).
    """

    key: str
    values: frozenset[str] | None
    negated: bool

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with these labels meets it."""
        value = labels.get(self.key)
        found = value is not None and (self.values is None or value in self.values)
        return found is not self.negated


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """All requirements must hold."""

    requirements: tuple[Requirement, ...]

    @classmethod
    def parse(cls, text: str) -> "LabelSelector":
        """Read a selector.

        Raises:
            ValueError: quotes the part that is wrong and says how to write it.
        """
        parts = _split(text)
        if not any(parts):
            raise ValueError("is empty; write for instance team=search,env in (prod,canary)")
        return cls(tuple(_requirement(part) for part in parts))

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with these labels is selected."""
        return all(requirement.holds(labels) for requirement in self.requirements)


def _split(text: str) -> list[str]:
    """The requirements: split at commas outside of parentheses."""
    parts, depth, start = [], 0, 0
    for index, char in enumerate(text):
        if char == "(":
            depth += 1
        elif char == ")":
            depth -= 1
        if depth not in (0, 1):
            raise ValueError(f"{text[start:][:80]!r}: parentheses do not match; write a in (b,c)")
        if char == "," and depth == 0:
            parts.append(text[start:index].strip())
            start = index + 1
    if depth:
        raise ValueError(f"{text[start:][:80]!r}: a ')' is missing; write a in (b,c)")
    return [*parts, text[start:].strip()]


def _requirement(part: str) -> Requirement:
    if not part:
        raise ValueError("has an empty requirement; remove the comma too many")
    listed = _SET.fullmatch(part)
    if listed is not None:
        values = [value.strip() for value in listed[3].split(",")]
        if values == [""]:
            raise ValueError(f"{part[:80]!r}: no value in the parentheses; name at least one")
        return Requirement(
            _key(listed[1], part),
            frozenset(_value(value, part) for value in values),
            negated=listed[2] == "notin",
        )
    equal = _EQUAL.fullmatch(part)
    if equal is not None:
        value = _value(equal[3], part)
        return Requirement(_key(equal[1], part), frozenset((value,)), negated=equal[2] == "!=")
    if part.startswith("!"):
        return Requirement(_key(part[1:].strip(), part), None, negated=True)
    return Requirement(_key(part, part), None, negated=False)


def _key(key: str, part: str) -> str:
    prefix, slash, name = key.rpartition("/")
    good = _NAME.fullmatch(name) is not None
    if slash:
        good = good and len(prefix) <= _MAX_PREFIX and _PREFIX.fullmatch(prefix) is not None
    if not good:
        raise ValueError(
            f"{part[:80]!r}: {key[:80]!r} is no label key; write [prefix/]name, the name of at "
            "most 63 letters, digits, '-', '_' and '.'; forms: a=b, a!=b, a in (b,c), "
            "a notin (b,c), a, !a"
        )
    return key


def _value(value: str, part: str) -> str:
    if _VALUE.fullmatch(value) is None:
        raise ValueError(
            f"{part[:80]!r}: {value[:80]!r} is no label value; use at most 63 letters, digits, "
            "'-', '_' and '.', beginning and ending with a letter or digit"
        )
    return value
