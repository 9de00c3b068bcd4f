"""Has the pools held here pick by the newest picker configurations, and, where several share a
Service, by what their model servers say that they serve."""

from epp_worker.datalayer.models import ModelSource
from epp_worker.holdings import Holdings
from epp_worker.learning import ModelLearner
from epp_worker.scheduling.configured import Schedulers
from epp_worker.scheduling.registry import all_types
from fleet.clock import Clock
from fleet.picking.folder import ConfigSource
from fleet.supervisor import Supervisor


def schedulers_of(source: ConfigSource | None) -> Schedulers:
    """What makes the schedulers of a worker that is given these configurations."""
    if source is None:
        return Schedulers()
    made = Schedulers(all_types(source.extensions))
    made.configs = source.configs
    return made


def follow_configs(source: ConfigSource | None, holdings: Holdings, supervisor: Supervisor) -> None:
    """Look for changes as long as the worker lives; each reaches every pool at once."""
    if source is None:
        return

    def changed() -> None:
        holdings.schedulers.configs = source.configs
        for group in holdings:
            for state in group.states.values():
                state.reconfigure()

    source.on_change(changed)
    supervisor.spawn(source.run(), "picker configurations")


def follow_models(
    source: ModelSource | None, holdings: Holdings, supervisor: Supervisor, clock: Clock
) -> None:
    """Ask model servers, where it matters, as long as the worker lives."""
    if source is not None:
        supervisor.run(ModelLearner(holdings, source, clock).run(), "models of shared Services")
