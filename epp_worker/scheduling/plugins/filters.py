"""Filters by labels, by a header and by load; rules of the llm-d router."""

from collections.abc import Callable
from functools import partial
from operator import attrgetter

from epp_worker.scheduling.contract import PickRequest
from epp_worker.scheduling.endpoint import EndpointState
from epp_worker.scheduling.plugin import Candidates, PluginContext, PluginType
from epp_worker.scheduling.subset import split_address
from fleet.model.labels import LabelSelector, Requirement
from fleet.picking.parameters import (
    ByLabelParameters,
    LabelSelectorParameters,
    Parameters,
    UtilizationFilterParameters,
)

ROLE_LABEL = "llm-d.ai/role"
TESTING_HEADER = "test-epp-endpoint-selection"

_DECODE = ("decode", "prefill-decode", "both", "encode-prefill-decode")
_PREFILL = ("prefill", "encode-prefill", "prefill-decode", "both", "encode-prefill-decode")
_ENCODE = ("encode", "encode-prefill", "encode-prefill-decode")


class ByLabel:
    """Those whose label has one of the values, or, if allowed, that have no such label."""

    def __init__(self, parameters: ByLabelParameters, _context: PluginContext) -> None:
        self._label = parameters.label
        self._values = frozenset(parameters.valid_values)
        self._none = parameters.allows_no_label

    def filter(self, request: PickRequest, candidates: Candidates) -> Candidates:
        """See `Filter.filter`."""
        del request
        return [c for c in candidates if self._takes(c.endpoint.labels.get(self._label))]

    def _takes(self, value: str | None) -> bool:
        return self._none if value is None else value in self._values


def _of_role(
    values: tuple[str, ...], unlabelled: bool, _parameters: Parameters, context: PluginContext
) -> ByLabel:
    return ByLabel(ByLabelParameters(ROLE_LABEL, values, unlabelled), context)


class LabelSelectorFilter:
    """Those that a label selector takes."""

    def __init__(self, parameters: LabelSelectorParameters, _context: PluginContext) -> None:
        equal = (
            Requirement(key, frozenset((value,)), negated=False)
            for key, value in parameters.match_labels.items()
        )
        sets = (each.requirement() for each in parameters.match_expressions)
        self._selector = LabelSelector((*equal, *sets))

    def filter(self, request: PickRequest, candidates: Candidates) -> Candidates:
        """See `Filter.filter`."""
        del request
        return [c for c in candidates if self._selector.matches(c.endpoint.labels)]


class HeaderBasedTestingFilter:
    """Those that a test's header names as `ip` (its last port) or `ip:port`; one for each IP."""

    def __init__(self, _parameters: Parameters, _context: PluginContext) -> None:
        pass

    def filter(self, request: PickRequest, candidates: Candidates) -> Candidates:
        """See `Filter.filter`: without the header, none."""
        by_ip = {c.ip: c for c in candidates}
        by_key = {c.key: c for c in candidates}
        found: dict[str, EndpointState] = {}
        for item in (request.header(TESTING_HEADER) or "").split(","):
            address = split_address(item)
            if address is None:
                continue
            ip, port = address
            named = by_ip.get(ip) if port is None else by_key.get(_key(ip, port))
            if named is not None:
                found.setdefault(named.ip, named)
        return list(found.values())


def _key(ip: str, port: int) -> str:
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"


_METRICS: dict[str, Callable[[EndpointState], float | None]] = {
    "active-requests": attrgetter("inflight"),
    "running-requests": attrgetter("running"),
    "waiting-queue": attrgetter("waiting"),
    "kv-cache-utilization": attrgetter("kv"),
}


class UtilizationFilter:
    """Those within all bounds; what is not known is within."""

    def __init__(self, parameters: UtilizationFilterParameters, _context: PluginContext) -> None:
        self._bounds = [(_METRICS[each.metric], each.max_value) for each in parameters.conditions]
        self._fall_back = parameters.fallback_on_empty

    def filter(self, request: PickRequest, candidates: Candidates) -> Candidates:
        """See `Filter.filter`."""
        del request
        kept = [c for c in candidates if all(self._within(c, *bound) for bound in self._bounds)]
        return candidates if not kept and self._fall_back else kept

    @staticmethod
    def _within(
        state: EndpointState, metric: Callable[[EndpointState], float | None], most: float
    ) -> bool:
        value = metric(state)
        return value is None or value <= most


TYPES = (
    PluginType("by-label", ByLabelParameters, ByLabel),
    PluginType("label-selector-filter", LabelSelectorParameters, LabelSelectorFilter),
    PluginType("by-label-selector", LabelSelectorParameters, LabelSelectorFilter),
    PluginType("decode-filter", Parameters, partial(_of_role, _DECODE, True)),
    PluginType("prefill-filter", Parameters, partial(_of_role, _PREFILL, False)),
    PluginType("encode-filter", Parameters, partial(_of_role, _ENCODE, False)),
    PluginType("header-based-testing-filter", Parameters, HeaderBasedTestingFilter),
    PluginType("utilization-filter", UtilizationFilterParameters, UtilizationFilter),
)
