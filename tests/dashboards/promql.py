"""The expressions that several dashboards share; `F` and the like choose what the reader chose."""

from typing import Final

F: Final = 'fleet=~"$fleet"'
"""Of the chosen fleet. The label is the scrape's (deploy/prometheus/scrape.yaml)."""

POOLS: Final = f'{F},namespace=~"$namespace",pool=~"$pool"'
WORKERS: Final = f'{F},pod=~"$worker"'
COORDINATORS: Final = f'{F},pod=~"$coordinator"'
RATE: Final = "[$__rate_interval]"


def leaders(metric: str, more: str = "") -> str:
    """What the leader says: a follower's copy of the map may be old when it is cut off."""
    chosen = f"{F},{more}" if more else F
    return f"({metric}{{{chosen}}} and on (instance) epp_fleet_leader{{{F}}} == 1)"


def rate(metric: str, chosen: str, by: str = "", *, unit: float = 1) -> str:
    """Per second (times `unit`) of a counter, summed."""
    group = f" by ({by})" if by else ""
    times = f"{unit:g} * " if unit != 1 else ""
    return f"{times}sum{group} (rate({metric}{{{chosen}}}{RATE}))"


def quantile(q: float, histogram: str, chosen: str, by: str = "") -> str:
    """Of a histogram, named without `_bucket`."""
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({q:g}, {rate(f'{histogram}_bucket', chosen, labels)})"


def quantiles(histogram: str, chosen: str, by: str = "") -> dict[str, str]:
    """Median and 99th percentile, by legend."""
    legend = "".join(f" {{{{{label.strip()}}}}}" for label in by.split(",") if label)
    return {f"p{q * 100:g}{legend}": quantile(q, histogram, chosen, by) for q in (0.5, 0.99)}


def shard(vector: str) -> str:
    """With a label `shard`, `namespace/pool`: pools of two namespaces may have one name."""
    return f'label_join({vector}, "shard", "/", "namespace", "pool")'
