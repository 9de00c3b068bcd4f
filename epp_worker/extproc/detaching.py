"""Whether a stream ends with the pick, so that the death of its worker cannot cut the response."""

from collections.abc import Callable
from typing import Final

from epp_worker.scheduling.contract import Pick, ResponsePhase

# Names of their own for what each pick is compared with: see `budget.OK`.
_DRAIN: Final = ResponsePhase.DRAIN
_DETACH: Final = ResponsePhase.DETACH


def _never() -> bool:
    return False


class ResponsePhases:
    """What the fleet wants, where a pool does not say otherwise."""

    __slots__ = ("_default", "_leaving")

    def __init__(
        self,
        default: ResponsePhase = ResponsePhase.TRACK,
        leaving: Callable[[], bool] = _never,
    ) -> None:
        """Args:
        leaving: whether the worker hands its groups away at the moment.
        """
        self._default = default
        self._leaving = leaving

    def detaches(self, pick: Pick) -> bool:
        """Whether the stream of this request should end now."""
        phase = pick.response_phase or self._default
        if phase is _DRAIN:
            return self._leaving()
        return phase is _DETACH
