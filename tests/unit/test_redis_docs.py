"""docs/redis.md: what it lists is what there is."""

import re

import pytest

from fleet.settings.store_url import SCHEMES, parse_store_url
from fleet.store.faults import Fault
from tests.kustomize import ROOT

TEXT = (ROOT / "docs" / "redis.md").read_text()


def test_every_kind_of_error_is_explained() -> None:
    """Each in the table, and none that there is not."""
    rows = re.findall(r"^\| (`[a-z_]+`(?:, `[a-z_]+`)*) \|", TEXT, flags=re.MULTILINE)
    kinds = [kind for row in rows for kind in re.findall(r"`([a-z_]+)`", row)]
    assert sorted(kinds) == sorted(Fault)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_is_spelled(scheme: str) -> None:
    """One line each, and what it stands for can be read."""
    (line,) = re.findall(rf"^    ({re.escape(scheme)}://\S+)", TEXT, flags=re.MULTILINE)
    spelled = line
    while (opened := re.sub(r"\[([^\[\]]*?)(\.\.\.)?\]", r"\1", spelled)) != spelled:
        spelled = opened
    if spelled.endswith("..."):  # "the same by TLS"
        return
    spelled = spelled.replace("password@", "secret@").replace("/db", "/3").replace("db=n", "db=3")
    url = parse_store_url(spelled)
    assert url.db == 3
    assert url.password in ("secret", None)


def test_settings_that_are_named_exist() -> None:
    """`redis.x` and `election.x`."""
    reference = (ROOT / "deploy" / "settings.yaml").read_text()
    names = set(re.findall(r"`(?:redis|election)\.(\w+)", TEXT))
    assert names >= {"min_acks", "request_timeout_seconds", "kind"}
    for name in names:
        assert re.search(rf"^  {name}: ", reference, flags=re.MULTILINE), name
