"""All metrics of a worker, for docs/metrics.md; see `fleet.metrics.reference`."""

from epp_worker.handover import metrics as handover
from epp_worker.metrics import bounded, pools, router, served
from epp_worker.scheduling.prefix import metrics as prefix
from fleet.metrics import declared_in, process, series
from fleet.metrics.reference import Section
from fleet.sources import metrics as sources
from fleet.store import metrics as store

_PREFIXES = declared_in(prefix)

WORKER = Section(
    "Workers",
    "`/metrics` on `worker.http_port` (9090).",
    (
        *declared_in(served, pools, bounded, handover),
        *(each for each in _PREFIXES if each.name.startswith("epp_fleet_")),
        *declared_in(sources, store, series, process),
    ),
)
ROUTER = Section(
    "Workers, by the llm-d router's names",
    """\
Names, types and labels are the router's, and with them `namespace` and `pool`. Only the owner of a
pool shows its gauges, so that a sum over workers counts every endpoint once.

A *row* is a pool with one model, target model, flow and priority. Names come from clients, so rows
are bounded: 4 for each pool, 1,000 more of all pools of a worker, and those of models that an
annotation or a rewrite names, up to 4,000 of all pools; what is beyond counts under `other`.""",
    (
        *router.new_names(),
        *(each for each in _PREFIXES if each.name.startswith("llm_d_")),
        *router.old_names(),
    ),
)

SECTIONS = (WORKER, ROUTER)
