"""A custom metrics API for tests: what a Prometheus adapter answers to the autoscaler.

It speaks custom.metrics.k8s.io/v1beta2 over HTTPS on loopback, behind the API server's aggregation
layer, and tells of the Pods metrics that a test sets. `lose` makes it answer like an adapter whose
Prometheus is away.
"""

import asyncio
import base64
import contextlib
import datetime
import ssl
from collections.abc import AsyncIterator, Mapping
from functools import partial
from pathlib import Path

from aiohttp import web

from fleet.errors import KubeError, KubeNotFound
from fleet.kube.contract import KubeApi
from tests.control_plane.objects import eventually
from tests.control_plane.pki import Pki

GROUP = "custom.metrics.k8s.io"
VERSION = "v1beta2"

_SERVICE = "custom-metrics"
_NAMESPACE = "default"
_SERVICES = f"/api/v1/namespaces/{_NAMESPACE}/services"
_API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
_GONE_SECONDS = 30.0


class CustomMetrics:
    """The server and what it knows.

    Attributes:
        values: quantity by metric, then by pod.
        asked: metrics that were asked for, in order.
    """

    def __init__(self) -> None:
        self.values: dict[str, dict[str, str]] = {}
        self.asked: list[str] = []
        self._lost = False

    def set(self, metric: str, values: Mapping[str, float]) -> None:
        """What this metric is from now on, by pod."""
        self.values[metric] = {pod: f"{round(value * 1000)}m" for pod, value in values.items()}

    def lose(self) -> None:
        """Answer nothing but errors from now on."""
        self._lost = True

    def find(self) -> None:
        """End `lose`."""
        self._lost = False

    def routes(self) -> list[web.RouteDef]:
        """What it answers."""
        root = f"/apis/{GROUP}/{VERSION}"
        return [
            web.get(root, self._kinds),
            web.get(root + "/namespaces/{namespace}/pods/{name}/{metric}", self._metric),
        ]

    async def _kinds(self, _: web.Request) -> web.Response:
        resources = [
            {
                "name": f"pods/{metric}",
                "singularName": "",
                "namespaced": True,
                "kind": "MetricValueList",
                "verbs": ["get"],
            }
            for metric in self.values
        ]
        body = {"kind": "APIResourceList", "apiVersion": "v1", "resources": resources}
        return web.json_response({**body, "groupVersion": f"{GROUP}/{VERSION}"})

    async def _metric(self, request: web.Request) -> web.Response:
        metric, namespace = request.match_info["metric"], request.match_info["namespace"]
        self.asked.append(metric)
        if self._lost:
            return _status(500, "InternalError", "Prometheus does not answer")
        if metric not in self.values:
            return _status(404, "NotFound", f"no metric {metric}")
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        items = [
            {
                "describedObject": {
                    "kind": "Pod",
                    "namespace": namespace,
                    "name": pod,
                    "apiVersion": "v1",
                },
                "metric": {"name": metric, "selector": None},
                "timestamp": now,
                "value": value,
            }
            for pod, value in self.values[metric].items()
        ]
        head = {"kind": "MetricValueList", "apiVersion": f"{GROUP}/{VERSION}", "metadata": {}}
        return web.json_response({**head, "items": items})


def _status(code: int, reason: str, message: str) -> web.Response:
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code}
    return web.json_response({**body, "reason": reason, "message": message}, status=code)


@contextlib.asynccontextmanager
async def custom_metrics(api: KubeApi, pki: Pki) -> AsyncIterator[CustomMetrics]:
    """A server that this API server's clients reach, until the context ends.

    Args:
        pki: of the control plane, which its own certificate is from.
    """
    metrics = CustomMetrics()
    await asyncio.to_thread(_certificate, pki)
    runner = web.AppRunner(_app(metrics))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=_context(pki))
    await site.start()
    try:
        await _register(api, pki, runner.addresses[0][1])
        yield metrics
    finally:
        await take_away(api)
        await runner.cleanup()


def _app(metrics: CustomMetrics) -> web.Application:
    app = web.Application()
    app.add_routes(metrics.routes())
    return app


def _certificate(pki: Pki) -> None:
    names = f"extendedKeyUsage=serverAuth\nsubjectAltName=DNS:{_SERVICE}.{_NAMESPACE}.svc"
    pki.leaf("custom-metrics", "/CN=custom-metrics", names)


def _context(pki: Pki) -> ssl.SSLContext:
    """Only the aggregation layer may ask; it shows the front proxy's certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pki.certificate("custom-metrics"), pki.key("custom-metrics"))
    context.load_verify_locations(pki.certificate("front-proxy-ca"))
    context.verify_mode = ssl.CERT_OPTIONAL
    return context


async def _register(api: KubeApi, pki: Pki, port: int) -> None:
    await api.create(
        _SERVICES,
        {
            "metadata": {"name": _SERVICE},
            "spec": {
                "type": "ExternalName",
                "externalName": "localhost",
                "ports": [{"name": "https", "port": port}],
            },
        },
    )
    authority = base64.b64encode(Path(pki.certificate("ca")).read_bytes()).decode()
    await api.create(
        _API_SERVICES,
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": f"{VERSION}.{GROUP}"},
            "spec": {
                "group": GROUP,
                "version": VERSION,
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
                "caBundle": authority,
                "service": {"namespace": _NAMESPACE, "name": _SERVICE, "port": port},
            },
        },
    )
    # It is called available a moment before it is routed.
    await eventually(partial(_routed, api), "custom metrics are routed")


async def _routed(api: KubeApi) -> bool:
    try:
        await api.get(f"/apis/{GROUP}/{VERSION}")
    except KubeError:
        return False
    return True


async def take_away(api: KubeApi) -> None:
    """The API server knows of no such API any more, if it did; as if no adapter were installed."""
    for path in (f"{_API_SERVICES}/{VERSION}.{GROUP}", f"{_SERVICES}/{_SERVICE}"):
        with contextlib.suppress(KubeNotFound):
            await api.delete(path)

    async def gone() -> bool:
        try:
            await api.get(f"/apis/{GROUP}/{VERSION}")
        except KubeNotFound:
            return True
        except KubeError:
            return False
        return False

    await eventually(gone, "custom metrics are gone", seconds=_GONE_SECONDS)
