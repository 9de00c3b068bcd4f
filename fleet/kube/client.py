"""The API server over HTTP: raw JSON, bounded in time and size, with errors of our own.

Connections, TLS and ways to log in are those of the package `kubernetes` (its asyncio client); its
models are not used: they cost more than the parsing. Nothing is tried twice in here but a 401:
once, with credentials read anew. No message and no log line holds a credential.
"""

import asyncio
import importlib
import logging
from collections.abc import AsyncGenerator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import aiohttp

from fleet import __version__
from fleet.clock import Clock, SystemClock
from fleet.errors import KubeError, KubeUnavailable, SettingsError
from fleet.kube.access import SERVICE_ACCOUNT, Access, Identity, Unreadable, find_access
from fleet.kube.call_errors import CallErrors
from fleet.kube.contract import MERGE_PATCH, Raw
from fleet.kube.lines import Lines, LineTooLong
from fleet.kube.replies import answer_of, event_of, refusal_of
from fleet.kube.targets import Target, target
from fleet.settings.model import KubernetesSettings

log = logging.getLogger(__name__)

MAX_RESPONSE_BYTES: Final = 64 * 1024 * 1024
"""One object or page; 500 pods are about 5 MiB, an object at most 3 MiB (etcd)."""

MAX_LINE_BYTES: Final = 8 * 1024 * 1024
"""One event of a watch: one object."""

MAX_ERROR_BYTES: Final = 64 * 1024
"""Of an answer that is an error only this much is read."""

CONNECT_SECONDS: Final = 3.0
"""At most this for TCP and TLS: one lost SYN is sent again after 1 s."""

REREAD_SECONDS: Final = 30.0
"""A projected token is looked at this often; the kubelet replaces it at 80 % of its life."""

CONNECTIONS: Final = 256
"""Above what we use at once: watches of 40 namespaces and of the kinds, 50 slices in flight."""

READ_BUFFER: Final = 256 * 1024
"""Bytes a connection may hold unread, twice; lines are framed here."""


async def open_client(
    settings: KubernetesSettings,
    *,
    environ: Mapping[str, str] | None = None,
    service_account: Path = SERVICE_ACCOUNT,
    clock: Clock | None = None,
) -> "KubeClient":
    """A client of the first of: the setting `kubeconfig`, the service account, KUBECONFIG.

    Connects on first use.

    Args:
        environ: instead of the process's environment.
        service_account: the folder with `token`, `ca.crt` and `namespace`.

    Raises:
        SettingsError: none of them works; it says why.
    """
    access, identity = await find_access(settings, environ, service_account)
    try:
        session = await _session(identity)
    except (OSError, ValueError) as error:
        problem = f"kubernetes.kubeconfig: {access.origin}: certificates: {error}"
        raise SettingsError([problem]) from None
    log.info("API server", extra={"server": identity.configuration.host, "by": access.origin})
    return KubeClient(settings, access, identity, session, clock or SystemClock())


async def _session(identity: Identity) -> Any:
    """The package's `ApiClient`; reads the certificates in a thread."""
    client = importlib.import_module("kubernetes.aio.client")
    configuration = identity.configuration
    configuration.retries = None
    configuration.connection_pool_maxsize = CONNECTIONS
    # Python 3.13 refuses CAs without an Authority Key Identifier, which many clusters still have.
    configuration.disable_strict_ssl_verification = True
    configuration.client_session_kwargs = {
        "cookie_jar": aiohttp.DummyCookieJar(),
        "response_class": _Answer,
        "read_bufsize": READ_BUFFER,
        # Else each request would look for a ~/.netrc in a thread. A proxy is named in a kubeconfig.
        "trust_env": False,
    }
    made = await asyncio.to_thread(client.ApiClient, configuration)
    pool = made.rest_client._create_pool_manager()
    # A PUT that is silently sent again reads as a conflict with ourselves.
    pool._retry_connection = False
    made.rest_client.pool_manager = pool
    return made


class _Answer(aiohttp.ClientResponse):
    """An answer that is closed before its end breaks its connection off, also by a cancellation
    before its head has come.

    Without TLS's farewell: nobody would wait for the peer's, and the socket would outlive us.
    """

    def close(self) -> None:
        """Give the connection back, or break it off if there is more to read."""
        connection = self.connection
        if connection is not None and connection.transport is not None:
            connection.transport.abort()
        super().close()


class KubeClient:
    """See `fleet.kube.contract.KubeApi`. For one event loop."""

    def __init__(
        self,
        settings: KubernetesSettings,
        access: Access,
        identity: Identity,
        session: Any,
        clock: Clock,
    ) -> None:
        """See `open_client`."""
        self.failed = CallErrors()
        self._timeout_seconds = settings.request_timeout_seconds
        self._namespace = settings.namespace or access.namespace
        self._access = access
        self._identity = identity
        self._session = session
        self._retired: Any = None
        self._clock = clock
        self._read_at = clock.monotonic()
        self._generation = 0
        self._read_well = True
        self._reading = asyncio.Lock()
        self._closed = False

    @property
    def namespace(self) -> str:
        """See `KubeApi.namespace`."""
        return self._namespace

    async def get(
        self,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        timeout_seconds: float | None = None,
    ) -> Raw:
        """See `KubeApi.get`."""
        return await self._call("GET", path, params, None, "", timeout_seconds)

    async def read(
        self,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        timeout_seconds: float | None = None,
    ) -> bytearray:
        """See `KubeApi.read`."""
        what = target("GET", path)
        seconds = self._timeout_seconds if timeout_seconds is None else timeout_seconds
        asked = self._send(what, "GET", path, params, None, "")
        body: bytearray = await self._bounded(what, self._whole(what, asked), seconds)
        return body

    async def create(self, path: str, body: Raw, *, timeout_seconds: float | None = None) -> Raw:
        """See `KubeApi.create`."""
        return await self._call("POST", path, None, body, "application/json", timeout_seconds)

    async def replace(self, path: str, body: Raw, *, timeout_seconds: float | None = None) -> Raw:
        """See `KubeApi.replace`."""
        return await self._call("PUT", path, None, body, "application/json", timeout_seconds)

    async def patch(
        self,
        path: str,
        body: Raw,
        *,
        content_type: str = MERGE_PATCH,
        params: Mapping[str, str] | None = None,
        timeout_seconds: float | None = None,
    ) -> Raw:
        """See `KubeApi.patch`."""
        return await self._call("PATCH", path, params, body, content_type, timeout_seconds)

    async def delete(
        self, path: str, *, body: Raw | None = None, timeout_seconds: float | None = None
    ) -> Raw:
        """See `KubeApi.delete`."""
        return await self._call("DELETE", path, None, body, "application/json", timeout_seconds)

    async def watch(
        self, path: str, *, params: Mapping[str, str], read_timeout_seconds: float
    ) -> AsyncGenerator[Raw, None]:
        """See `KubeApi.watch`. A line over `MAX_LINE_BYTES` or cut short is KubeUnavailable."""
        what = target("GET", path, watching=True)
        query = {**params, "watch": "1"}
        response = await self._bounded(
            what, self._send(what, "GET", path, query, None, ""), self._timeout_seconds
        )
        lines = Lines(MAX_LINE_BYTES)
        try:
            while True:
                chunk = await self._bounded(what, response.content.readany(), read_timeout_seconds)
                if not chunk:
                    break
                for line in self._framed(what, lines, chunk):
                    yield event_of(line, what)
            # A server that does not frame its answer may leave out the last line's end; a line cut
            # short is no JSON object.
            last = lines.rest()
            if last:
                yield event_of(last, what)
        finally:
            response.close()

    async def close(self) -> None:
        """See `KubeApi.close`."""
        self._closed = True
        for session in (self._session, self._retired):
            if session is not None:
                await session.close()
        self._retired = None

    async def _call(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None,
        body: Raw | None,
        content_type: str,
        timeout_seconds: float | None,
    ) -> Raw:
        what = target(method, path)
        seconds = self._timeout_seconds if timeout_seconds is None else timeout_seconds
        asked = self._send(what, method, path, params, body, content_type)
        return answer_of(await self._bounded(what, self._whole(what, asked), seconds), what)

    async def _whole(self, what: Target, asked: Any) -> bytearray:
        response = await asked
        try:
            return await self._body(what, response)
        finally:
            response.close()

    async def _bounded(self, what: Target, work: Any, seconds: float) -> Any:
        """Await `work`; whatever goes wrong on the way is KubeUnavailable."""
        try:
            async with asyncio.timeout(seconds):
                return await work
        except (aiohttp.ClientError, OSError) as error:
            words = str(error) or type(error).__name__
            if type(error) is TimeoutError:  # ours; aiohttp's say what they waited for
                words = f"no answer within {seconds:g} s"
            unavailable = KubeUnavailable(f"{what}: {self._without_secret(words)}")
            self.failed.count(unavailable)
            raise unavailable from None

    async def _send(
        self,
        what: Target,
        method: str,
        path: str,
        params: Mapping[str, str] | None,
        body: Raw | None,
        content_type: str,
    ) -> Any:
        """The response with status 2xx, body unread; a 401 is tried once more."""
        url = f"{path}?{urlencode(params)}" if params else path
        await self._reread_when_due()
        generation = self._generation
        response = await self._request(what, method, url, body, content_type)
        try:
            if response.status == 401 and await self._read_anew(generation):
                response.close()
                response = await self._request(what, method, url, body, content_type)
            if 200 <= response.status < 300:
                return response
            refusal = await self._refusal(what, response)
            self.failed.count(refusal)
            raise refusal
        except BaseException:
            response.close()
            raise

    async def _refusal(self, what: Target, response: Any) -> KubeError:
        body = bytearray()
        while len(body) < MAX_ERROR_BYTES and (chunk := await response.content.readany()):
            body += chunk
        text = self._without_secret(body[:MAX_ERROR_BYTES].decode("utf-8", "replace"))
        now = datetime.fromtimestamp(self._clock.wall(), UTC)
        return refusal_of(what, response.status, response.headers, text.encode(), now)

    async def _request(
        self, what: Target, method: str, url: str, body: Raw | None, content_type: str
    ) -> Any:
        if self._closed:
            raise KubeUnavailable(f"{what}: the client is closed")
        headers = {
            "Accept": "application/json",
            # Unpacking would run on the loop; the API server is near.
            "Accept-Encoding": "identity",
            "User-Agent": f"epp-fleet/{__version__}",
        }
        if content_type:
            headers["Content-Type"] = content_type
        if self._identity.authorization:
            headers["Authorization"] = self._identity.authorization
        reply = await self._session.call_api(
            method,
            self._identity.configuration.host + url,
            header_params=headers,
            body=body,
            _request_timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
        )
        return reply.response

    async def _body(self, what: Target, response: Any) -> bytearray:
        body = bytearray()
        while chunk := await response.content.readany():
            body += chunk
            if len(body) > MAX_RESPONSE_BYTES:
                limit = MAX_RESPONSE_BYTES // 2**20
                advice = "; lower kubernetes.list_page" if what.verb == "list" else ""
                raise KubeUnavailable(f"{what}: the answer is over {limit} MiB{advice}")
        return body

    def _framed(self, what: Target, lines: Lines, chunk: bytes) -> list[bytes]:
        try:
            return lines.feed(chunk)
        except LineTooLong:
            limit = MAX_LINE_BYTES // 2**20
            raise KubeUnavailable(f"{what}: a line of the watch is over {limit} MiB") from None

    async def _reread_when_due(self) -> None:
        now = self._clock.monotonic()
        if self._access.rotates and now - self._read_at >= REREAD_SECONDS:
            self._read_at = now  # others go on with what we have
            await self._read_anew(self._generation)

    async def _read_anew(self, generation: int) -> bool:
        """Read the credentials, unless somebody did since `generation`; False if they are bad.

        The old ones stay in use then: a file may be missing for a moment.
        """
        async with self._reading:
            if self._generation != generation:
                return self._read_well
            self._generation += 1
            self._read_at = self._clock.monotonic()
            self._read_well = await self._read()
            return self._read_well

    async def _read(self) -> bool:
        try:
            identity = await self._access.read()
            if identity.fingerprint != self._identity.fingerprint:
                await self._renew_session(identity)
        except (Unreadable, OSError, ValueError) as error:
            facts = {"by": self._access.origin, "error": str(error)}
            log.warning("credentials not read", extra=facts)
            return False
        self._identity = identity
        return True

    async def _renew_session(self, identity: Identity) -> None:
        """New certificates need new connections. Running watches keep the old ones, but only until
        the next renewal."""
        session = await _session(identity)
        retired, self._retired, self._session = self._retired, self._session, session
        if retired is not None:
            await retired.close()

    def _without_secret(self, text: str) -> str:
        """A proxy may repeat our header in its error page."""
        _, _, secret = self._identity.authorization.partition(" ")
        return text.replace(secret, "***") if secret else text
