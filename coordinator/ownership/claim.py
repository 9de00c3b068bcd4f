"""Whether a pool is this fleet's: its annotation decides, else the fleet's `claim` setting."""

from dataclasses import dataclass

from fleet.kube.names import CONTROLLER_NAME
from fleet.model import Pool, PoolRef
from fleet.model.labels import LabelSelector
from fleet.settings.model import OwnershipSettings

MANIFESTS = "all pools of a manifests folder are served"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether it is ours, and the rule that says so."""

    ours: bool
    why: str


def listed(text: str) -> tuple[str, ...]:
    """The items of a comma-separated setting."""
    return tuple(item.strip() for item in text.split(",") if item.strip())


class Claim:
    """The rule of one fleet, its settings read once.

    Raises:
        ValueError: the label selector is none; `fleet.settings.checks` says so before.
    """

    def __init__(self, settings: OwnershipSettings) -> None:
        self.controller_name = settings.controller_name
        self._claim = settings.claim
        self._namespaces = frozenset(listed(settings.namespaces))
        self._pools = frozenset(
            PoolRef(*item.partition("/")[::2]) for item in listed(settings.pools)
        )
        self._selector_text = settings.selector
        self._selector = (
            LabelSelector.parse(settings.selector) if self._claim == "selector" else None
        )

    def names_us(self, pool: Pool) -> bool:
        """Whether the pool's own annotation says that it is ours."""
        return pool.annotations.get(CONTROLLER_NAME) == self.controller_name

    def of(self, pool: Pool) -> Verdict:
        """Whether `pool` is ours."""
        named = pool.annotations.get(CONTROLLER_NAME)
        if named is not None:
            return Verdict(
                named == self.controller_name, f"its annotation {CONTROLLER_NAME} is {named[:200]}"
            )
        covered, what = self._covers(pool)
        return Verdict(covered, f"the fleet claims {what}{'' if covered else ', not this pool'}")

    def _covers(self, pool: Pool) -> tuple[bool, str]:
        if self._claim == "namespaces":
            names = ", ".join(sorted(self._namespaces))
            return pool.ref.namespace in self._namespaces, f"the pools of namespaces {names}"
        if self._claim == "list":
            return pool.ref in self._pools, "the pools of its list"
        if self._selector is not None:
            what = f"the pools with labels {self._selector_text}"
            return self._selector.matches(pool.labels), what
        return True, "all pools"
