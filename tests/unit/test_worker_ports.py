"""Ports beside ext_proc's: through them nobody takes the gateways' files, or a probe's answer."""

import pytest
from grpc_health.v1 import health_pb2

from epp_worker import health
from epp_worker.listeners import gateway_connections
from tests.http2_peer import Client, Wire, exchange, request_headers

SERVING, NOT_SERVING = (
    health_pb2.HealthCheckResponse.SERVING,
    health_pb2.HealthCheckResponse.NOT_SERVING,
)


class Asking:
    """A client of the health port."""

    def __init__(self, service: health.HealthService) -> None:
        self.wire = Wire(services=service.methods())
        self.client = Client()

    def call(self, method: str, name: str = "") -> int:
        """Begin a call; its stream."""
        stream_id = self.client.open(request_headers(path=f"/grpc.health.v1.Health/{method}"))
        request = health_pb2.HealthCheckRequest(service=name).SerializeToString()
        self.client.send(stream_id, request, end=True)
        self.talk()
        return stream_id

    def talk(self) -> None:
        """Bytes both ways."""
        exchange(self.wire, self.client)

    def told(self, stream_id: int) -> list[int]:
        """The statuses that a call has heard."""
        answers = self.client.answers[stream_id].messages
        return [health_pb2.HealthCheckResponse.FromString(one).status for one in answers]

    def code(self, stream_id: int) -> int | None:
        """How a call ended."""
        return self.client.answers[stream_id].status


def test_watchers_are_bounded_and_never_keep_a_check_from_its_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A kubelet that gets no answer restarts the worker; 1,024 watchers were enough for that."""
    monkeypatch.setattr(health, "MAX_WATCHES", 2)
    service = health.HealthService()
    service.publish({"": True})
    asking = Asking(service)
    first, _, refused = (asking.call("Watch") for _ in range(3))
    assert asking.code(refused) == health.RESOURCE_EXHAUSTED
    check = asking.call("Check")
    assert (asking.told(check), asking.code(check)) == ([SERVING], 0)
    asking.client.h2.reset_stream(first)
    asking.talk()
    late = asking.call("Watch")
    assert (asking.told(late), asking.code(late)) == ([SERVING], None)


def test_a_watcher_hears_what_changes_for_it() -> None:
    """Now, and at each change of its own name alone; an unknown one may become known."""
    service = health.HealthService()
    service.publish({"": True, "ns1/a": True})
    asking = Asking(service)
    known, unknown = asking.call("Watch", "ns1/a"), asking.call("Watch", "ns1/b")
    service.publish({"": False, "ns1/a": True})
    service.publish({"": False, "ns1/a": False, "ns1/b": True})
    asking.wire.loop.run()
    asking.talk()
    assert asking.told(known) == [SERVING, NOT_SERVING]
    assert asking.told(unknown) == [health_pb2.HealthCheckResponse.SERVICE_UNKNOWN, SERVING]
    asking.wire.lose()
    service.publish({})


def test_odd_health_calls_are_refused() -> None:
    """An unknown name, no request, one that cannot be read, a method that there is not."""
    service = health.HealthService()
    asking = Asking(service)
    assert asking.code(asking.call("Check", "nobody")) == health.NOT_FOUND
    assert asking.code(asking.call("Nothing")) == 12
    for method in ("Check", "Watch"):
        for messages in ((), (b"\xff",)):
            path = f"/grpc.health.v1.Health/{method}"
            stream_id = asking.client.open(request_headers(path=path))
            asking.client.send(stream_id, *messages, end=True)
            asking.talk()
            assert asking.code(stream_id) == health.INTERNAL
    service.publish({"": True})
    assert asking.code(asking.call("List")) == 0
    service.publish({str(number): True for number in range(101)})
    assert asking.code(asking.call("List")) == health.RESOURCE_EXHAUSTED


@pytest.mark.parametrize(
    ("files", "connections"), [(256, 48), (1024, 624), (20_000, 18_656), (1_048_576, 1_047_232)]
)
def test_every_port_has_files_of_its_own(files: int, connections: int) -> None:
    """192 for ourselves; of the rest at most 1,152, and at most a quarter, for the other ports."""
    assert gateway_connections(files) == connections
