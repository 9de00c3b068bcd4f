"""Names of things, as they appear in maps, metrics, logs and on the wire."""

from dataclasses import dataclass
from typing import NamedTuple


class EpochVersion(NamedTuple):
    """Leadership generation and map generation, always compared as the pair.

    A higher epoch wins over any version of a lower one; `NONE` is below everything published.
    """

    epoch: int
    version: int

    def __str__(self) -> str:
        return f"{self.epoch}.{self.version}"

    @classmethod
    def parse(cls, text: str) -> "EpochVersion":
        """Read `epoch.version`.

        Raises:
            ValueError: not two non-negative decimal numbers.
        """
        epoch, dot, version = text.partition(".")
        if not (dot and epoch.isascii() and epoch.isdigit() and version.isascii()):
            raise ValueError(f"not an epoch.version: {text[:80]!r}")
        if not version.isdigit():
            raise ValueError(f"not an epoch.version: {text[:80]!r}")
        return cls(int(epoch), int(version))

    def next(self) -> "EpochVersion":
        """The following version of the same epoch."""
        return EpochVersion(self.epoch, self.version + 1)


NONE = EpochVersion(0, 0)


class PoolRef(NamedTuple):
    """An InferencePool by namespace and name."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class ObjectRef(NamedTuple):
    """An object of a known kind by namespace and name."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class PoolReference(NamedTuple):
    """An InferencePool as other objects of its namespace refer to it.

    Attributes:
        group: the pool's API group; an object that names the other group means another pool.
    """

    namespace: str
    name: str
    group: str


class PoolId(NamedTuple):
    """One life of an InferencePool: the same name with another uid is another pool."""

    ref: PoolRef
    uid: str


class GroupKey(NamedTuple):
    """A route group: all pools that gateways reach by one (namespace, Service, port)."""

    namespace: str
    service: str
    port: int

    def __str__(self) -> str:
        return f"{self.namespace}/{self.service}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> "GroupKey":
        """Read `namespace/service:port`.

        Raises:
            ValueError: another shape.
        """
        namespace, slash, rest = text.partition("/")
        service, colon, port = rest.rpartition(":")
        if not (slash and colon and namespace and service and port.isascii() and port.isdigit()):
            raise ValueError(f"not a namespace/service:port: {text[:300]!r}")
        return cls(namespace, service, int(port))


def host_port(host: str, port: int) -> str:
    """`host:port` for a name or an IP address; an IPv6 address goes into brackets, as it is."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@dataclass(frozen=True, slots=True)
class LeaderInfo:
    """A coordinator as others reach it; addresses are `host:port`."""

    id: str
    http: str
    internal: str
