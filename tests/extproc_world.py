"""An ext_proc session without a transport: what goes in, what comes out, what it holds."""

import json
import random
from collections.abc import Sequence

from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingResponse

from epp_worker.extproc.budget import BodyBudget, BodyShare
from epp_worker.extproc.detaching import ResponsePhases
from epp_worker.extproc.session import Session
from epp_worker.extproc.usage import CopyBudget
from epp_worker.scheduling.contract import Pick
from epp_worker.scheduling.group import GroupPicker
from epp_worker.scheduling.pool import PoolState
from fleet.model.identity import PoolRef
from fleet.model.pools import Endpoint, Pool
from tests.silent_observer import SilentObserver
from tests.unit import extproc_messages as make

MIB = 1024 * 1024
CHAT = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'
A, B = "10.0.0.1:8000", "10.0.0.2:8000"


class Counts(SilentObserver):
    """What the session told."""

    def __init__(self) -> None:
        self.outcomes: list[str] = []
        self.tokens: list[tuple[int | None, int | None]] = []
        self.statuses: list[int] = []
        self.ends: list[bool] = []
        self.faults = 0

    def picked(self, pick: Pick) -> None:
        self.outcomes.append("picked")

    def refused(self, status: int) -> None:
        self.outcomes.append(str(status))

    def response(self, status: int) -> None:
        self.statuses.append(status)

    def usage(self, prompt: int | None, completion: int | None, cached: int | None = None) -> None:
        self.tokens.append((prompt, completion))

    def usage_unreadable(self, count: int) -> None:
        self.faults += count

    def finished(self, complete: bool) -> None:
        self.ends.append(complete)


class World:
    """One pool (or more), one budget, and what came of the sessions."""

    def __init__(
        self,
        addresses: Sequence[str] = (A,),
        *,
        models: Sequence[str] = ("",),
        per_stream: int = 16 * MIB,
        total: int = 64 * MIB,
    ) -> None:
        self.pools = []
        for number, names in enumerate(models):
            pool = Pool(
                PoolRef("ns", f"pool-{number}"), f"uid-{number}", {"app": "a"}, (8000,), None,
                annotations={"epp-fleet.dev/models": names},
            )  # fmt: skip
            state = PoolState(pool, now=lambda: 0.0, rng=random.Random(1))
            state.set_endpoints([Endpoint(f"pod-{a}", f"uid-{a}", a, 0) for a in addresses])
            self.pools.append(state)
        self.budget = BodyBudget(per_stream=per_stream, total=total)
        self.share = BodyShare()
        self.copies = CopyBudget()
        self.counts = Counts()

    def session(self) -> Session:
        return Session(
            GroupPicker(self.pools),
            budget=self.budget,
            share=self.share,
            copies=self.copies,
            observer=self.counts,
            rng=random.Random(2),
            phases=ResponsePhases(),
        )

    def inflight(self) -> int:
        return sum(sum(pool.inflight().values()) for pool in self.pools)

    def assert_nothing_held(self) -> None:
        assert self.inflight() == 0
        assert self.budget.held == self.share.held == 0
        assert not self.share.holders
        assert self.copies.held == 0


def replies(data: Sequence[bytes]) -> list[ProcessingResponse]:
    return [ProcessingResponse.FromString(item) for item in data]


def kinds(data: Sequence[bytes]) -> list[str]:
    return [str(reply.WhichOneof("response")) for reply in replies(data)]


def streamed(data: Sequence[bytes], side: str = "request") -> tuple[bytes, list[bool]]:
    """The body in `streamed_response` replies of one side, and their end marks."""
    parts = [
        getattr(reply, f"{side}_body").response.body_mutation.streamed_response
        for reply in replies(data)
        if reply.WhichOneof("response") == f"{side}_body"
    ]
    return b"".join(part.body for part in parts), [part.end_of_stream for part in parts]


def immediate(data: Sequence[bytes]) -> tuple[int, str]:
    """Status and drop reason of the single ImmediateResponse."""
    assert kinds(data) == ["immediate_response"]
    answer = replies(data)[0].immediate_response
    error = json.loads(answer.body)["error"]
    assert set(error) == {"message", "type", "code"}
    headers = {o.header.key: o.header.raw_value.decode() for o in answer.headers.set_headers}
    assert headers["content-type"] == "application/json"
    return int(answer.status.code), headers.get("x-llm-d-request-dropped-reason", "")


def destination(reply: ProcessingResponse) -> str:
    part = getattr(reply, str(reply.WhichOneof("response"))).response
    assert part.clear_route_cache
    option, *others = part.header_mutation.set_headers
    assert [one.header.key for one in others] in ([], ["x-request-id"])
    assert option.header.key == "x-gateway-destination-endpoint"
    assert option.append_action == option.OVERWRITE_IF_EXISTS_OR_ADD
    metadata = reply.dynamic_metadata.fields["envoy.lb"].struct_value.fields
    assert metadata[option.header.key].string_value == option.header.raw_value.decode()
    return str(option.header.raw_value.decode())


def ask(world: World, body: bytes, headers: dict[str, str | bytes] | None = None) -> list[bytes]:
    """A whole request in FULL_DUPLEX_STREAMED; what came back."""
    session = world.session()
    assert not session.receive(make.request_headers(headers))
    out = list(session.receive(make.request_body(body, end_of_stream=True)))
    session.aborted()
    return out
