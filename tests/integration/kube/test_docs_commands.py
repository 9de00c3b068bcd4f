"""Every kubectl, helm and promtool command of README.md and docs/ is typed at a real API server.

A reader's ways: installed by kustomize, used by all the other documents, upgraded, rolled back,
removed; and the same with Helm. Each has a control plane of its own: what the documents make bears
fixed names, and some of it is of no namespace. Other programs: tests/e2e/test_docs_commands.py.
"""

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.control_plane.cluster import Cluster, running_cluster
from tests.control_plane.programs import Missing
from tests.docs_commands import ROOT, Command, commands, documents
from tests.go_tools import HELM, NoTool, find
from tests.kustomize import DEPLOY

pytestmark = pytest.mark.timeout(240)

PROGRAMS: Final = ("kubectl", "helm", "promtool")
LOOKED_UP: Final = {
    "exec": "a kubelet runs what it names",
    "port-forward": "a kubelet carries it",
    "drain": "a kubelet ends the pods, and no controller of disruption budgets runs",
    "apply --prune": "only named, for what it would do",
}
"""By verb, why it is not run here: kubectl must know its options, and the object must be there."""

ADDED: Final = {"rollout status": "--watch=false"}
"""Without a kubelet pods do not become ready: how far it is is asked, not waited for."""

COMPLETED: Final = {
    "helm install --take-ownership --force-conflicts": (
        " epp-fleet deploy/helm/epp-fleet -n epp-fleet --set image.repository=REGISTRY/epp-fleet"
    )
}
"""What commands in running text leave out."""

FILLED: Final = {
    "ACCOUNT": "default",
    "HOST": "redis.example",
    "PASSWORD": "a1b2",
    "REGISTRY": "registry.example",
    "USER": "fleet",
}
"""What stands for what; the pod LEADER is one that there is."""

WRITTEN_BEFORE: Final = ("chat.yaml", "llama-8b.yaml", "ca.crt")
"""Files that a reader has."""

TYPED_ELSEWHERE: Final = {"until kubectl": "tests/e2e/kube/test_migration.py"}
"""Beginnings of lines that are no plain commands."""

KUBERNETES: Final = "docs/kubernetes.md"
LAST: Final = ("Upgrade", "Rollback", "Remove it")
"""Its chapters for a fleet that has been used."""

WITH_HELM: Final = ("deploy/components/namespace", "epp-fleet-secrets --from", "rollout status")
"""Commands of kubectl that one types as well who has Helm."""

OLD_POOL: Final = re.compile(r"```yaml\n(.*?)^```$", re.DOTALL | re.MULTILINE)
"""What docs/migration.md begins with."""

WORKERS: Final = "deployment/epp-fleet-worker"
OLD_PICKER: Final = "deployment/llama-8b-epp"
IMAGE: Final = ".spec.template.spec.containers[0].image"
RUN_SECONDS: Final = 60.0

WRITTEN: Final = tuple(each for each in commands() if each.program in PROGRAMS)
TEXTS: Final = {str(path.relative_to(ROOT)): path.read_text() for path in documents()}


def chapter(command: Command) -> str:
    """The heading that it stands under."""
    lines = TEXTS[command.file].splitlines()[: command.line]
    headings = [line.removeprefix("## ") for line in lines if line.startswith("## ")]
    return headings[-1] if headings else ""


def of_kubernetes(*chapters: str) -> list[Command]:
    """The commands of these chapters, or of all before `LAST`."""
    return [
        each
        for each in WRITTEN
        if each.file == KUBERNETES
        and (chapter(each) in chapters if chapters else chapter(each) not in LAST)
    ]


def by_kustomize(written: list[Command]) -> list[Command]:
    return [each for each in written if each.program != "helm"]


def by_helm(written: list[Command]) -> list[Command]:
    return [
        each
        for each in written
        if each.program == "helm" or any(part in each.text for part in WITH_HELM)
    ]


OTHERS: Final = [each for each in WRITTEN if each.file != KUBERNETES]


def verb(command: Command) -> str:
    """Of `LOOKED_UP`, if it is one of them."""
    if command.program != "kubectl":
        return ""
    words = list(command.words[1:])
    while words[0] == "-n":
        del words[:2]
    return next((each for each in LOOKED_UP if words[: len(each.split())] == each.split()), "")


def whole(command: Command) -> str:
    """With the rest of its pipe, if it has a line for itself, and what it leaves out."""
    line = TEXTS[command.file].splitlines()[command.line - 1].strip().removeprefix("$ ")
    text = line if line.startswith(command.text) else command.text
    more = [option for part, option in ADDED.items() if part in text]
    return " ".join([text + COMPLETED.get(text, ""), *more])


class Reader:
    """Somebody with a copy of `deploy/`, the tools and the rights.

    Attributes:
        folder: where he types.
    """

    def __init__(self, folder: Path, kubeconfig: Path) -> None:
        self.folder = folder
        programs = folder / "bin"
        programs.mkdir()
        self._environment = {
            "HOME": str(folder),
            "KUBECONFIG": str(kubeconfig),
            "PATH": f"{programs}:{os.environ['PATH']}",
        }
        shutil.copytree(DEPLOY, folder / "deploy")
        for name in WRITTEN_BEFORE:
            (folder / name).write_text("kind: EndpointPickerConfig\n")

    def has(self, program: Path) -> None:
        """This program is one of his."""
        (self.folder / "bin" / program.name).symlink_to(program)

    def runs(self, line: str, text: str = "") -> str:
        """What a line on his shell says, given this text.

        Raises:
            AssertionError: it failed.
        """
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", line],
            cwd=self.folder,
            env=self._environment,
            input=text,
            capture_output=True,
            text=True,
            timeout=RUN_SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{line}: {done.stderr}{done.stdout}"
        return done.stdout

    def follows(self, written: list[Command]) -> None:
        """Type these, one after the other.

        Raises:
            AssertionError: one failed, or said nothing.
        """
        for command in written:
            where = f"{command.file}:{command.line}"
            try:
                if verb(command):
                    self._look_up(command)
                    continue
                self._prepare(command)
                line = self._filled(whole(command))
                said = self.runs(line)
            except AssertionError as error:
                raise AssertionError(f"{where}: {error}") from None
            assert said or ">" in line, f"{where}: {line}: it says nothing"

    def _filled(self, line: str) -> str:
        if "LEADER" in line:
            line = line.replace("LEADER", self.pod("coordinator"))
        found = re.sub(r"\b[A-Z]{4,}\b", lambda match: FILLED.get(match[0], match[0]), line)
        assert not re.search(r"\b[A-Z]{4,}\b|<[a-z -]+>", found), f"{found}: what is filled in?"
        return found

    def _look_up(self, command: Command) -> None:
        """kubectl has the command and its options, and what it names is there."""
        words = self._filled(command.text).partition(" -- ")[0].split()
        helped = self.runs(f"kubectl {verb(command).split()[0]} --help; kubectl options")
        for option in (word for word in words if word.startswith("-")):
            assert re.search(rf"(?<![\w-]){option}\b", helped), f"{command.text}: no {option}"
        for name in (word for word in words if re.fullmatch(r"[a-z]+/[a-z0-9-]+", word)):
            self.runs(f"kubectl -n epp-fleet get {name}")

    def _prepare(self, command: Command) -> None:
        """What the document takes for granted, or has said in words."""
        for part, lines in BEFORE.items():
            if part in command.text:
                for line in lines:
                    self.runs(line)
        if "gateways/tenant.yaml" in command.text:
            self.runs("kubectl apply -f -", json.dumps(stand_ins()))
            self.runs("kubectl wait --for=condition=Established crd --all --timeout=30s")
        if command.file == "docs/migration.md" and "/profile=" in command.text:
            self.runs("kubectl apply -f -", OLD_POOL.findall(TEXTS[command.file])[0])

    def pod(self, component: str) -> str:
        """The name of one, once there is one."""
        label = f"app.kubernetes.io/component={component}"
        deadline = time.monotonic() + RUN_SECONDS
        while time.monotonic() < deadline:
            found = self.runs(f"kubectl -n epp-fleet get pods -l {label} -o name").split()
            if found:
                return found[0].removeprefix("pod/")
            time.sleep(0.1)
        raise AssertionError(f"no pod of {component}")

    def field(self, name: str, path: str, *, namespace: str = "epp-fleet") -> str:
        """Of an object."""
        return self.runs(f"kubectl -n {namespace} get {name} -o jsonpath='{{{path}}}'")

    def left(self) -> set[str]:
        """Objects of no namespace that were made for a fleet."""
        kinds = "clusterroles,clusterrolebindings,validatingadmissionpolicies,"
        kinds += "validatingadmissionpolicybindings,namespaces"
        found = self.runs(f"kubectl get {kinds} -o name").split()
        return {each.partition("/")[2] for each in found if "/epp-fleet" in each}


BEFORE: Final = {
    # Who takes Sentinels has not made the Secret of the other overlay.
    "epp-fleet-redis --from-literal=coordinator-password": (
        "kubectl -n epp-fleet delete secret epp-fleet-redis",
    ),
    "helm install --take-ownership": (
        "helm uninstall epp-fleet -n epp-fleet --wait",
        "kubectl apply -k deploy/overlays/cluster-wide",
    ),
    "gateways/tenant.yaml": (
        "kubectl create namespace gateways",
        "kubectl create namespace acme",
    ),
    # The old picker.
    "scale deployment/llama-8b-epp --replicas=0": (
        "kubectl -n acme create deployment llama-8b-epp --image=epp",
    ),
    # The fleet makes it, which does not run here.
    "delete service llama-8b-fleet": (
        "kubectl -n acme create service clusterip llama-8b-fleet --tcp=9002",
    ),
}
"""By a part of a command, what is typed before it."""


def stand_ins() -> dict[str, object]:
    """CRDs that take anything, for the kinds of the samples that only gateways bring: names,
    namespaces and text are looked at, fields are not."""
    made = []
    kinds: dict[tuple[str, str, str], str] = {}
    for path in sorted((DEPLOY / "samples" / "gateways").rglob("*.yaml")):
        for raw in yaml.safe_load_all(path.read_text()):
            group, _, version = raw["apiVersion"].rpartition("/")
            if group not in ("", "inference.networking.k8s.io"):
                scope = "Namespaced" if "namespace" in raw["metadata"] else "Cluster"
                kinds[group, version, raw["kind"]] = scope
    for (group, version, kind), scope in kinds.items():
        one = kind.lower()
        plural = one[:-1] + "ies" if one.endswith("y") else one + ("es" if one[-1] == "s" else "s")
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        served = {"name": version, "served": True, "storage": True}
        spec = {
            "group": group,
            "scope": scope,
            "names": {"kind": kind, "plural": plural, "singular": one},
            "versions": [{**served, "schema": {"openAPIV3Schema": schema}}],
        }
        approved = {"api-approved.kubernetes.io": "unapproved, for a test"}
        made.append(
            {
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": {"name": f"{plural}.{group}", "annotations": approved},
                "spec": spec,
            }
        )
    return {"apiVersion": "v1", "kind": "List", "items": made}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    try:
        with running_cluster() as made:
            yield made
    except Missing as missing:
        pytest.skip(str(missing))


@pytest.fixture
def reader(cluster: Cluster, tmp_path: Path) -> Reader:
    if shutil.which("kubectl") is None:
        pytest.skip("no kubectl: the documents' commands are its")
    if not cluster.controllers:
        pytest.skip("no controller manager runs: nothing makes pods or ends namespaces")
    return Reader(tmp_path, cluster.kubeconfig)


def test_by_kustomize(reader: Reader) -> None:
    """An upgrade leaves the number of workers to the autoscaler (uberswe/createmod.com#1097); the
    token is the Secret's; nothing stays."""
    if shutil.which("promtool") is None and any(c.program == "promtool" for c in WRITTEN):
        pytest.skip("no promtool: some of the documents' commands are its")
    reader.follows(by_kustomize(of_kubernetes()))
    token = (reader.folder / "token").read_text()
    assert re.fullmatch("[0-9a-f]{64}", token)
    reader.follows(by_kustomize(OTHERS))
    pickings = json.loads(reader.field("configmap/epp-fleet-picking", ".data"))
    assert pickings.keys() == {"chat.yaml", "llama-8b.yaml"}
    assert reader.field(OLD_PICKER, ".spec.replicas", namespace="acme") == "1"
    reader.runs(f"kubectl -n epp-fleet scale {WORKERS} --replicas=8")
    # No Job ends here, so the command for those that do not was of use.
    assert reader.runs("kubectl -n epp-fleet get jobs -o name") == ""
    reader.runs("sed -i 's/newTag: .*/newTag: 0.2.0/' deploy/components/image/kustomization.yaml")
    reader.follows(by_kustomize(of_kubernetes("Upgrade")))
    assert reader.field(WORKERS, IMAGE) == "epp-fleet:0.2.0"
    assert reader.field(WORKERS, ".spec.replicas") == "8"
    reader.follows(by_kustomize(of_kubernetes("Rollback")))
    assert reader.field(WORKERS, IMAGE) == "epp-fleet:0.1.0"
    assert reader.field(WORKERS, ".spec.replicas") == "8"
    assert reader.field("secret/epp-fleet-secrets", ".data.token")
    reader.follows(by_kustomize(of_kubernetes("Remove it")))
    assert reader.left() == {"epp-fleet-metrics-reader"}, "the sample is the reader's to delete"


def test_by_helm(reader: Reader) -> None:
    """What was installed by kustomize is taken over; the namespace and the Secrets stay."""
    try:
        reader.has(find(HELM))
    except NoTool as missing:
        pytest.skip(str(missing))
    reader.follows(by_helm(of_kubernetes()))
    reader.runs(f"kubectl -n epp-fleet scale {WORKERS} --replicas=8")
    reader.follows(by_helm(of_kubernetes("Upgrade")))
    assert reader.field(WORKERS, IMAGE) == "registry.example/epp-fleet:0.2.0"
    assert reader.field(WORKERS, ".spec.replicas") == "8"
    reader.follows(by_helm(of_kubernetes("Rollback")))
    assert reader.field(WORKERS, IMAGE) == "registry.example/epp-fleet:0.1.0"
    assert reader.field(WORKERS, ".spec.replicas") == "8"
    reader.follows(by_helm(of_kubernetes("Remove it")))
    assert reader.left() == {"epp-fleet"}
    assert reader.field("secret/epp-fleet-secrets", ".data.token")


def test_no_command_is_forgotten() -> None:
    """Each is of a way; what is not run has a reason that is needed; and nothing hides from who
    collects them."""
    kubernetes = [*of_kubernetes(), *of_kubernetes(*LAST)]
    typed = {*by_kustomize(kubernetes), *by_kustomize(OTHERS), *by_helm(kubernetes)}
    assert typed == set(WRITTEN)
    assert {verb(each) for each in WRITTEN} - {""} == LOOKED_UP.keys()
    named = " ".join(each.text for each in WRITTEN)
    assert [part for part in (*BEFORE, *ADDED, *COMPLETED) if part not in named] == []
    seen = {(each.file, each.line) for each in WRITTEN}
    for file, text in TEXTS.items():
        fenced = False
        for number, line in enumerate(text.splitlines(), start=1):
            fenced ^= line.lstrip().startswith("```")
            hidden = re.search(rf"(?<![\w/.-])({'|'.join(PROGRAMS)}) [a-z-]", line)
            if fenced and hidden and (file, number) not in seen:
                assert line.strip().startswith(tuple(TYPED_ELSEWHERE)), f"{file}:{number}: {line}"
