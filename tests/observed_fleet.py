"""Fleets under traffic that a real Prometheus scrapes, and what can be done to them.

The fleet that Prometheus calls `default` is a local one with Envoy. The one that it calls `cluster`
is a coordinator and a worker with certificates on an API server (a fake one over real HTTP), for
what there is only on Kubernetes.
"""

import asyncio
import contextlib
import json
import os
import random
import signal
import threading
import urllib.error
import urllib.request
from collections.abc import Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import yaml

from fleet.certificates.folder import write_folder
from fleet.clock import SystemClock
from fleet.local.sample import POOLS
from fleet.local.traffic import Target, Traffic
from tests import manifest_texts
from tests.coordinator_process import CoordinatorProcess
from tests.e2e.local_process import LocalProcess, local_process
from tests.fake_api_server import FakeApiServer
from tests.kustomize import DEPLOY
from tests.prometheus_server import Prometheus
from tests.valkey import Valkey, running_valkey
from tests.worker_inprocess import Gateway
from tests.worker_process import WorkerProcess

REQUESTS_PER_SECOND = 12.0
CALL_SECONDS = 30.0
SCRAPED_SECONDS = 60.0
CLUSTER = "cluster"
METRICS_PORTS = {"coordinator": "http", "worker": "metrics"}
"""Names of the ports in `deploy/base`."""

T = TypeVar("T")


class Loop:
    """An event loop in a thread, for what has to go on while the test waits."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> "Loop":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CALL_SECONDS)
        self._loop.close()

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run it there; its result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(CALL_SECONDS)

    @contextlib.contextmanager
    def running(self, context: contextlib.AbstractAsyncContextManager[T]) -> Iterator[T]:
        """A context that is entered and left there."""
        entered = self.call(context.__aenter__())
        try:
            yield entered
        finally:
            self.call(context.__aexit__(None, None, None))


@contextlib.asynccontextmanager
async def _traffic(gateway: str) -> Any:
    """Requests to every pool, one after the other."""
    targets = [
        Target(
            f"http://{gateway}/{pool.namespace}/{pool.name}/v1/chat/completions",
            pool.model,
            f"{pool.namespace}/{pool.name}-",
        )
        for pool in POOLS
    ]
    async with aiohttp.ClientSession() as http:
        traffic = Traffic(http, targets, SystemClock(), random.Random(1))
        running = asyncio.create_task(traffic.run(REQUESTS_PER_SECOND))
        try:
            yield traffic
        finally:
            traffic.stop()
            await running


class ObservedFleet:
    """The local fleet, and the Prometheus that watches it.

    Attributes:
        state: what `epp-fleet local` wrote down.
    """

    def __init__(
        self,
        local: LocalProcess,
        state: Mapping[str, Any],
        prometheus: Prometheus,
        valkey: Valkey,
        loop: Loop,
        alone: WorkerProcess,
    ) -> None:
        self.local = local
        self.state = state
        self.prometheus = prometheus
        self._valkey = valkey
        self._loop = loop
        self._alone = alone

    def pools(self) -> dict[str, dict[str, Any]]:
        """The shard map's pools, by `namespace/name`, as a living coordinator knows it."""
        for each in self.state["coordinators"]:
            try:
                with urllib.request.urlopen(f"http://{each['http']}/api/v1/map", timeout=5) as page:
                    shown = json.load(page)["pools"]
                    return {f"{pool['namespace']}/{pool['name']}": pool for pool in shown}
            except OSError:
                continue
        raise AssertionError("no coordinator answers")

    def owner(self, pool: str) -> str:
        """The worker that owns it."""
        (owner,) = self.pools()[pool]["owners"]
        return str(owner)

    def _pid(self, process: str) -> int:
        everybody = (*self.state["coordinators"], *self.state["workers"])
        (pid,) = [each["pid"] for each in everybody if each["id"] == process]
        return int(pid)

    def kill(self, process: str) -> None:
        """As kill -9."""
        os.kill(self._pid(process), signal.SIGKILL)

    def kill_the_only_worker(self) -> None:
        """Of the other fleet, as kill -9."""
        self._alone.kill()

    def drain(self, worker: str) -> None:
        """Have it give away all that it has."""
        done = self.local.run("drain", worker)
        assert done.returncode == 0, done.stderr

    def undrain(self, worker: str) -> None:
        """It may take pools again."""
        done = self.local.run("undrain", worker)
        assert done.returncode == 0, done.stderr

    def stop_store(self) -> None:
        """As kill -9."""
        self._valkey.kill()

    def start_store(self) -> None:
        """Start it again, empty."""
        self._valkey.start()

    def ask_badly(self, pool: str) -> None:
        """A request whose body is no JSON."""
        url = f"http://{self.state['gateway']}/{pool}/v1/chat/completions"
        request = urllib.request.Request(url, b"{", {"content-type": "application/json"})
        with contextlib.suppress(urllib.error.HTTPError):
            urllib.request.urlopen(request, timeout=20).close()

    def stray(self, pool: str) -> None:
        """A request to a worker that does not own the pool."""
        (worker,) = [each for each in self.state["workers"] if each["id"] != self.owner(pool)][:1]
        namespace, _, name = pool.partition("/")

        async def ask() -> None:
            gateway = Gateway(worker["ext_proc"], f"{name}-epp.{namespace}.svc:9002")
            try:
                await gateway.pick()
            finally:
                await gateway.close()

        self._loop.call(ask())

    def add_refused_pool(self) -> None:
        """A pool without an endpoint picker."""
        self._manifest("refused", manifest_texts.pool("refused", endpointPickerRef=None))

    def add_dead_endpoint(self, pool: str) -> None:
        """A Ready pod of a pool at whose address nobody listens."""
        namespace, _, name = pool.partition("/")
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{name}-dead",
                "namespace": namespace,
                "uid": f"pod-{name}-dead",
                "labels": {"app": name},
            },
            "status": {
                "phase": "Running",
                "podIP": "127.0.0.254",
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
        self._manifest(f"{name}-dead", pod)

    def _manifest(self, name: str, raw: Any) -> None:
        path = Path(self.state["manifests"]) / f"{name}.yaml"
        path.with_suffix(".tmp").write_text(json.dumps(raw))
        path.with_suffix(".tmp").rename(path)

    def write_route(self, pool: str) -> None:
        """A route as somebody else might write it: the same file, an older version."""
        namespace, _, name = pool.partition("/")
        path = Path(self.state["folder"]) / "eds" / f"{namespace}~{name}-epp~9002.json"
        route = json.loads(path.read_text())
        route["version_info"] = "0.1"
        path.with_suffix(".tmp").write_text(json.dumps(route))
        path.with_suffix(".tmp").rename(path)


@contextlib.contextmanager
def _cluster(
    folder: Path, loop: Loop, valkey: Valkey
) -> Iterator[tuple[CoordinatorProcess, WorkerProcess]]:
    """The fleet on the API server; both processes run, and nothing is waited for."""
    folder.mkdir()
    with loop.running(FakeApiServer.running()) as kube:
        kube.put(manifest_texts.pool("llama"))
        kubeconfig = str(kube.kubeconfig(folder))
        certificates = folder / "certificates"
        write_folder(certificates, "default", SystemClock().wall())

        def security(role: str) -> dict[str, str]:
            own = certificates / role
            return {
                "ca_file": str(own / "ca.crt"),
                "certificate_file": str(own / "tls.crt"),
                "key_file": str(own / "tls.key"),
            }

        worker = WorkerProcess(
            folder,
            redis_url=valkey.url,
            worker_id="cluster-worker-0",
            settings={
                "source": {"manifests": ""},
                "kubernetes": {"kubeconfig": kubeconfig, "namespace": "epp"},
                "security": security("worker"),
            },
        )
        coordinator = CoordinatorProcess(
            folder,
            "cluster-coordinator-0",
            valkey.url,
            manifests=Path(),
            eds=Path(),
            environment={
                "EPP_FLEET_SOURCE__MANIFESTS": "",
                "EPP_FLEET_ROUTES__EDS_DIRECTORY": "",
                "EPP_FLEET_KUBERNETES__KUBECONFIG": kubeconfig,
                "EPP_FLEET_KUBERNETES__NAMESPACE": "epp",
                **{
                    f"EPP_FLEET_SECURITY__{name.upper()}": value
                    for name, value in security("coordinator").items()
                },
            },
        )
        with worker, coordinator:
            yield coordinator, worker


def _pod(fleet: str, component: str, name: str, port: str) -> dict[str, str]:
    """A container's port as Prometheus discovers it on Kubernetes."""
    meta = "__meta_kubernetes"
    return {
        f"{meta}_namespace": f"home-of-{fleet}",
        f"{meta}_pod_name": name,
        f"{meta}_pod_container_port_name": port,
        f"{meta}_pod_label_app_kubernetes_io_name": "epp-fleet",
        f"{meta}_pod_label_app_kubernetes_io_component": component,
        f"{meta}_pod_label_epp_fleet_dev_fleet": fleet,
    }


def _job() -> dict[str, Any]:
    """The job that `deploy/` has, without the discovery, which needs a cluster (and is not in
    Debian's Prometheus): targets bring what it would find."""
    text = (DEPLOY / "prometheus" / "scrape.yaml").read_text()
    (job,) = yaml.safe_load(text)["scrape_configs"]
    assert job.pop("kubernetes_sd_configs") == [{"role": "pod"}]
    assert isinstance(job, dict)
    return job


@contextlib.contextmanager
def observed_fleet(folder: Path) -> Iterator[ObservedFleet]:
    """All of it, once Prometheus has scraped everybody, with requests under way."""
    with contextlib.ExitStack() as stack:
        loop = stack.enter_context(Loop())
        valkey, other = stack.enter_context(running_valkey()), stack.enter_context(running_valkey())
        coordinator, worker = stack.enter_context(_cluster(folder / CLUSTER, loop, other))
        local = stack.enter_context(
            local_process(
                folder / "local", "--redis-url", valkey.url, "--coordinators", "2", "--workers", "3"
            )
        )
        state = local.wait_ready()
        targets = {
            each["http"]: _pod("default", component, each["id"], port)
            for component, port in METRICS_PORTS.items()
            for each in state[f"{component}s"]
        }
        http = f"127.0.0.1:{coordinator.http_port}"
        targets[http] = _pod(CLUSTER, "coordinator", coordinator.name, "http")
        targets[worker.address("http")] = _pod(CLUSTER, "worker", worker.id, "metrics")
        # A port that has no metrics.
        others = {worker.address("health"): _pod(CLUSTER, "worker", worker.id, "health")}
        prometheus = stack.enter_context(
            Prometheus(folder / "prometheus", {**targets, **others}, _job())
        )
        stack.enter_context(loop.running(_traffic(state["gateway"])))
        # Each once: on a busy machine some scrape may always just have timed out.
        prometheus.wait(f"sum(max_over_time(up[1m])) == {len(targets)}", SCRAPED_SECONDS)
        yield ObservedFleet(local, state, prometheus, valkey, loop, worker)
