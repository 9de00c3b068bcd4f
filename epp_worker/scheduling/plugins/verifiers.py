"""destination-endpoint-served-verifier: tells a conformance test who the gateway says answered."""

from collections.abc import Mapping

from epp_worker.scheduling.plugin import PluginContext, PluginType
from epp_worker.scheduling.subset import split_address
from fleet.picking.parameters import Parameters

SERVED_HEADER = "x-conformance-test-served-endpoint"
UNTOLD = "fail: missing destination endpoint served metadata"
"""What the reference endpoint picker answers then."""


class ServedVerifier:
    """Sets the header on each response; see `ServedObserver`."""

    def __init__(self, _parameters: Parameters, _context: PluginContext) -> None:
        pass

    def served(self, told: str | None) -> Mapping[str, str]:
        """See `ServedObserver.served`: what is no address of an endpoint was not told."""
        if told is None or split_address(told) is None:
            told = UNTOLD
        return {SERVED_HEADER: told}


TYPES = (PluginType("destination-endpoint-served-verifier", Parameters, ServedVerifier),)
