"""docs/kubernetes.md: every command in it can be given, every name in it exists."""

import re
import shlex
from itertools import pairwise

import pytest
import yaml

from coordinator.ownership import RefusalReason
from fleet.cli.main import main
from fleet.kube.names import CONTROLLER_NAME, FLEET_LABEL
from fleet.model.pins import PIN
from fleet.model.pools import ALSO_SERVE, RESPONSE_PHASE
from fleet.picking.choice import PROFILE
from fleet.settings.fields import all_fields
from fleet.sources.contract import Kind
from fleet.sources.identify import identify
from fleet.sources.parse import parse
from tests.go_tools import NoTool
from tests.helm import CHART, RELEASE, helm
from tests.kustomize import DEPLOY, ROOT, NoKustomize, overlay, rendered

TEXT = (ROOT / "docs" / "kubernetes.md").read_text()
BLOCKS = re.findall(r"^( *)```(\w*)\n(.*?)^ *```$", TEXT, re.MULTILINE | re.DOTALL)
COMMANDS = [
    line.strip()
    for _, language, block in BLOCKS
    if not language
    for line in block.splitlines()
    if line.strip()
]


def words(command: str) -> list[str]:
    """The words of the first command of a pipe, without `NAME=value` before it."""
    found = shlex.split(command.partition(" | ")[0])
    while re.fullmatch(r"[A-Z_]+=\S*", found[0]):
        del found[0]
    return found


def test_there_is_something_to_check() -> None:
    """Install, look, drain, upgrade, roll back."""
    programs = {words(command)[0] for command in COMMANDS}
    assert programs == {"docker", "kubectl", "helm", "epp-fleet"}


@pytest.mark.parametrize(
    "folder",
    sorted({*re.findall(r"-k (\S+)", TEXT), *re.findall(r"kubectl kustomize (\S+)", TEXT)}),
)
def test_folders_can_be_applied(folder: str) -> None:
    """Each `-k FOLDER` renders to something."""
    folder = folder.rstrip("`.")
    try:
        if "components" in folder:
            # kubectl builds a component like any kustomization.
            assert rendered(ROOT / folder)
        else:
            assert overlay(folder.removeprefix("deploy/overlays/"))
    except NoKustomize as missing:
        pytest.skip(str(missing))


@pytest.mark.parametrize("command", [each for each in COMMANDS if words(each)[0] == "helm"])
def test_helms_flags_are_taken(command: str) -> None:
    """Of this chart: what is installed or upgraded renders with the values of the command."""
    found = words(command)[1:]
    if found[0] in ("install", "upgrade"):
        assert found[1:3] == [RELEASE, str(CHART.relative_to(ROOT))]
        values = [word for flag, word in pairwise(found) if flag == "--set"]
        assert values
        found = ["template", RELEASE, str(CHART), "--set", ",".join(values)]
    elif found[0] == "show":
        found[-1] = str(ROOT / found[-1])
    else:
        assert found == [found[0], RELEASE, "-n", "epp-fleet"]
        assert found[0] in ("rollback", "uninstall")
        return
    try:
        assert helm(*found)
    except NoTool as missing:
        pytest.skip(str(missing))


def test_values_of_the_table_exist() -> None:
    """Each value that stands beside an overlay or a component is one of the chart's."""
    table = TEXT.partition("| what | kustomize | Helm: value |")[2].partition("\n\n")[0]
    chart = yaml.safe_load((CHART / "values.yaml").read_text())
    cells = [row.split("|")[3] for row in table.splitlines()[2:]]
    named = [each for cell in cells for each in re.findall(r"`([a-zA-Z.]+)", cell)]
    assert len(named) >= len(cells)
    for path in named:
        below = chart
        for part in path.split("."):
            below = below[part]


def test_files_exist() -> None:
    """Each path that is named."""
    paths = set(re.findall(r"`(deploy/[^`\s]+)`", TEXT))
    assert len(paths) >= 12
    for path in sorted(paths):
        assert (ROOT / path).exists(), path


def test_objects_exist() -> None:
    """Each `deployment/NAME`, `service/NAME` and so on of a command is in the overlay."""
    try:
        objects = overlay("cluster-wide")
    except NoKustomize as missing:
        pytest.skip(str(missing))
    there = {(each["kind"].lower(), each["metadata"]["name"]) for each in objects}
    named = set(re.findall(r"\b(deployment|service)/([\w-]+)", "\n".join(COMMANDS)))
    assert len(named) == 3
    assert named <= there
    assert ("horizontalpodautoscaler", "epp-fleet-worker") in there
    assert ("namespace", "epp-fleet") in there


def test_the_secrets_are_those_that_pods_mount() -> None:
    """Names and keys of the one-liners."""
    made: dict[str, set[str]] = {}
    for command in COMMANDS:
        if "create secret generic" in command:
            name = words(command)[words(command).index("generic") + 1]
            made.setdefault(name, set())
            made[name] |= set(re.findall(r"--from-(?:literal|file)=([\w.-]+)=", command))
    assert made == {
        "epp-fleet-secrets": {"token", "redis-password"},
        "epp-fleet-redis": {"url", "ca.crt", "coordinator-password", "worker-password"},
    }


@pytest.mark.parametrize("command", [each for each in COMMANDS if words(each)[0] == "epp-fleet"])
def test_commands_of_ours_are_understood(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """They fail only because nobody answers: 3, or 2 for a token file that is not there."""
    found = words(command)
    url = "http://127.0.0.1:1"
    argv = [url if word.startswith("http://") else word for word in found[1:]]
    code = main(argv)
    said = capsys.readouterr().err
    assert code == 3 or (code == 2 and "token" in said.lower()), said


def test_settings_and_reasons_are_real() -> None:
    """Each `section.field`, label and event reason."""
    fields = {
        word
        for word in re.findall(r"`([a-z]+\.[a-z_]+)`", TEXT)
        if word.partition(".")[0] in {path.partition(".")[0] for path in all_fields()}
    }
    assert len(fields) >= 3
    assert fields <= set(all_fields())
    for name in (CONTROLLER_NAME, FLEET_LABEL, ALSO_SERVE):
        assert name in TEXT
    reasons = set(re.findall(r"`(Service[A-Z]\w+)`", TEXT))
    assert reasons
    assert reasons <= {reason.value for reason in RefusalReason}


def test_the_tenants_example_is_a_pool() -> None:
    """As the fleet reads it."""
    (example,) = [block for _, language, block in BLOCKS if language == "yaml"]
    raw = yaml.safe_load(example)
    identity = identify(raw)
    assert identity is not None
    assert identity.kind is Kind.POOL
    pool = parse(identity, raw)
    assert [str(group) for group in getattr(pool, "groups", ())] == ["acme/llama-8b-epp:9002"]


def test_the_documented_grace_and_replicas() -> None:
    """Figures in the text are those of the manifests."""
    assert "640 s" in TEXT
    assert "terminationGracePeriodSeconds: 640" in (DEPLOY / "base" / "worker.yaml").read_text()
    scaler = yaml.safe_load((DEPLOY / "base" / "autoscaler.yaml").read_text())["spec"]
    assert f"stays at {scaler['minReplicas']} workers" in TEXT
    targets = {m["pods"]["metric"]["name"]: m["pods"]["target"] for m in scaler["metrics"]}
    assert targets["epp_fleet_loop_busy_ratio"]["averageValue"] == "600m"
    assert targets["epp_fleet_streams_open"]["averageValue"] == "4000"
    assert "60 %" in TEXT
    assert "4,000 open streams" in TEXT


def test_annotations_are_those_that_are_read() -> None:
    """The table of a pool's annotations has each of them, and none that nobody reads."""
    rows = set(re.findall(r"^\| `([a-z-]+)` \| [^|]+ \| [^|]+ \|$", TEXT, re.MULTILINE))
    read = (ALSO_SERVE, CONTROLLER_NAME, PIN, PROFILE, RESPONSE_PHASE)
    assert {f"epp-fleet.dev/{name}" for name in rows} == set(read)
