"""docs/migration.md: what it names exists; `tests/e2e/kube/test_migration.py` follows its steps."""

import re
import shlex

import pytest
import yaml

from coordinator.ownership import RefusalReason
from fleet.cli.main import make_parser
from fleet.kube.names import CONTROLLER_NAME
from fleet.model.pools import ALSO_SERVE
from fleet.picking.choice import PROFILE
from fleet.settings.fields import all_fields
from fleet.sources.identify import identify
from fleet.sources.parse import parse
from tests.kustomize import ROOT

TEXT = (ROOT / "docs" / "migration.md").read_text()
COMMANDS = [
    line
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
    if not language
]


def test_both_ways_are_the_same_switch() -> None:
    """Also-serve, switch, let go: each way has them in that order."""
    for part, new in (("To the fleet", "llama-8b-fleet"), ("Back", "llama-8b-epp")):
        section = TEXT.partition(f"\n## {part}\n")[2].partition("\n## ")[0]
        marks = [f"{ALSO_SERVE}=llama-8b-fleet", f'"name":"{new}"', f"{ALSO_SERVE}-\n"]
        places = [section.index(mark) for mark in marks]
        assert places == sorted(places)


@pytest.mark.parametrize("command", [line for line in COMMANDS if line.startswith("epp-fleet ")])
def test_our_commands_are_understood(command: str) -> None:
    """By the program's own parser, which ends the process if not."""
    make_parser().parse_args(shlex.split(command)[1:])


def test_names_are_real() -> None:
    """Annotations, the event's reason, settings, files."""
    named = set(re.findall(r"epp-fleet\.dev/[a-z-]*[a-z]", TEXT))
    assert named == {ALSO_SERVE, PROFILE, CONTROLLER_NAME}
    assert set(re.findall(r"`(Service[A-Z]\w+)`", TEXT)) == {RefusalReason.SELECTOR.value}
    assert set(re.findall(r"`(ownership\.\w+)`", TEXT)) <= set(all_fields())
    for path in re.findall(r"`((?:docs|tests)/[\w./-]+)`", TEXT):
        assert (ROOT / path).exists(), path


def test_the_example_is_a_pool_of_an_old_picker() -> None:
    """The pool names the Service, which has a selector."""
    (block,) = re.findall(r"^```yaml\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    service, raw = yaml.safe_load_all(block)
    identity = identify(raw)
    assert identity is not None
    pool = parse(identity, raw)
    head = service["metadata"]
    port = service["spec"]["ports"][0]["port"]
    assert service["spec"]["selector"]
    assert [str(group) for group in getattr(pool, "groups", ())] == [
        f"{head['namespace']}/{head['name']}:{port}"
    ]
