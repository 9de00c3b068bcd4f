"""How the client finds the API server and its credentials, and follows them when they change."""

import asyncio
import logging
from pathlib import Path

import pytest

from fleet.errors import KubeForbidden, SettingsError
from fleet.kube.access import Access, Identity, Unreadable, find_access
from fleet.kube.client import REREAD_SECONDS, open_client
from fleet.settings.model import KubernetesSettings
from tests.kube_clients import client_of, write_kubeconfig
from tests.scripted_http import answer, scripted, status

PATH = "/api/v1/namespaces/a/pods"
NOWHERE = Path("/nonexistent")


class SetClock:
    """A clock that stands where the test puts it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("the client never sleeps")


def service_account(folder: Path, token: str = "sa-token") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "token").write_text(token + "\n")
    (folder / "ca.crt").write_text("no certificate\n")
    (folder / "namespace").write_text("sa-ns\n")
    return folder


IN_POD = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}


async def test_the_order(tmp_path: Path) -> None:
    """The setting, then the service account, then KUBECONFIG."""
    named = write_kubeconfig(tmp_path, "http://setting")
    (tmp_path / "v").mkdir()
    variable = write_kubeconfig(tmp_path / "v", "http://variable", namespace=None)
    account = service_account(tmp_path / "sa")
    environ = {**IN_POD, "KUBECONFIG": str(variable)}
    settings = KubernetesSettings(kubeconfig=str(named))
    access, identity = await find_access(settings, environ, account)
    assert (identity.configuration.host, access.namespace) == ("http://setting", "fleet-ns")
    assert not access.rotates
    access, identity = await find_access(KubernetesSettings(), environ, account)
    assert (identity.configuration.host, access.namespace) == ("https://[fd00::1]:443", "sa-ns")
    assert (identity.authorization, access.rotates) == ("Bearer sa-token", True)
    access, identity = await find_access(KubernetesSettings(), environ, NOWHERE)
    assert (identity.configuration.host, access.namespace) == ("http://variable", "default")


async def test_the_namespace_of_the_settings_wins(tmp_path: Path) -> None:
    """`kubernetes.namespace` is the fleet's own, whatever the credentials say."""
    path = write_kubeconfig(tmp_path, "http://x")
    client = await open_client(KubernetesSettings(kubeconfig=str(path), namespace="mine"))
    assert client.namespace == "mine"
    await client.close()


async def test_no_way_at_all() -> None:
    """The message names all three ways."""
    with pytest.raises(SettingsError, match=r"^kubernetes.kubeconfig: .*pod.*KUBECONFIG") as caught:
        await open_client(KubernetesSettings(), environ={}, service_account=NOWHERE)
    assert len(caught.value.problems) == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "form of a kubeconfig|current-context"),
        ("[1]", "form of a kubeconfig"),
        ("a: [SECRET", "is no YAML"),
        ("current-context: x", "contexts"),
        (
            '{"current-context":"x","contexts":[{"name":"x","context":{"cluster":"c"}}],'
            '"clusters":[{"name":"c","cluster":{"server":"host:6443"}}]}',
            "must be http",
        ),
        (
            '{"current-context":"x","contexts":[{"name":"x","context":{"cluster":"c"}}],'
            '"clusters":[{"name":"c","cluster":{"server":"https://h","certificate-authority":"/no"'
            "}}]}",
            "/no",
        ),
        (
            '{"current-context":"x","contexts":[{"name":"x","context":{"cluster":"c","user":"u"}}],'
            '"clusters":[{"name":"c","cluster":{"server":"https://h"}}],"users":[{"name":"u",'
            '"user":{"auth-provider":{"name":"oidc","config":{"refresh-token":"SECRET"}}}}]}',
            "client-id",
        ),
    ],
)
async def test_a_broken_kubeconfig(tmp_path: Path, text: str, words: str) -> None:
    """It is named, with what is wrong, and without what is in it."""
    path = tmp_path / "broken"
    path.write_text(text)
    with pytest.raises(SettingsError, match=words) as caught:
        await open_client(KubernetesSettings(kubeconfig=str(path)))
    assert str(path) in str(caught.value)
    assert "SECRET" not in str(caught.value)


async def test_a_kubeconfig_that_is_not_there() -> None:
    """Its path is in the message."""
    with pytest.raises(SettingsError, match="/nonexistent/kubeconfig"):
        await open_client(KubernetesSettings(kubeconfig="/nonexistent/kubeconfig"))


async def test_a_certificate_that_is_none(tmp_path: Path) -> None:
    """Found at the start, not at the first call."""
    account = service_account(tmp_path / "sa")
    with pytest.raises(SettingsError, match="service account: certificates"):
        await open_client(KubernetesSettings(), environ=IN_POD, service_account=account)


async def test_a_token_file_is_followed_after_401(tmp_path: Path) -> None:
    """kubernetes-client/python#1768: the token was replaced; one 401, then the new one is used."""
    token = tmp_path / "token"
    token.write_text("old")
    script = (answer(200, {}), status(401), answer(200, {"new": 1}))
    async with (
        scripted(*script) as server,
        client_of(tmp_path, server.url, {"tokenFile": str(token)}) as client,
    ):
        await client.get(PATH)
        token.write_text("new\n")
        assert await client.create(PATH, {}) == {"new": 1}
    sent = [(each.method, each.headers["authorization"]) for each in server.asked]
    assert sent == [("GET", "Bearer old"), ("POST", "Bearer old"), ("POST", "Bearer new")]


async def test_401_is_tried_again_once(tmp_path: Path) -> None:
    """Credentials that stay bad are an error after two requests; a watch does the same."""
    async with (
        scripted(status(401, "Unauthorized", "Unauthorized"), repeat=True) as server,
        client_of(tmp_path, server.url, {"token": "bad"}) as client,
    ):
        with pytest.raises(KubeForbidden, match="credentials were refused") as caught:
            await client.get(PATH)
        assert (caught.value.status, len(server.asked)) == (401, 2)
        with pytest.raises(KubeForbidden):
            await anext(client.watch(PATH, params={}, read_timeout_seconds=1))
        assert len(server.asked) == 4


class Rotating:
    """Credentials that a test changes; counts how often they are read."""

    def __init__(self, identity: Identity) -> None:
        self.reads = 0
        self.token = "one"
        self.bad = False
        self._identity = identity

    async def read(self) -> Identity:
        self.reads += 1
        await asyncio.sleep(0)
        if self.bad:
            raise Unreadable("token file does not exist")
        made = self._identity
        return Identity(made.configuration, f"Bearer {self.token}", made.fingerprint)


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


async def rotating(folder: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> Rotating:
    settings = KubernetesSettings(kubeconfig=str(write_kubeconfig(folder, url)))
    _, identity = await find_access(settings)
    credentials = Rotating(identity)
    access = Access("service account", "ns", credentials.read, rotates=True)

    async def found(*_: object) -> tuple[Access, Identity]:
        return access, await credentials.read()

    monkeypatch.setattr("fleet.kube.client.find_access", found)
    return credentials


async def test_a_projected_token_is_read_again_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: SetClock
) -> None:
    """Not before 30 s, then at the next call; no 401 is needed."""
    async with scripted(answer(200, {}), repeat=True) as server:
        credentials = await rotating(tmp_path, server.url, monkeypatch)
        client = await open_client(KubernetesSettings(), clock=clock)
        credentials.token = "two"
        clock.now += REREAD_SECONDS - 0.001
        await client.get(PATH)
        clock.now += 0.001
        await client.get(PATH)
        await client.get(PATH)
        await client.close()
    assert [each.headers["authorization"][7:] for each in server.asked] == ["one", "two", "two"]
    assert credentials.reads == 2


async def test_a_token_that_cannot_be_read(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    clock: SetClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The old one stays in use, one warning is written, and 30 s later it is tried again."""
    async with scripted(answer(200, {}), repeat=True) as server:
        credentials = await rotating(tmp_path, server.url, monkeypatch)
        client = await open_client(KubernetesSettings(), clock=clock)
        credentials.bad = True
        clock.now += REREAD_SECONDS
        with caplog.at_level(logging.WARNING):
            await asyncio.gather(*(client.get(PATH) for _ in range(5)))
        assert [each.message for each in caplog.records] == ["credentials not read"]
        credentials.bad, credentials.token = False, "two"
        clock.now += REREAD_SECONDS
        await client.get(PATH)
        await client.close()
    assert [each.headers["authorization"][7:] for each in server.asked] == ["one"] * 5 + ["two"]


async def test_many_refused_at_once_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: SetClock
) -> None:
    """20 calls get 401 together: the credentials are read once, and all are tried again."""
    async with scripted(*[status(401)] * 20, answer(200, {}), repeat=True) as server:
        credentials = await rotating(tmp_path, server.url, monkeypatch)
        client = await open_client(KubernetesSettings(), clock=clock)
        assert await asyncio.gather(*(client.get(PATH) for _ in range(20))) == [{}] * 20
        await client.close()
    assert credentials.reads == 2


async def test_new_certificates_mean_new_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: SetClock
) -> None:
    """A watch that runs goes on over its old connection; calls use a new one."""
    event = b'{"type":"ADDED","object":{}}\n'
    script = (answer(200, event * 2), answer(200, {}))
    async with scripted(*script) as server:
        credentials = await rotating(tmp_path, server.url, monkeypatch)
        client = await open_client(KubernetesSettings(), clock=clock)
        watch = client.watch(PATH, params={}, read_timeout_seconds=5)
        await anext(watch)
        before = client._session

        async def renewed() -> Identity:
            old = await credentials.read()
            return Identity(old.configuration, old.authorization, b"another")

        monkeypatch.setattr(client, "_access", Access("x", "ns", renewed, rotates=True))
        clock.now += REREAD_SECONDS
        assert await client.get(PATH) == {}
        assert client._session is not before
        await anext(watch)
        await watch.aclose()
        await client.close()


def test_an_identity_does_not_show_its_secret() -> None:
    """Neither in a log line nor in a traceback."""

    class Configuration:
        host = "https://h"

    shown = repr(Identity(Configuration(), "Bearer SECRET", b""))
    assert shown == "Identity(https://h)"
