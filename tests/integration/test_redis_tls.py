"""rediss:// against real TLS: the certificate is checked, files of one's own are used."""

import ssl
from collections.abc import Iterator

import pytest

from fleet.errors import StoreUnavailable
from fleet.model import Addresses, Member
from fleet.settings.model import RedisSettings
from fleet.store.redis import RedisStore
from tests.control_plane.pki import Pki
from tests.redis_proxy import RedisProxy
from tests.sentinels import SERVICE, named
from tests.valkey import Valkey, running_valkey

MEMBER = Member("worker-0", "i0", Addresses("a:1", "a:2", "a:3", "a:4"))
PASSWORD = "s3same"


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    """A CA, a certificate for 127.0.0.1, and a client's."""
    return Pki(tmp_path_factory.mktemp("pki"))


@pytest.fixture(scope="module")
def server() -> Iterator[Valkey]:
    """A server with a password; TLS ends in a proxy before it, as with stunnel or a load
    balancer."""
    with running_valkey(arguments=("--requirepass", PASSWORD)) as valkey:
        yield valkey


def speaking(pki: Pki, name: str) -> ssl.SSLContext:
    """What a proxy with this certificate speaks."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pki.certificate(name), pki.key(name))
    return context


@pytest.fixture
def tls(pki: Pki) -> ssl.SSLContext:
    """A certificate for 127.0.0.1."""
    return speaking(pki, "apiserver")


def client(place: str, *, timeout: float = 5.0, **files: str) -> RedisStore:
    options = "&".join(f"{name}={path}" for name, path in files.items())
    url = f"rediss://:{PASSWORD}@{place}?{options}"
    return RedisStore(RedisSettings(url, request_timeout_seconds=timeout), "blue")


async def test_a_store_by_tls(server: Valkey, tls: ssl.SSLContext, pki: Pki) -> None:
    """With the CA's file everything works as in plaintext."""
    async with RedisProxy.before(server.port, tls=tls) as proxy:
        store = client(f"127.0.0.1:{proxy.port}/0", ssl_ca_certs=pki.certificate("ca"))
        await store.beat(MEMBER)
        assert [beat.member for beat in await store.members()] == [MEMBER]
        await store.close()


async def test_a_clients_certificate_is_shown(
    server: Valkey, tls: ssl.SSLContext, pki: Pki
) -> None:
    """A server that wants one refuses who has none, and takes who has one."""
    tls.load_verify_locations(pki.certificate("ca"))
    tls.verify_mode = ssl.CERT_REQUIRED
    ca = pki.certificate("ca")
    async with RedisProxy.before(server.port, tls=tls) as proxy:
        place = f"127.0.0.1:{proxy.port}/0"
        bare = client(place, ssl_ca_certs=ca)
        with pytest.raises(StoreUnavailable):
            await bare.lease()
        await bare.close()
        mine, key = pki.certificate("admin"), pki.key("admin")
        store = client(place, ssl_ca_certs=ca, ssl_certfile=mine, ssl_keyfile=key)
        assert (await store.lease()).epoch == 0
        await store.close()


@pytest.mark.parametrize(
    ("shown", "trusted", "said"),
    [
        ("apiserver", "front-proxy-ca", "certificate verify failed"),
        ("elsewhere", "ca", "IP address mismatch"),
    ],
)
async def test_a_strange_certificate_is_refused_and_named(
    server: Valkey, pki: Pki, shown: str, trusted: str, said: str
) -> None:
    """Unknown CA, or a name that it is not for: unknown, counted as TLS, nothing was sent."""
    pki.leaf("elsewhere", "/CN=elsewhere", "subjectAltName=DNS:elsewhere")
    async with RedisProxy.before(server.port, tls=speaking(pki, shown)) as proxy:
        store = client(f"127.0.0.1:{proxy.port}/0", ssl_ca_certs=pki.certificate(trusted))
        with pytest.raises(StoreUnavailable, match=said) as caught:
            await store.lease()
        assert PASSWORD not in str(caught.value)
        assert store.errors()["tls"] == 1
        assert proxy.commands == 0
        await store.close()


async def test_plaintext_is_no_tls(server: Valkey, pki: Pki) -> None:
    """A server without TLS behind a rediss:// URL is named, and gets no password."""
    place = f"127.0.0.1:{server.port}/0"
    store = client(place, timeout=0.5, ssl_ca_certs=pki.certificate("ca"))
    with pytest.raises(StoreUnavailable, match=str(server.port)):
        await store.lease()
    await store.close()


async def test_missing_files_are_named(server: Valkey) -> None:
    """A file that is not there is no crash: the Secret may come later."""
    store = client(f"127.0.0.1:{server.port}/0", ssl_ca_certs="/no/such/ca.crt")
    with pytest.raises(StoreUnavailable, match="No such file"):
        await store.lease()
    await store.close()


async def test_sentinels_by_tls(server: Valkey, tls: ssl.SSLContext, pki: Pki) -> None:
    """rediss+sentinel:// speaks TLS to the Sentinels and to what they name."""
    async with (
        RedisProxy.before(server.port, tls=tls) as primary,
        RedisProxy.before(server.port, tls=tls) as sentinel,
    ):
        sentinel.canned = named(primary.port, 1)
        url = (
            f"rediss+sentinel://:{PASSWORD}@127.0.0.1:{sentinel.port}/{SERVICE}"
            f"?ssl_ca_certs={pki.certificate('ca')}"
        )
        store = RedisStore(RedisSettings(url, request_timeout_seconds=5.0), "blue")
        await store.beat(MEMBER)
        assert primary.commands > 0
        await store.close()
