"""Every setting, its unit and the reason for its default. Units are in the names.

Timer defaults and their cross-checks follow one rule: a thing that waits for another must wait
longer than the other may take. `fleet.settings.checks` holds the rules; what a single value may be
stands beside it as `Annotated` metadata (`fleet.settings.limits`).
"""

from dataclasses import dataclass, field
from typing import Annotated

from fleet.settings.bounds import BoundSettings
from fleet.settings.limits import Choice, DnsLabel, Host, NotEmpty, PeerList, Port, Range, StoreUrl
from fleet.settings.metrics import MetricsSettings
from fleet.settings.picking import PickingSettings


@dataclass(frozen=True, slots=True)
class RedisSettings:
    """The store."""

    url: Annotated[str, StoreUrl()] = "redis://127.0.0.1:6379/0"
    """redis://, rediss:// (TLS), unix://, or with Sentinels
    redis+sentinel://[user:password@]host:port,host:port/service/db (rediss+sentinel:// by TLS);
    Redis or Valkey >= 6.2. See docs/redis.md."""

    request_timeout_seconds: Annotated[float, Range(0.01, 10)] = 0.3
    """Connect and answer, each; no retries inside. 2 x this + lease renew <= lease TTL."""

    min_acks: Annotated[int, Range(0, 8)] = 0
    """Replicas that must acknowledge an acquired or renewed lease and a published map (WAIT): 0
    single node, 1 with Sentinel."""


@dataclass(frozen=True, slots=True)
class ElectionSettings:
    """Who leads."""

    kind: Annotated[str, Choice(("auto", "redis", "kubernetes"))] = "auto"
    """Where the lease lives: Redis, or a Kubernetes Lease (fail-over works while Redis is
    away). auto = kubernetes if pools come from there, else redis."""

    lease_ttl_seconds: Annotated[float, Range(1, 300)] = 3.0
    """As `ttl_seconds`, for the Kubernetes Lease: an API server answers more slowly than Redis.
    Best a whole number: a Lease knows no other, so observers wait for the next one."""

    lease_renew_seconds: Annotated[float, Range(0.1, 60)] = 0.7
    """As `renew_seconds`, for the Kubernetes Lease."""

    lease_request_timeout_seconds: Annotated[float, Range(0.1, 60)] = 1.0
    """One request for the Lease. 2 x this + lease_renew_seconds <= lease_ttl_seconds."""

    ttl_seconds: Annotated[float, Range(0.1, 300)] = 2.0
    """A leader that did not renew for this long is replaced."""

    renew_seconds: Annotated[float, Range(0.02, 30)] = 0.5
    """How often the leader renews and a follower looks."""


@dataclass(frozen=True, slots=True)
class MembershipSettings:
    """Who is alive."""

    heartbeat_seconds: Annotated[float, Range(0.02, 60)] = 0.5
    """A worker's beat to the store and its report on the control stream, +-10 % jitter."""

    ttl_seconds: Annotated[float, Range(0.1, 300)] = 2.0
    """Beat and control stream both silent for this long = dead. At least 3 heartbeats."""

    refusal_gap_seconds: Annotated[float, Range(0.001, 5)] = 0.05
    """Between the two connection attempts that prove a refusal."""


@dataclass(frozen=True, slots=True)
class PlacementSettings:
    """Where groups go."""

    vnodes: Annotated[int, Range(1, 4096)] = 160
    """Ring points per unit of weight."""

    cap_ratio: Annotated[float, Range(1, 10, above=True)] = 1.08
    """A worker's cap = this x the mean load; fixed until it leaves the two bounds below."""

    cap_ratio_low: Annotated[float, Range(1, 10, above=True)] = 1.05
    """The cap is recomputed when it is less than this x the present mean."""

    cap_ratio_high: Annotated[float, Range(1, 10, above=True)] = 1.10
    """... or more than this x the present mean."""

    balance_share: Annotated[float, Range(0, 1, above=True)] = 0.01
    """Of all groups: how many one round of moves for balance alone may move (at least one)."""

    balance_seconds: Annotated[float, Range(0, 86_400)] = 30.0
    """Cool-down between two such rounds. Joins, drains and fail-overs never wait for it."""

    rollout_seconds: Annotated[float, Range(0, 86_400)] = 300.0
    """Workers of two versions count as a roll-out for this long after the last of them came or
    went; a roll-out that stands still longer (a canary) is balanced like any fleet."""

    quarantine_window_seconds: Annotated[float, Range(0, 3600)] = 10.0
    """A worker that dies this soon after it was given a group may have died of it; 0 = no
    quarantine."""

    quarantine_seconds: Annotated[float, Range(1, 86_400)] = 300.0
    """A quarantined group is released after this long without a death, or when its pool changes."""


@dataclass(frozen=True, slots=True)
class CoordinatorSettings:
    """The leader's loop and the coordinator's listeners."""

    host: Host = "0.0.0.0"  # noqa: S104 - a pod listens on its own address
    """Address to listen on."""

    http_port: Port = 8080
    """Shard-map page, API, metrics, health."""

    internal_port: Port = 8081
    """Followers of the map."""

    advertise_host: str = ""
    """The address others reach this process by; empty = `host`, which must then be one."""

    tick_seconds: Annotated[float, Range(0.01, 10)] = 0.25
    """The leader looks at the world on every event, and at least this often."""

    map_poll_seconds: Annotated[float, Range(0.01, 10)] = 0.1
    """How often a follower looks for a newer map in the store."""

    move_deadline_seconds: Annotated[float, Range(0.1, 3600)] = 30.0
    """A planned move whose gainer has not acknowledged by then is given up; if the owner leaves, it
    goes on as a plain move: to the stand-by if that is ready, else to the gainer."""


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """The worker's listeners and bounds."""

    host: Host = "0.0.0.0"  # noqa: S104 - a pod listens on its own address
    """Address to listen on."""

    ext_proc_port: Port = 9002
    """Gateways' ext_proc streams."""

    health_port: Port = 9003
    """gRPC health, plaintext."""

    internal_port: Port = 9004
    """The leader and other workers."""

    http_port: Port = 9090
    """Metrics and debugging."""

    advertise_host: str = ""
    """The address others reach this process by; empty = `host`, which must then be one."""

    weight: Annotated[int, Range(1, 100)] = 1
    """Share of the ring relative to other workers, 1..100."""

    zone: str = ""
    """Where it runs; stand-bys are in another zone than the owner if there is one."""

    node: str = ""
    """... or at least on another node."""

    release: str = ""
    """What tells this worker's release from others' of the same software: in a Deployment its
    pod-template-hash, so that a change of settings is a roll-out too."""

    share_poll_seconds: Annotated[float, Range(0.05, 60)] = 1.0
    """How often the worker repairs its share from the store."""

    peers: Annotated[str, PeerList()] = ""
    """Where a worker that starts while no coordinator and no Redis answers looks for the others, to
    learn what it held: comma-separated host:port of internal ports, dns:name:port (every address
    of the name), or file:path (a host:port a line)."""

    propagation_seconds: Annotated[float, Range(0, 600)] = 1.0
    """How long gateways may take to follow a route change."""

    stray_hold_seconds: Annotated[float, Range(0.1, 60)] = 5.0
    """How long a stream of a pool that this worker does not know waits for an owner."""

    opening_hold_seconds: Annotated[float, Range(0.1, 3600)] = 60.0
    """How long a stream waits in all while the pods of its pool, held here, are being listed."""

    stray_hold_streams: Annotated[int, Range(1, 1_000_000)] = 8192
    """How many streams may wait at once, for either; more are refused at once. A request of 2 KiB
    that waits takes 4 kB."""

    quiet_seconds: Annotated[float, Range(0.1, 3600)] = 30.0
    """A draining group is dropped after this long without a stray."""

    stream_drain_seconds: Annotated[float, Range(0, 86_400)] = 600.0
    """A stopping worker waits at most this long for its open streams."""

    max_body_bytes: Annotated[int, Range(1024, 2**30)] = 16 * 1024 * 1024
    """A request body over this is answered 413."""

    max_buffered_bytes: Annotated[int, Range(1024, 2**40)] = 256 * 1024 * 1024
    """Request bodies held by the whole worker; a stream that would pass it is answered 429."""

    response_phase: Annotated[str, Choice(("track", "detach", "drain"))] = "track"
    """What an ext_proc stream does after the pick: track (it stays until the response is through),
    detach (it ends, where the gateway is an Envoy in FULL_DUPLEX_STREAMED: a worker that dies then
    cuts no response, but tokens and latency are not seen) or drain (detach only while the worker
    hands over). A pool says otherwise by the annotation epp-fleet.dev/response-phase."""

    legacy_metrics: bool = False
    """Show the llm-d router's metrics by their old names too (inference_objective_* and such)."""

    tls: Annotated[str, Choice(("auto", "require", "off"))] = "auto"
    """How ext_proc_port speaks: auto (TLS and plaintext, as each connection begins), require
    (plaintext is refused) or off (plaintext alone)."""

    tls_certificate_file: str = ""
    """PEM of the certificate of ext_proc_port, with its intermediates. Re-read when it changes.
    Empty = one is made at each start, which no gateway can verify."""

    tls_key_file: str = ""
    """PEM of its private key."""

    tls_client_ca_file: str = ""
    """PEM of the CAs of gateways: then TLS is required, with a certificate of one of these CAs."""

    max_streams_per_connection: Annotated[int, Range(1, 2**31 - 1)] = 4096
    """SETTINGS_MAX_CONCURRENT_STREAMS: one gateway thread's open requests to this worker."""


@dataclass(frozen=True, slots=True)
class ScrapeSettings:
    """Reading the model servers' metrics."""

    interval_seconds: Annotated[float, Range(0.01, 60)] = 0.05
    """The shortest interval, for a pool with much traffic."""

    idle_interval_seconds: Annotated[float, Range(0.01, 3600)] = 30.0
    """The longest interval, for a pool without traffic."""

    timeout_seconds: Annotated[float, Range(0.01, 60)] = 1.0
    """One scrape, from connect to the last byte."""

    max_page_bytes: Annotated[int, Range(1024, 2**30)] = 32 * 1024 * 1024
    """A longer metrics page is a failed scrape."""

    max_in_flight: Annotated[int, Range(1, 65_536)] = 64
    """Scrapes at once in one worker."""

    budget_ratio: Annotated[float, Range(0, 1, above=True)] = 0.25
    """Share of a core that scraping may take; intervals stretch to keep it."""


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """Where pools and pods come from."""

    kind: Annotated[str, Choice(("auto", "manifests", "kubernetes"))] = "auto"
    """auto = the folder if `manifests` names one, else the Kubernetes API server."""

    manifests: str = ""
    """A folder of Kubernetes manifests, re-read on change."""

    poll_seconds: Annotated[float, Range(0.01, 60)] = 0.2
    """How often the folder is looked at."""


@dataclass(frozen=True, slots=True)
class RouteSettings:
    """Where gateways learn the owners from."""

    kind: Annotated[str, Choice(("auto", "eds", "endpointslices"))] = "auto"
    """auto = Envoy EDS files if `eds_directory` names a folder, else EndpointSlices."""

    eds_directory: str = ""
    """A folder of Envoy EDS files, one per route group; written by the leader."""

    lock_wait_seconds: Annotated[float, Range(0, 5)] = 0.3
    """How long a route file's lock is waited for before it is written anyway."""

    repair_seconds: Annotated[float, Range(0.01, 1)] = 0.25
    """How often the leader looks for routes that it did not write; repairs come within 1 s."""


@dataclass(frozen=True, slots=True)
class KubernetesSettings:
    """The API server, where source, routes or election are of kind `kubernetes`."""

    kubeconfig: str = ""
    """A kubeconfig file. Empty = the pod's service account, else the variable KUBECONFIG."""

    namespace: str = ""
    """The fleet's own namespace (Lease, events, Secrets). Empty = the service account's."""

    watch_namespaces: str = ""
    """Comma-separated; only these are watched, so that namespaced RBAC suffices. Empty = all."""

    request_timeout_seconds: Annotated[float, Range(0.1, 60)] = 5.0
    """One request that is no watch, list page or Lease."""

    list_page: Annotated[int, Range(10, 5000)] = 500
    """Objects a page of a list."""

    watch_seconds: Annotated[float, Range(1, 3600)] = 300.0
    """How long the server keeps a watch; ours is cut 10 s later, so that a dead link shows."""

    relist_seconds: Annotated[float, Range(10, 86400)] = 1800.0
    """A full list at least this often, whatever the watch says."""

    worker_selector: Annotated[str, NotEmpty()] = (
        "app.kubernetes.io/name=epp-fleet,app.kubernetes.io/component=worker"
    )
    """The label selector of this fleet's worker pods, in its own namespace: a worker whose pod
    is gone is dead at once."""


@dataclass(frozen=True, slots=True)
class OwnershipSettings:
    """Which pools this fleet serves. A pool's annotation epp-fleet.dev/controller-name decides;
    a pool without it is claimed as follows."""

    controller_name: Annotated[str, NotEmpty()] = "epp-fleet.dev/default"
    """domain/path; two fleets in one cluster need two names."""

    claim: Annotated[str, Choice(("all", "namespaces", "selector", "list"))] = "all"
    """all, or what the field of the same name below covers."""

    namespaces: str = ""
    """Comma-separated namespaces, for claim: namespaces."""

    selector: str = ""
    """A label selector on InferencePools (a=b,c in (d,e),!f), for claim: selector."""

    pools: str = ""
    """Comma-separated namespace/name, for claim: list."""

    cluster_domain: Annotated[str, NotEmpty()] = "cluster.local"
    """Only for people and certificates; streams are matched by Service and namespace."""


@dataclass(frozen=True, slots=True)
class SecuritySettings:
    """Who may speak on the internal port and change things."""

    token_file: str = ""
    """File with the fleet's bearer token; needed by every process of the fleet."""

    ca_file: str = ""
    """PEM of the fleet's own CA: with the two below the internal port speaks TLS, and only to
    peers whose certificate it signed. All three or none; without, it speaks on loopback alone."""

    certificate_file: str = ""
    """PEM of this process' certificate, for <role>.<fleet>.epp-fleet.internal, where the role is
    coordinator or worker. Re-read when it changes."""

    key_file: str = ""
    """PEM of its private key."""

    reads: Annotated[str, Choice(("open", "kubernetes"))] = "open"
    """Who may read /metrics and the coordinators' API: open (everybody who reaches the port) or
    kubernetes (whose bearer token the cluster knows and who may, by RBAC, get the nonResourceURL
    /metrics or /epp-fleet/*, and who bears the fleet's token). Probes are always open; so is the
    page, which shows nothing without a right to read the API."""


@dataclass(frozen=True, slots=True)
class LogSettings:
    """What is written to standard error."""

    level: Annotated[str, Choice(("debug", "info", "warning", "error"))] = "info"
    """debug, info, warning or error."""

    format: Annotated[str, Choice(("console", "json"))] = "console"
    """console or json."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The whole settings file; see deploy/settings.yaml for the annotated form."""

    fleet: Annotated[str, DnsLabel()] = "default"
    """Name of this fleet: prefix of its keys in the store; DNS label."""

    redis: RedisSettings = field(default_factory=RedisSettings)
    election: ElectionSettings = field(default_factory=ElectionSettings)
    membership: MembershipSettings = field(default_factory=MembershipSettings)
    placement: PlacementSettings = field(default_factory=PlacementSettings)
    coordinator: CoordinatorSettings = field(default_factory=CoordinatorSettings)
    worker: WorkerSettings = field(default_factory=WorkerSettings)
    bounds: BoundSettings = field(default_factory=BoundSettings)
    scrape: ScrapeSettings = field(default_factory=ScrapeSettings)
    source: SourceSettings = field(default_factory=SourceSettings)
    routes: RouteSettings = field(default_factory=RouteSettings)
    kubernetes: KubernetesSettings = field(default_factory=KubernetesSettings)
    picking: PickingSettings = field(default_factory=PickingSettings)
    ownership: OwnershipSettings = field(default_factory=OwnershipSettings)
    security: SecuritySettings = field(default_factory=SecuritySettings)
    log: LogSettings = field(default_factory=LogSettings)
    metrics: MetricsSettings = field(default_factory=MetricsSettings)
