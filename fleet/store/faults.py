"""What can be wrong with a store: kinds of faults, how often each was met, and what to do.

Whatever the kind, it means "unknown" to the caller; the kind is for people and for metrics. Each
kind is said once, with what to do about it, and again only after it was away for a while.
"""

import asyncio
import logging
import ssl
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from redis.exceptions import (
    AskError,
    AuthenticationError,
    BusyLoadingError,
    ClusterDownError,
    MasterDownError,
    MaxConnectionsError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)
from redis.exceptions import TimeoutError as RedisTimeoutError

from fleet.clock import Clock

log = logging.getLogger(__name__)

AGAIN_SECONDS: Final = 60.0
"""A kind that was not met for so long is news again."""

_CAUSES: Final = 5
"""So far back in a chain of exceptions a cause is looked for."""


class PrimaryUnknown(RedisError):
    """The Sentinels name no primary, or what they name is none."""


class Fault(StrEnum):
    """What went wrong, as metrics and logs name it."""

    TIMEOUT = "timeout"
    REFUSED = "refused"
    CONNECTION = "connection"
    TLS = "tls"
    SENTINEL = "sentinel"
    AUTH = "auth"
    PERMISSION = "permission"
    LOADING = "loading"
    READ_ONLY = "read_only"
    MEMORY = "memory"
    DISK = "disk"
    REPLICAS = "replicas"
    BUSY = "busy"
    CLIENTS = "clients"
    CLUSTER = "cluster"
    FORMAT = "format"
    SERVER = "server"


REMEDIES: Final[Mapping[Fault, str]] = {
    Fault.TIMEOUT: "look whether the server hangs or the network drops packets; answers must come "
    "within redis.request_timeout_seconds",
    Fault.REFUSED: "start the server, or mend host and port in redis.url",
    Fault.CONNECTION: "look at the server's log and at what lies between; mend redis.url if the "
    "name is wrong",
    Fault.TLS: "mend ssl_ca_certs, ssl_certfile or ssl_keyfile in redis.url, or the server's "
    "certificate: it must name the host in the URL",
    Fault.SENTINEL: "look at the Sentinels (SENTINEL MASTERS); the service's name in redis.url "
    "must be one that they monitor",
    Fault.AUTH: "mend user and password in redis.url",
    Fault.PERMISSION: "give the user the rights that docs/redis.md lists (ACL SETUSER)",
    Fault.LOADING: "wait: the server reads its data set",
    Fault.READ_ONLY: "nothing if this was a fail-over; else redis.url leads to a replica",
    Fault.MEMORY: "raise maxmemory of the server; docs/redis.md says what a fleet needs",
    Fault.DISK: "mend the server's disk, or turn its snapshots off: a fleet needs none",
    Fault.REPLICAS: "bring the replicas back: redis.min_acks or min-replicas-to-write is not met",
    Fault.BUSY: "look for slow scripts of others on this server (SCRIPT KILL)",
    Fault.CLIENTS: "raise maxclients: a process of the fleet holds up to 6 connections",
    Fault.CLUSTER: "use the address of the primary that has the fleet's slot, or no cluster",
    Fault.FORMAT: "look who else writes the fleet's keys; a newer version of the fleet must not "
    "be more than one ahead",
    Fault.SERVER: "look at what the server says",
}
"""What to do about each kind."""

_CODES: Final = (
    ("NOPERM", Fault.PERMISSION),
    ("no permissions", Fault.PERMISSION),
    ("NOAUTH", Fault.AUTH),
    ("WRONGPASS", Fault.AUTH),
    ("READONLY", Fault.READ_ONLY),
    ("OOM", Fault.MEMORY),
    ("MISCONF", Fault.DISK),
    ("NOREPLICAS", Fault.REPLICAS),
    ("LOADING", Fault.LOADING),
    ("BUSY", Fault.BUSY),
    ("max number of clients", Fault.CLIENTS),
    ("CROSSSLOT", Fault.CLUSTER),
)
"""Inside a script, or from an older server, the code is somewhere in the text."""

_CLASSES: Final[tuple[tuple[type[Exception], Fault], ...]] = (
    (PrimaryUnknown, Fault.SENTINEL),
    (AuthenticationError, Fault.AUTH),
    (NoPermissionError, Fault.PERMISSION),
    (BusyLoadingError, Fault.LOADING),
    (ReadOnlyError, Fault.READ_ONLY),
    (OutOfMemoryError, Fault.MEMORY),
    (AskError, Fault.CLUSTER),
    (ClusterDownError, Fault.CLUSTER),
    (MasterDownError, Fault.CLUSTER),
    (MaxConnectionsError, Fault.TIMEOUT),
    (RedisTimeoutError, Fault.TIMEOUT),
    (asyncio.TimeoutError, Fault.TIMEOUT),
    (ssl.SSLError, Fault.TLS),
    (ConnectionRefusedError, Fault.REFUSED),
)


def fault_of(error: BaseException) -> Fault:
    """The kind of an exception of the Redis library, of the network, or of a reply."""
    for cause in _chain(error):
        for kind, fault in _CLASSES:
            if isinstance(cause, kind):
                return fault
    text = str(error)
    for code, fault in _CODES:
        if code in text:
            return fault
    return Fault.SERVER if isinstance(error, ResponseError) else Fault.CONNECTION


def _chain(error: BaseException) -> list[BaseException]:
    found: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and len(found) < _CAUSES:
        found.append(cause)
        cause = cause.__cause__ or cause.__context__
    return found


_AWAY = frozenset(
    (
        Fault.TIMEOUT,
        Fault.REFUSED,
        Fault.CONNECTION,
        Fault.SENTINEL,
        Fault.LOADING,
        Fault.TLS,
        Fault.AUTH,
        Fault.CLIENTS,
    )
)
"""Kinds of faults in which the server answers nobody."""


class Faults:
    """Those that one store met: counted by kind, each kind said once."""

    def __init__(self, store: str, clock: Clock) -> None:
        """Args:
        store: its URL without secrets.
        """
        self.counts: dict[str, int] = {fault.value: 0 for fault in Fault}
        self._store = store
        self._clock = clock
        self._met: dict[Fault, float] = {}
        self._away: float | None = None

    def saw(self, fault: Fault, what: str) -> None:
        """One more of this kind; `what` holds no secret."""
        self.counts[fault.value] += 1
        now = self._clock.monotonic()
        last = self._met.get(fault)
        self._met[fault] = now
        if last is not None and now - last < AGAIN_SECONDS:
            return
        if self._away is None and fault in _AWAY:
            self._away = now
        log.warning(
            "store error",
            extra={
                "store": self._store,
                "kind": fault.value,
                "said": what,
                "remedy": REMEDIES[fault],
            },
        )

    def answered(self) -> None:
        """A good answer; the first one after an absence that was said is said too."""
        if self._away is not None:
            away, self._away = self._clock.monotonic() - self._away, None
            extra = {"store": self._store, "away_seconds": round(away, 1)}
            log.info("store answers again", extra=extra)
