"""What a term is given instead of reaching for it."""

from dataclasses import dataclass

from coordinator.deletion_cost import DeletionCosts
from coordinator.groups import PoolGroups
from coordinator.knowledge import Knowledge
from coordinator.leader.storing import StoreLag
from coordinator.metrics import Metrics
from coordinator.reach import WorkerReach
from coordinator.routes.contract import Routes
from coordinator.services import ServiceKeeper
from coordinator.worker_pods import WorkerPods
from fleet.clock import Clock
from fleet.settings.model import Settings
from fleet.store.contract import Store


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a term works with; all of it outlives the term.

    Attributes:
        reach: the ways to the workers.
        pods: of the workers, where they are pods.
        costs: what their going would move is written on those pods.
        in_store: whether the lease is in the store.
        store_lag: how far the store is behind the published map, where it is written behind.
    """

    settings: Settings
    reach: WorkerReach
    store: Store
    routes: Routes
    groups: PoolGroups
    knowledge: Knowledge
    metrics: Metrics
    clock: Clock
    services: ServiceKeeper | None = None
    pods: WorkerPods | None = None
    costs: DeletionCosts | None = None
    in_store: bool = True
    store_lag: StoreLag | None = None
