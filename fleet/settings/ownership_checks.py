"""Rules about which pools a fleet claims: what would claim more, or less, than was meant is wrong.

Pure; `fleet.settings.checks` calls it.
"""

import re
from collections.abc import Iterator

from fleet.model.labels import LabelSelector
from fleet.settings.limits import is_dns_label
from fleet.settings.model import OwnershipSettings

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_CONTROLLER = re.compile(rf"{_SUBDOMAIN.pattern}/[A-Za-z0-9/\-._~%!$&'()*+,;=:]+")
_MAX_NAME = 253

FIELDS = {"namespaces": "namespaces", "selector": "selector", "list": "pools"}
"""Which field says what a claim covers."""

Problem = tuple[str, str]
"""Path of a field, and what is wrong with it."""


def ownership_problems(ownership: OwnershipSettings) -> Iterator[Problem]:
    """Every fault of the section."""
    name = ownership.controller_name
    if len(name) > _MAX_NAME or not _CONTROLLER.fullmatch(name):
        yield (
            "ownership.controller_name",
            f"{name[:80]!r} is no domain/path; write for instance epp-fleet.dev/default",
        )
    for claim, field in FIELDS.items():
        path, value = f"ownership.{field}", getattr(ownership, field).strip()
        if claim != ownership.claim and value:
            yield (
                path,
                f"is set, but ownership.claim is {ownership.claim}; set ownership.claim: {claim}, "
                "or remove it",
            )
        elif claim == ownership.claim and not value:
            yield path, f"is empty, but ownership.claim is {claim}; say what it covers"
    yield from _items_problems(ownership)


def _items_problems(ownership: OwnershipSettings) -> Iterator[Problem]:
    for item in _items(ownership.namespaces):
        if not is_dns_label(item):
            yield "ownership.namespaces", f"{item[:80]!r} is no namespace; write team-a,team-b"
    for item in _items(ownership.pools):
        namespace, slash, name = item.partition("/")
        good = len(name) <= _MAX_NAME and _SUBDOMAIN.fullmatch(name) is not None
        if not (slash and is_dns_label(namespace) and good):
            yield (
                "ownership.pools",
                f"{item[:80]!r} is no namespace/name; write team-a/llama,team-b/qwen",
            )
    if ownership.selector.strip():
        try:
            LabelSelector.parse(ownership.selector)
        except ValueError as error:
            yield "ownership.selector", str(error)


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]
