"""Plugin types that other packages bring, as packages really do: installed, with entry points."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from epp_worker.scheduling.plugin import ENTRY_POINTS, Selection
from epp_worker.scheduling.registry import BUILT_IN, all_types
from fleet.picking import KINDS, Role
from fleet.picking.extensions import GROUP, load_extensions
from tests.picking import Bench, endpoint, request

MODULE = """
import msgspec
from epp_worker.scheduling.plugin import PluginType
from fleet.picking import Role


class Wish(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pod: str = "pod-0"


class Wisher:
    def __init__(self, parameters, context):
        self.pod = parameters.pod

    def score(self, request, candidates):
        return [float(each.endpoint.pod == self.pod) for each in candidates]


wisher = PluginType("wish-scorer", Wish, Wisher, frozenset({Role.SCORER}))
nameless = PluginType("", Wish, Wisher, frozenset({Role.SCORER}))
taken = PluginType("queue-scorer", Wish, Wisher, frozenset({Role.SCORER}))
roleless = PluginType("roleless", Wish, Wisher)
"""


@pytest.fixture
def package(tmp_path: Path) -> Iterator[Path]:
    """`epp_wishes` as pip leaves it in site-packages."""
    (tmp_path / "epp_wishes.py").write_text(MODULE)
    info = tmp_path / "epp_wishes-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: epp-wishes\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        f"[{GROUP}]\nwish = epp_wishes:wisher\nbroken = epp_wishes:nowhere\n"
        "nameless = epp_wishes:nameless\ntaken = epp_wishes:taken\nroleless = epp_wishes:roleless\n"
    )
    sys.path.insert(0, str(tmp_path))
    yield tmp_path
    sys.path.remove(str(tmp_path))
    sys.modules.pop("epp_wishes", None)


@pytest.mark.usefixtures("package")
def test_an_installed_plugin_is_found_configured_and_heard() -> None:
    extensions = load_extensions()
    assert extensions.kinds["wish-scorer"].roles == {Role.SCORER}
    scheduler = Bench().scheduler(
        "plugins: [{type: wish-scorer, parameters: {pod: pod-1}}]",
        all_types(extensions),
        kinds=extensions.kinds,
    )
    answer = scheduler.select(request(), [endpoint(0), endpoint(1), endpoint(2)])
    assert isinstance(answer, Selection)
    assert answer.endpoints[0].endpoint.pod == "pod-1"


@pytest.mark.usefixtures("package")
def test_what_cannot_be_used_is_said_and_replaces_nothing() -> None:
    extensions = load_extensions()
    begins = ("plugin broken ", "plugin nameless ", "plugin roleless ", "plugin taken ")
    assert len(extensions.problems) == len(begins)
    for problem, begin in zip(extensions.problems, begins, strict=True):
        assert problem.startswith(begin)
    assert extensions.kinds["queue-scorer"] is KINDS["queue-scorer"]
    assert all_types(extensions)["queue-scorer"] is BUILT_IN["queue-scorer"]


def test_one_name_of_the_group() -> None:
    """Said on both sides of the kernel."""
    assert ENTRY_POINTS == GROUP
