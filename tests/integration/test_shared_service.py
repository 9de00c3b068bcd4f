"""Two pools behind one Service, told apart by what their model servers say that they serve."""

import json
from pathlib import Path

from epp_worker.datalayer.models import HttpModels
from fleet.model import EpochVersion, GroupKey, Hold, PoolId, PoolRef, Share, ShareEntry
from tests import manifest_texts
from tests.scripted_http import Answer, answer, scripted
from tests.worker_inprocess import Gateway, TestLeader, picked_on, running_worker

GROUP = GroupKey("ns1", "shared-epp", 9002)


def serving(*models: str) -> Answer:
    return answer(200, {"object": "list", "data": [{"id": model} for model in models]})


def write(folder: Path, name: str, url: str) -> str:
    """A pool of the shared Service whose one pod is the server at `url`; its address."""
    host, _, port = url.removeprefix("http://").partition(":")
    reference = {"name": GROUP.service, "port": {"number": GROUP.port}}
    pool = manifest_texts.pool(name, ports=(int(port),), endpointPickerRef=reference)
    pool["metadata"]["uid"] = f"uid-{name}"
    pod = manifest_texts.pod(f"{name}-0", labels={"app": name}, ip=host)
    folder.joinpath(f"{name}.yaml").write_text(manifest_texts.text(pool, pod))
    return f"{host}:{port}"


async def test_each_request_goes_to_the_pool_that_serves_its_model(tmp_path: Path) -> None:
    """From the moment in which the group counts as opened."""
    async with (
        scripted(serving("llama", "lora-1"), repeat=True) as first,
        scripted(serving("qwen"), repeat=True) as second,
    ):
        a, b = write(tmp_path, "a", first.url), write(tmp_path, "b", second.url)
        async with running_worker(tmp_path, models=HttpModels()) as running:
            leader = TestLeader(running.worker.addresses.internal, 1)
            await leader.connect()
            pools = tuple(PoolId(PoolRef("ns1", name), f"uid-{name}") for name in "ab")
            entry = ShareEntry(GROUP, Hold.OPENING, pools, None)
            me = running.worker
            await leader.assign(
                Share("default", me.id, me.holdings.incarnation, EpochVersion(1, 1), (entry,))
            )
            gateway = Gateway(me.addresses.ext_proc, "shared-epp.ns1.svc:9002")
            for model, wanted in (("llama", a), ("qwen", b), ("lora-1", a)):
                body = json.dumps({"model": model, "prompt": "x"}).encode()
                call = gateway.stream()
                assert await picked_on(call, body) == wanted
                call.cancel()
            await gateway.close()
            await leader.close()
