"""What tests hold: one API server with the CRDs in it, wherever it comes from.

KUBECONFIG, when set, names it; tests then only add namespaces (`epp-test-*`), what is in them, and
CRDs that are absent. Else a control plane is started on this machine.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml

from fleet.kube.client import KubeClient, open_client
from fleet.settings.model import KubernetesSettings
from tests.control_plane.objects import apply_crds, service_account_token
from tests.control_plane.plane import ControlPlane, kubeconfig_text
from tests.control_plane.programs import Missing, find_programs

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster and the right to do anything in it.

    Attributes:
        kubeconfig: of a user who may do everything.
        controllers: whether the controllers of `plane.CONTROLLERS` run.
        plane: where it is ours: to be paused, killed, audited.
    """

    kubeconfig: Path
    controllers: bool
    plane: ControlPlane | None

    @contextlib.asynccontextmanager
    async def connected(
        self, kubeconfig: Path | None = None, *, request_timeout_seconds: float = 10.0
    ) -> AsyncIterator[KubeClient]:
        """A client; of the mighty user if no other is named."""
        settings = KubernetesSettings(
            kubeconfig=str(kubeconfig or self.kubeconfig),
            request_timeout_seconds=request_timeout_seconds,
        )
        client = await open_client(settings)
        try:
            yield client
        finally:
            await client.close()

    def kubeconfig_of_token(self, folder: Path, token: str, *, namespace: str) -> Path:
        """Write a kubeconfig for the same server with a bearer token."""
        path = folder / f"{namespace}-token.kubeconfig"
        path.write_text(
            kubeconfig_text(self._cluster_section(), {"token": token}, namespace=namespace)
        )
        return path

    async def limited_user(
        self,
        folder: Path,
        namespace: str,
        name: str,
        *,
        rules: Sequence[Mapping[str, Any]] = (),
        cluster_rules: Sequence[Mapping[str, Any]] = (),
    ) -> Path:
        """The kubeconfig of a service account that may do exactly this."""
        async with self.connected() as api:
            token = await service_account_token(
                api, namespace, name, rules=rules, cluster_rules=cluster_rules
            )
        return self.kubeconfig_of_token(folder, token, namespace=namespace)

    def _cluster_section(self) -> dict[str, str]:
        raw = yaml.safe_load(self.kubeconfig.read_text())
        contexts = {each["name"]: each["context"] for each in raw["contexts"]}
        clusters = {each["name"]: each["cluster"] for each in raw["clusters"]}
        section: dict[str, str] = clusters[contexts[raw["current-context"]]["cluster"]]
        authority = section.get("certificate-authority")
        if authority:
            section["certificate-authority"] = str(self.kubeconfig.parent / authority)
        return section


@contextlib.contextmanager
def running_cluster(
    *,
    crds: bool = True,
    controllers: bool = True,
    audit: bool = False,
    apiserver_flags: Sequence[str] = (),
) -> Iterator[Cluster]:
    """A control plane of one's own, for a test that pauses or breaks it.

    Raises:
        Missing: none can run here.
    """
    plane = ControlPlane(find_programs(), apiserver_flags=apiserver_flags, audit=audit)
    with plane:
        cluster = Cluster(plane.kubeconfig(), controllers=False, plane=plane)
        if crds:
            # Before the controllers, which look up kinds only every 30 s.
            run_apart(_with_crds(cluster))
        running = controllers and plane.start_controllers()
        yield Cluster(plane.kubeconfig(), controllers=running, plane=plane)


@contextlib.contextmanager
def any_cluster(environ: Mapping[str, str] | None = None) -> Iterator[Cluster]:
    """The cluster of KUBECONFIG, else one of our own.

    Raises:
        Missing: there is none, and none can run here.
    """
    environ = os.environ if environ is None else environ
    named = environ.get("KUBECONFIG")
    if not named:
        with running_cluster(audit=True) as ours:
            yield ours
        return
    path = Path(named.split(os.pathsep)[0]).expanduser()
    if not path.exists():
        raise Missing(f"no control plane: KUBECONFIG={named} does not exist")
    cluster = Cluster(path, controllers=True, plane=None)
    run_apart(_with_crds(cluster))
    yield cluster


async def _with_crds(cluster: Cluster) -> None:
    async with cluster.connected() as api:
        await apply_crds(api)


def run_apart(work: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine on a loop of its own in a thread of its own: the caller's loop, running or
    not, stays as it is."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(asyncio.run, work).result()
