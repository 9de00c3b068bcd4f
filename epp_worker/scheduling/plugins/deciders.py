"""Whether a prompt is long and new enough for another endpoint to prefill it."""

from epp_worker.scheduling.contract import PickRequest
from epp_worker.scheduling.endpoint import EndpointState
from epp_worker.scheduling.load import prompt_tokens
from epp_worker.scheduling.plugin import PluginContext, PluginType
from epp_worker.scheduling.prefix.producer import producer
from fleet.picking.parameters import PrefixDeciderParameters


class PrefixBasedDecider:
    """Prefill is split off if at least so many tokens of the prompt are not cached at the endpoint
    that answers; 0 = never."""

    def __init__(self, parameters: PrefixDeciderParameters, context: PluginContext) -> None:
        self._least = parameters.non_cached_tokens
        self._prompt = parameters.prompt_tokens
        self._producer, self._own = producer("", context)

    def disaggregate(self, request: PickRequest, chosen: EndpointState) -> bool:
        """See `Decider.disaggregate`."""
        tokens = prompt_tokens(request)
        if not self._least or tokens < max(self._least, self._prompt):
            return False
        match = self._producer.match(request, (chosen,))
        cached = match.blocks[0] * match.block_tokens if match.blocks else 0
        return tokens - cached >= self._least

    def picked(self, request: PickRequest, chosen: EndpointState) -> None:
        """See `PickObserver.picked`."""
        if self._own:
            self._producer.picked(request, chosen)

    def prefilled(self, request: PickRequest, chosen: EndpointState) -> None:
        """See `PrefillObserver.prefilled`."""
        if self._own:
            self._producer.prefilled(request, chosen)


TYPES = (PluginType("prefix-based-pd-decider", PrefixDeciderParameters, PrefixBasedDecider),)
