"""The coordinators' HTTP API, as the commands and local mode use it.

Any replica answers reads, so each known one is tried in turn. Commands go to whoever leads: a
follower's 307 is followed, but the token goes only to addresses that were known before.
"""

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from fleet.local.faults import Refused, Unreachable
from fleet.settings.limits import masked_url

Json = Mapping[str, Any]
MAP_PATH = "/api/v1/map"
WORKERS_PATH = "/api/v1/workers"
MAX_REDIRECTS = 3


def origin(address: str) -> str:
    """`http://host:port` of `host:port` or of a URL; what follows is dropped.

    Raises:
        ValueError: no host in it, or another scheme than http and https.
    """
    parts = urlsplit(address if "://" in address else f"http://{address}")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"not a coordinator's address: {masked_url(address)[:200]!r}")
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def _words(base: str, error: Exception) -> str:
    """Who did not answer and why, in the system's own words if there are any."""
    if isinstance(error, aiohttp.ClientConnectorError):
        number = error.os_error.errno
        known = number is not None and number > 0
        why = os.strerror(number).lower() if known and number else str(error.os_error.strerror)
        return f"{error.host}:{error.port}: {why}"  # a redirect's target, perhaps
    if isinstance(error, TimeoutError):
        return f"{base}: no answer in time"
    return f"{base}: {str(error) or type(error).__name__}"


def _nobody(said: Sequence[str]) -> Unreachable:
    return Unreachable(
        "no coordinator answers: " + ("; ".join(dict.fromkeys(said)) or "none known")
    )


def _error_of(body: Any, status: int) -> tuple[str, str]:
    error = body.get("error") if isinstance(body, dict) else None
    if isinstance(error, dict):
        return str(error.get("message", "")), str(error.get("code", ""))
    return f"HTTP status {status}", ""


def _bearing(token: str) -> Mapping[str, str]:
    return {"authorization": f"Bearer {token}"}


class CoordinatorApi:
    """The replicas of one fleet.

    Args:
        addresses: `host:port` or URLs, tried in this order.
        token: what a read bears where one without is refused, "" = none; called only then.

    Attributes:
        answered: the replica that answered last, "" = none yet. Reads begin with it.
    """

    def __init__(
        self,
        http: aiohttp.ClientSession,
        addresses: Sequence[str],
        *,
        timeout_seconds: float = 3.0,
        token: Callable[[], str] = lambda: "",
    ) -> None:
        self._http = http
        self._token = token
        self._origins = [origin(address) for address in addresses]
        self._timeout = aiohttp.ClientTimeout(total=timeout_seconds)
        self.answered = ""

    async def _call(
        self, method: str, url: str, headers: Mapping[str, str]
    ) -> tuple[int, Mapping[str, str], Any]:
        async with self._http.request(
            method, url, headers=headers, timeout=self._timeout, allow_redirects=False
        ) as answer:
            raw = await answer.read()
            try:
                body = json.loads(raw) if raw else None
            except ValueError:
                body = None
            return answer.status, answer.headers, body

    async def get(self, path: str, *, wanted: str = "") -> Json:
        """Read from the first replica that answers.

        Args:
            wanted: what is asked for; a replica that says it does not exist has answered, if it
                says so with this error code or one that ends in it.

        Raises:
            Refused: what is `wanted` does not exist.
            Unreachable: none did.
        """
        said = []
        for base in sorted(self._origins, key=lambda each: each != self.answered):
            try:
                status, _, body = await self._call("GET", base + path, {})
                if status == 401 and (token := self._token()):
                    status, _, body = await self._call("GET", base + path, _bearing(token))
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                said.append(_words(base, error))
                continue
            if status == 200 and isinstance(body, dict):
                self.answered = base
                return body
            message, code = _error_of(body, status)
            if wanted and status == 404 and code.endswith(wanted):
                raise Refused(message, status=status, code=code)
            said.append(f"{base}: {message}")
        raise _nobody(said)

    async def shard_map(self) -> Json:
        """`GET /api/v1/map`; raises as `get`."""
        return await self.get(MAP_PATH)

    async def workers(self) -> Json:
        """`GET /api/v1/workers`; raises as `get`."""
        return await self.get(WORKERS_PATH)

    async def _known(self) -> set[str]:
        known = set(self._origins)
        try:
            leader = (await self.shard_map()).get("leader")
        except Unreachable:
            return known
        if isinstance(leader, dict) and isinstance(leader.get("http"), str):
            known.add(origin(leader["http"]))
        return known

    async def command(self, path: str, token: str) -> None:
        """POST to whoever leads.

        Raises:
            Refused: it said no (also: there is no leader at the moment).
            Unreachable: nobody answered.
        """
        known = await self._known()
        headers = _bearing(token)
        said: list[str] = []
        for base in self._origins:
            try:
                return await self._follow(base, path, headers, known)
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                said.append(_words(base, error))
        raise _nobody(said)

    async def _follow(
        self, base: str, path: str, headers: Mapping[str, str], known: Iterable[str]
    ) -> None:
        for _ in range(MAX_REDIRECTS + 1):
            status, answered, body = await self._call("POST", base + path, headers)
            if status in (200, 202):
                return
            if status != 307:
                message, code = _error_of(body, status)
                raise Refused(message, status=status, code=code)
            target = origin(answered.get("Location", ""))
            if target not in known:
                raise Refused(
                    f"{base} sends us to {target}, which is no known coordinator",
                    status=status,
                    code="unknown_leader",
                )
            base = target
        raise Refused("coordinators send us in a circle", status=307, code="circle")
