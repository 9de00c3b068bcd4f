"""Which kinds of source, routes and election a fleet has: `auto` resolved, nonsense refused.

Pure functions of `Settings`; what `auto` means stands beside each field in the model.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from fleet.settings.model import Settings

AUTO = "auto"
MANIFESTS = "manifests"
KUBERNETES = "kubernetes"
EDS = "eds"
ENDPOINT_SLICES = "endpointslices"
REDIS = "redis"

Problem = tuple[tuple[str, ...], str]
"""The fields that do not go together (the message is filed under the first), and why."""


@dataclass(frozen=True, slots=True)
class Kinds:
    """The kinds that are used.

    Attributes:
        source: `manifests` or `kubernetes`.
        routes: `eds` or `endpointslices`.
        election: `redis` or `kubernetes`.
    """

    source: str
    routes: str
    election: str

    @property
    def need_api_server(self) -> bool:
        """Whether a coordinator speaks to an API server (a worker: for the source, and to
        authorize reads)."""
        return KUBERNETES in (self.source, self.election) or self.routes == ENDPOINT_SLICES


def kinds_of(settings: Settings) -> Kinds:
    """The kinds that these settings choose."""
    source, routes, election = settings.source, settings.routes, settings.election
    pools_from = source.kind
    if pools_from == AUTO:
        pools_from = MANIFESTS if source.manifests else KUBERNETES
    written_to = routes.kind
    if written_to == AUTO:
        written_to = EDS if routes.eds_directory else ENDPOINT_SLICES
    lease_in = election.kind
    if lease_in == AUTO:
        lease_in = KUBERNETES if pools_from == KUBERNETES else REDIS
    return Kinds(pools_from, written_to, lease_in)


def lease_ttl_seconds(settings: Settings) -> float:
    """After how long without a renewal another coordinator leads."""
    if kinds_of(settings).election == KUBERNETES:
        return settings.election.lease_ttl_seconds
    return settings.election.ttl_seconds


def kind_problems(settings: Settings) -> Iterator[Problem]:
    """Kinds that are named and do not go together; what `auto` makes of the rest is not judged."""
    source, routes = settings.source, settings.routes
    redis = settings.redis
    if kinds_of(settings).election == REDIS and "+sentinel:" in redis.url and not redis.min_acks:
        yield (
            ("redis.min_acks", "redis.url", "election.kind"),
            "is 0, but the lease is in a Redis with Sentinels: an epoch that no replica has is "
            "given again after a fail-over; set redis.min_acks: 1",
        )
    if source.kind == MANIFESTS and not source.manifests:
        yield (
            ("source.manifests", "source.kind"),
            "is empty, but source.kind is manifests; name the folder with the fleet's manifests",
        )
    if source.kind == KUBERNETES and source.manifests:
        yield (
            ("source.manifests", "source.kind"),
            "names a folder, but source.kind is kubernetes: pools come from one of them; remove it,"
            " or set source.kind: manifests",
        )
    if routes.kind == EDS and not routes.eds_directory:
        yield (
            ("routes.eds_directory", "routes.kind"),
            "is empty, but routes.kind is eds; name the folder that gateways read",
        )
    if routes.kind == ENDPOINT_SLICES and routes.eds_directory:
        yield (
            ("routes.eds_directory", "routes.kind"),
            "names a folder, but routes.kind is endpointslices: routes go to one of them; remove "
            "it, or set routes.kind: eds",
        )
    if routes.kind == ENDPOINT_SLICES and source.kind != KUBERNETES and source.manifests:
        yield (
            ("routes.kind", "source.manifests"),
            "is endpointslices, but pools come from the folder source.manifests, whose Services "
            "are in no cluster; set routes.kind: eds, or take pools from the API server",
        )


def coordinator_problems(settings: Settings) -> Iterator[Problem]:
    """What only a coordinator must have: somewhere to write routes that gateways follow."""
    kinds = kinds_of(settings)
    by_auto = settings.routes.kind == AUTO
    if by_auto and kinds.source == MANIFESTS and kinds.routes == ENDPOINT_SLICES:
        yield (
            ("routes.eds_directory", "source.manifests"),
            "is empty, but pools come from the folder source.manifests; name the folder that "
            "gateways read",
        )
