"""One pool's scheduler: the plugins of its configuration, made and wired."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from epp_worker.scheduling.contract import NO_HINTS, PickRequest, Refusal
from epp_worker.scheduling.endpoint import EndpointState
from epp_worker.scheduling.faults import PluginFaults
from epp_worker.scheduling.load import Reported, eligible, read_reported, weighted_load
from epp_worker.scheduling.plugin import (
    Candidates,
    Detector,
    EndpointPicker,
    Filter,
    Header,
    PickObserver,
    PluginContext,
    PluginType,
    PrefillObserver,
    ProfileHandler,
    ResponseObserver,
    Scorer,
    Selection,
    ServedObserver,
)
from epp_worker.scheduling.plugins.load_scorers import (
    ActiveRequestScorer,
    KvCacheScorer,
    QueueScorer,
)
from epp_worker.scheduling.profile import Named, RunnableProfile, Watch
from epp_worker.scheduling.state_slots import StateSlot
from fleet.model.identity import PoolRef
from fleet.picking.config import PickerConfig, PluginSpec, ProfileSpec

PREFILL: Final = "prefill"
"""The profile whose endpoint computes a prompt that another one answers."""
SATURATED: Final = "rejected-saturated"
_FULL = Refusal(429, SATURATED, "The pool is saturated and requests of this priority are shed.")
_FILTERED: Final = Refusal(429, SATURATED, "No endpoint of the pool takes this request.")


@dataclass(frozen=True, slots=True)
class PoolView:
    """What plugins may know of their pool.

    Attributes:
        now: monotonic seconds.
        random: uniform in [0, 1).
        slot: state that stand-bys are told of, by name.
        oldest: metrics asked for before this moment are overdue.
    """

    ref: PoolRef
    now: Callable[[], float]
    random: Callable[[], float]
    slot: Callable[[str], StateSlot | None]
    oldest: Callable[[], float]


class _Load:
    """queue-, kv-cache-utilization- and active-request-scorer in one pass."""

    def __init__(self, weights: Sequence[float], oldest: Callable[[], float]) -> None:
        self._queue, self._cache, self._inflight = weights
        self._oldest = oldest
        self._reported: Reported | None = None

    def score(self, request: PickRequest, candidates: Candidates) -> Sequence[float]:
        """See `Scorer.score`, but weighted already."""
        del request
        oldest = self._oldest()
        if self._inflight or type(candidates) is not tuple:
            return weighted_load(candidates, oldest, self._queue, self._cache, self._inflight)
        reported = self._reported
        if reported is None or not reported.holds(candidates, oldest):
            reported = self._reported = read_reported(candidates, oldest, self._cache)
            if reported is None:
                return weighted_load(candidates, oldest, self._queue, self._cache, 0.0)
        return reported.load(self._queue, self._cache)


_FUSED: tuple[type[Any], ...] = (QueueScorer, KvCacheScorer, ActiveRequestScorer)


class Scheduler:
    """Chooses endpoints of one pool by one configuration.

    Raises:
        ValueError: a plugin cannot be made; names it.
    """

    def __init__(
        self,
        config: PickerConfig,
        view: PoolView,
        types: Mapping[str, PluginType],
        faults: PluginFaults,
        *,
        fuse: bool = True,
    ) -> None:
        """
        Args:
            fuse: compute the usual scorers in one pass; the choice is the same without.
        """
        self.config = config
        self._view = view
        self._types = types
        self._plugins: dict[str, Any] = {}
        self._making: list[str] = []
        self._faults = faults
        self._watch = Watch(view.ref, faults, view.now)
        for name in config.plugins:
            self._find(name)
        handler = self._plugins.get(config.handler)
        if not isinstance(handler, ProfileHandler):
            raise ValueError(f"{config.handler}: is no profile handler")
        detector = self._plugins.get(config.detector)
        self._handler = Named(config.handler, config.plugins[config.handler].type, handler)
        self._detector = detector if isinstance(detector, Detector) else None
        self._profiles = {each.name: self._profile(each, fuse) for each in config.profiles}
        self._observers = self._of_kind(PickObserver)
        self._prefill_observers = self._of_kind(PrefillObserver)
        self._listeners = self._of_kind(ResponseObserver)
        self._verifiers = self._of_kind(ServedObserver)
        self.counts_tokens = any(
            getattr(plugin, "counts_tokens", False) for plugin in self._plugins.values()
        )

    @property
    def follows_responses(self) -> bool:
        """Whether `responded` and `finished` are of any use."""
        return bool(self._listeners or self._verifiers)

    def profile(self, name: str) -> RunnableProfile:
        """A profile by name; KeyError if there is none."""
        return self._profiles[name]

    def plugin(self, name: str) -> Any:
        """An instance by name; None = there is none."""
        return self._plugins.get(name)

    def _find(self, name: str) -> Any:
        """An instance, made now if it is not; plugins may ask for those listed after them."""
        spec = self.config.plugins.get(name)
        if name in self._plugins or spec is None or spec.left_out:
            return self._plugins.get(name)
        if name in self._making:
            raise ValueError(f"{name}: refers to itself by way of {', '.join(self._making)}")
        self._making.append(name)
        try:
            made = self._make(spec)
        finally:
            self._making.pop()
        if made is not None:
            self._plugins[name] = made
        return made

    def _make(self, spec: PluginSpec) -> object | None:
        kind = self._types.get(spec.type)
        if kind is None:
            return None  # what the fleet does of itself, or leaves out
        view = self._view
        context = PluginContext(
            name=spec.name,
            pool=view.ref,
            now=view.now,
            random=view.random,
            find=self._find,
            slot=view.slot,
            oldest=view.oldest,
        )
        try:
            return kind.make(spec.parameters, context)
        except Exception as error:
            raise ValueError(f"{spec.name} ({spec.type}): {error}") from error

    def _of_kind(self, kind: type[Any]) -> tuple[Named[Any], ...]:
        return tuple(
            Named(name, self.config.plugins[name].type, plugin)
            for name, plugin in self._plugins.items()
            if isinstance(plugin, kind)
        )

    def _profile(self, spec: ProfileSpec, fuse: bool) -> RunnableProfile:
        named = [
            Named(name, self.config.plugins[name].type, self._plugins[name], weight)
            for name, weight in spec.plugins
            if name in self._plugins
        ]
        scorers = [each for each in named if isinstance(each.plugin, Scorer)]
        pickers = [each for each in named if isinstance(each.plugin, EndpointPicker)]
        if not pickers:
            raise ValueError(f"profile {spec.name}: has no picker that can be made")
        return RunnableProfile(
            spec.name,
            [each for each in named if isinstance(each.plugin, Filter)],
            self._fused(scorers) if fuse else scorers,
            pickers[0],
            Watch(self._view.ref, self._faults, self._view.now),
        )

    def _fused(self, scorers: list[Named[Any]]) -> list[Named[Any]]:
        fit = [each for each in scorers if _fusible(each.plugin)]
        if len(fit) < 2:
            return scorers
        weights = [
            sum(each.weight for each in fit if isinstance(each.plugin, kind)) for kind in _FUSED
        ]
        load = Named("load", "queue-scorer", _Load(weights, self._view.oldest), whole=True)
        return [load, *(each for each in scorers if each not in fit)]

    def select(self, request: PickRequest, candidates: Candidates) -> Selection | Refusal:
        """Choose.

        Args:
            candidates: at least one; those that the request may go to.
        """
        if request.priority < 0 and self.saturation(candidates) >= 1.0:
            return _FULL
        candidates = eligible(candidates, self._view.oldest())
        try:
            selection = self._handler.plugin.select(request, candidates, self._profiles)
            chosen = bool(selection.endpoints)
        except Exception as error:  # noqa: BLE001 - a plugin's fault is no request's
            self._watch.raised(self._handler, error)
            selection = self._without_handler(request, candidates)
            chosen = bool(selection.endpoints)
        if chosen:
            return selection
        if request.hints is NO_HINTS and request.model is None:
            # Without a body there is nothing to be picked for, as GET /v1/models: anybody does.
            return Selection((candidates[int(self._view.random() * len(candidates))],))
        return _FILTERED

    def saturation(self, candidates: Candidates) -> float:
        """How full these endpoints are by the configured detector: 1 and more = full. Whoever is to
        hold requests back asks here."""
        if self._detector is None:
            return 0.0
        try:
            return self._detector.saturation(candidates)
        except Exception as error:  # noqa: BLE001 - a plugin's fault is no request's
            name = self.config.detector
            self._watch.raised(Named(name, self.config.plugins[name].type, self._detector), error)
            return 0.0

    def _without_handler(self, request: PickRequest, candidates: Candidates) -> Selection:
        first = next(iter(self._profiles.values()))
        return Selection(first.run(request, candidates))

    def picked(self, request: PickRequest, chosen: EndpointState) -> None:
        """Tell those who learn from picks."""
        self._watch.calls += 1
        for each in self._observers:
            began = self._watch.now()
            try:
                each.plugin.picked(request, chosen)
            except Exception as error:  # noqa: BLE001 - a plugin's fault is no request's
                self._watch.raised(each, error)
            else:
                self._watch.too_slow(each, began)

    def prefilled(self, request: PickRequest, others: Mapping[str, Candidates]) -> None:
        """Tell them who computes the prompt, if that is another endpoint."""
        helpers = others.get(PREFILL, ())
        for each in self._prefill_observers if helpers else ():
            try:
                each.plugin.prefilled(request, helpers[0])
            except Exception as error:  # noqa: BLE001 - a plugin's fault is no request's
                self._watch.raised(each, error)

    def responded(
        self, request: PickRequest, served: EndpointState, header: Header, told: str | None
    ) -> tuple[tuple[str, str], ...]:
        """Tell those who learn from responses; the headers that they set.

        Args:
            told: who answers by the gateway's word; None = it said nothing.
        """
        found: dict[str, str] = {}
        for verifier in self._verifiers:
            try:
                found |= verifier.plugin.served(told)
            except Exception as error:  # noqa: BLE001 - a plugin's fault is no request's
                self._watch.raised(verifier, error)
        for each in self._listeners:
            try:
                found |= each.plugin.responded(request, served, header) or {}
            except Exception as error:  # noqa: BLE001 - a plugin's fault is no request's
                self._watch.raised(each, error)
        return tuple(found.items())

    def finished(self, request: PickRequest, served: EndpointState) -> None:
        """Tell them that it is over."""
        for each in self._listeners:
            try:
                each.plugin.finished(request, served)
            except Exception as error:  # noqa: BLE001 - a plugin's fault is no request's
                self._watch.raised(each, error)


def _fusible(plugin: object) -> bool:
    if isinstance(plugin, ActiveRequestScorer):
        return plugin.is_plain
    return isinstance(plugin, _FUSED)
