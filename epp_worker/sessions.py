"""Makes the session of each ext_proc stream, and keeps what all of a worker's sessions share."""

import random
from collections.abc import Callable

from epp_worker.extproc.budget import BodyBudget, BodyShare
from epp_worker.extproc.detaching import ResponsePhases
from epp_worker.extproc.observer import SessionObserver
from epp_worker.extproc.session import Session
from epp_worker.extproc.usage import CopyBudget
from epp_worker.scheduling.contract import Picker, ResponsePhase
from fleet.settings import BoundSettings, WorkerSettings


class Sessions:
    """See `epp_worker.process.NewSession`.

    Args:
        observers: makes the observer of a session that picks from this.
        leaving: whether the worker hands its groups away at the moment.

    Attributes:
        budget: of all bodies that wait here.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        bounds: BoundSettings,
        observers: Callable[[Picker], SessionObserver],
        rng: random.Random,
        leaving: Callable[[], bool],
    ) -> None:
        self.budget = BodyBudget(
            per_stream=settings.max_body_bytes,
            total=settings.max_buffered_bytes,
            per_group=bounds.max_buffered_bytes_per_pool,
        )
        self._copies = CopyBudget()
        self._observers = observers
        self._rng = rng
        self._phases = ResponsePhases(ResponsePhase(settings.response_phase), leaving)

    def __call__(self, picker: Picker, share: BodyShare) -> Session:
        """A session that picks from `picker`; `share` is what its group's bodies hold."""
        return Session(
            picker,
            budget=self.budget,
            share=share,
            copies=self._copies,
            observer=self._observers(picker),
            rng=self._rng,
            phases=self._phases,
        )
