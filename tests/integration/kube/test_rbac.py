"""The rules of `deploy/` on a real API server: enough for the programs, and nothing besides.

Coordinators and a worker run as the accounts of an installation, its policies included, through all
that makes them ask for something; the audit log tells what they asked.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.errors import KubeForbidden
from fleet.kube.client import KubeClient
from fleet.kube.contract import KubeApi
from tests.control_plane.cluster import Cluster
from tests.control_plane.objects import eventually
from tests.control_plane.plane import ControlPlane
from tests.deployed import COORDINATOR, WORKER, Right, rights_of, without
from tests.kustomize import NoKustomize, of_kind, overlay
from tests.rbac_scene import NEVER, asked, live_through, placed, serve
from tests.valkey import Valkey, running_valkey


@pytest.fixture(scope="module")
def valkey() -> Iterator[Valkey]:
    with running_valkey() as server:
        yield server


@pytest.mark.parametrize("name", ["cluster-wide", "single-namespace"])
async def test_exactly_what_is_needed(
    control_plane: Cluster,
    own_plane: ControlPlane,
    kube: KubeClient,
    valkey: Valkey,
    tmp_path: Path,
    name: str,
) -> None:
    """Nothing that the programs ask is forbidden, and every verb of every rule is asked."""
    async with placed(control_plane, kube, valkey, tmp_path, overlay_name=name) as place:
        await live_through(place)
        await serve(place, own_plane)
        for account in (COORDINATOR, WORKER):
            found = asked(own_plane, place, account)
            forbidden = {right for right, codes in found.items() if 403 in codes}
            assert not forbidden, account
            assert found.keys() | {NEVER} == place.installed.rights(account), account


async def ask(api: KubeApi, right: Right, namespace: str) -> None:
    """Ask for what the right allows."""
    prefix = f"/apis/{right.group}/v1" if right.group else "/api/v1"
    collection = f"{prefix}/namespaces/{namespace}/{right.resource}"
    item = f"{collection}/x"
    if right.verb == "watch":
        async for _ in api.watch(collection, params={}, read_timeout_seconds=5.0):
            pass
    elif right.verb in ("list", "get"):
        await api.get(collection if right.verb == "list" else item)
    elif right.verb == "create":
        await api.create(collection, {})
    elif right.verb == "update":
        await api.replace(item, {})
    elif right.verb == "patch":
        await api.patch(item, {})
    else:
        await api.delete(item)


async def test_each_right_is_named_where_it_is_missing(
    control_plane: Cluster, namespace: str, tmp_path: Path
) -> None:
    """An account without any: what the client says can be copied into a rule."""
    try:
        objects = overlay("cluster-wide")
    except NoKustomize as missing:
        pytest.skip(str(missing))
    roles = [*of_kind(objects, "ClusterRole"), *of_kind(objects, "Role")]
    rights = sorted({right for role in roles for right in rights_of(role)})
    assert len(rights) > 20
    user = await control_plane.limited_user(tmp_path, namespace, "nobody")
    async with control_plane.connected(user) as api:
        for right in rights:
            with pytest.raises(KubeForbidden) as no:
                await ask(api, right, namespace)
            assert str(no.value).endswith(
                f'RBAC lacks verb "{right.verb}" on resource "{right.resource}" of API group '
                f'"{right.group}" in namespace "{namespace}"'
            )


async def test_a_right_that_is_missing_is_named(
    control_plane: Cluster,
    kube: KubeClient,
    valkey: Valkey,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Without one verb a fleet goes on as far as it can, and its log says which verb on which
    resource, and where."""
    right = Right("create", "", "services")
    async with (
        placed(control_plane, kube, valkey, tmp_path, change=without(right)) as place,
        place.coordinator("coordinator-a"),
        place.fake_worker("worker-11", "192.0.2.11"),
    ):
        await place.pool("a", "picker")
        # Routes do not wait for the Service.
        await place.served("picker")
        wanted = 'RBAC lacks verb "create" on resource "services" of API group ""'

        def problems() -> list[str]:
            return [str(getattr(record, "problem", "")) for record in caplog.records]

        async def said() -> bool:
            return any(wanted in problem and place.tenant in problem for problem in problems())

        await eventually(said, "the log names the right that is missing")
