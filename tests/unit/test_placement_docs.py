"""docs/placement.md: every name and default in it is the software's own."""

import re
import shlex

import pytest

from coordinator.ownership import RefusalReason
from coordinator.ownership.notices import QUARANTINED
from coordinator.planning.quarantine import MOST, REST_SECONDS
from fleet.cli.main import make_parser
from fleet.model import Reason
from fleet.model.pins import PIN, Pin
from fleet.settings.fields import all_fields
from fleet.settings.model import PlacementSettings, Settings
from tests.kustomize import ROOT

TEXT = (ROOT / "docs" / "placement.md").read_text()
COMMANDS = re.findall(r"^    (epp-fleet .*)$", TEXT, re.MULTILINE)


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_are_understood(command: str) -> None:
    """As they are written."""
    make_parser().parse_args(shlex.split(command)[1:])


def test_there_are_commands() -> None:
    """Plan twice, drain, undrain."""
    assert len(COMMANDS) == 4


def test_settings_exist_and_have_these_defaults() -> None:
    """`placement.x` (value) says the default."""
    known = set(all_fields())
    named = set(re.findall(r"`((?:placement|worker)\.[a-z_]+)[`:]", TEXT))
    assert named
    assert named <= known
    defaults = PlacementSettings()
    shown = re.findall(r"`placement\.([a-z_]+)`\s+\(([\d.]+)( %)?\)", TEXT)
    assert len(shown) >= 5
    for name, value, percent in shown:
        assert float(value) / (100 if percent else 1) == pytest.approx(getattr(defaults, name))
    assert Settings().placement == defaults


def test_names_are_those_of_the_software() -> None:
    """Annotation, event reasons, map reasons, and the two constants."""
    assert f"{PIN}=zone=eu-1a" in TEXT
    assert f"`{RefusalReason.PIN.value}`" in TEXT
    assert f"`{QUARANTINED}`" in TEXT
    for reason in set(Reason) - {Reason.KEPT}:
        assert f"`{reason.value}`" in TEXT
    assert f"for {REST_SECONDS:.0f} s" in TEXT
    assert (MOST, "more than three pools" in TEXT) == (3, True)
    Pin.parse("zone in (eu-1a,eu-1b),node!=gpu-7")
