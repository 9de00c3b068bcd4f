"""A worker on an API server whose objectives and rewrites, and whose CRDs, come and go."""

import asyncio
import json
from pathlib import Path

from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingResponse

from fleet.model import Hold
from fleet.sources.contract import Kind
from tests import manifest_texts as texts
from tests.fake_api_server import POOLS, FakeApiServer
from tests.fake_api_store import OLD_REWRITES, PODS, REWRITES
from tests.kube_sources import running_source, until
from tests.unit import extproc_messages as make
from tests.worker_inprocess import DEADLINE, Gateway, TestLeader, running_worker

AUTHORITY = "pool-a-epp.ns1.svc:9002"


async def asked_for(gateway: Gateway) -> str:
    """Which model goes on when `chat` is asked for."""
    call = gateway.stream()
    await call.write(make.request_headers())
    await call.write(make.request_body(b'{"model":"chat"}', end_of_stream=True))
    await call.done_writing()
    body = b""
    async with asyncio.timeout(DEADLINE):
        while isinstance(data := await call.read(), bytes):
            reply = ProcessingResponse.FromString(data)
            body += reply.request_body.response.body_mutation.streamed_response.body
    return str(json.loads(body)["model"])


async def test_rewrites_come_and_go_with_their_crds(tmp_path: Path) -> None:
    """None at first, which delays nothing; then one of the older group; then one of the newer group
    under the same name, which wins; the newer CRD goes, and the older rewrite counts again."""
    async with (
        FakeApiServer.running(POOLS, PODS) as server,
        running_source(server.kubeconfig(tmp_path)) as on,
    ):
        server.put(texts.pool())
        server.put(texts.pod())
        async with running_worker(tmp_path, source=on.source) as running:
            leader = TestLeader(running.worker.addresses.internal, 1)
            await leader.connect()
            await leader.assign(running.share(1, pool_a=Hold.OWNER))
            gateway = Gateway(running.worker.addresses.ext_proc, AUTHORITY)
            assert await asked_for(gateway) == "chat"

            async def becomes(model: str) -> None:
                (group,) = running.worker.holdings
                (state,) = group.states.values()
                wanted = None if model == "chat" else model
                await until(lambda: state.intents.target("chat", lambda: 0.0) == wanted, model)
                assert await asked_for(gateway) == model

            server.store.install(OLD_REWRITES)
            server.put(texts.rewrite(api=texts.X_K8S))
            await becomes("chat-v1")
            server.store.install(REWRITES)
            server.put(texts.rewrite(rules=[{"targets": [{"modelRewrite": "any-v2"}]}]))
            await becomes("any-v2")
            server.uninstall(REWRITES)
            await becomes("chat-v1")
            server.uninstall(OLD_REWRITES)
            await becomes("chat")
            assert not on.source.objects(Kind.REWRITE)
            assert running.worker.unready() is None
            await gateway.close()
            await leader.close()
