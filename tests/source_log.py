"""What a source over the API server told, and what it asked for."""

from fleet.sources.contract import Change, Kind, ObjectKey
from tests import manifest_texts as texts
from tests.fake_api_server import FakeApiServer
from tests.kube_sources import RunningSource, until

V1 = "/apis/inference.networking.k8s.io/v1/inferencepools"
OLD = "/apis/inference.networking.x-k8s.io/v1alpha2/inferencepools"
NS1_PODS = "/api/v1/namespaces/ns1/pods"
A = ObjectKey("ns1", "a")


class Log:
    """A listener that remembers in short form: `+a`, `~a`, `-a`."""

    def __init__(self) -> None:
        self.changes: list[Change] = []

    def __call__(self, change: Change) -> None:
        self.changes.append(change)

    @property
    def signs(self) -> list[str]:
        return [
            ("+" if each.old is None else "-" if each.new is None else "~") + each.key.name
            for each in self.changes
        ]


async def watch_pods(server: FakeApiServer, on: RunningSource) -> Log:
    """Pods p and q of ns1 are there and watched."""
    server.put(texts.pod("p"))
    server.put(texts.pod("q"))
    log = Log()
    on.source.watch(Kind.POD, log, namespace="ns1")
    await on.source.start()
    await until(lambda: server.watches(NS1_PODS) == 1, "the pods are watched")
    assert sorted(log.signs) == ["+p", "+q"]
    log.changes.clear()
    return log


def names(on: RunningSource, kind: Kind = Kind.POD) -> set[str]:
    return {key.name for key in on.source.objects(kind)}


def versions_asked(server: FakeApiServer, path: str) -> list[str | None]:
    """The resourceVersion of every watch so far."""
    return [
        each.query.get("resourceVersion")
        for each in server.requests
        if each.watch and each.path == path
    ]
