"""session-affinity-scorer and session-affinity-filter: who served a client before.

Either the client carries the endpoint's name (base64 of `namespace/pod-rank-i`, set on each
response), or it has a session id of its own, and where that was served is remembered for a while.
"""

import base64
import binascii
from collections.abc import Mapping, Sequence

from epp_worker.scheduling.contract import PickRequest
from epp_worker.scheduling.endpoint import EndpointState
from epp_worker.scheduling.plugin import Candidates, Header, PluginContext, PluginType
from epp_worker.scheduling.state_slots import AFFINITY, SeenTable
from fleet.picking.parameters import SessionAffinityParameters, SessionId

SESSION_ID_HEADER = "x-session-id"
"""Where a client's own session id stands, unless the configuration says otherwise."""


class _Affinity:
    """Finds the endpoint of a request's session."""

    def __init__(self, parameters: SessionAffinityParameters, context: PluginContext) -> None:
        self._context = context
        self._by_id = parameters.strategy == "session_id"
        self._header = parameters.encoded_endpoint_header_config.header.strip().lower()
        by_id = parameters.session_id_config
        named = [each.header for each in by_id.sources] or [SESSION_ID_HEADER]
        self._id_headers = [each.strip().lower() for each in named if each]
        self._ttl = by_id.eviction_ttl_seconds or SessionId().eviction_ttl_seconds
        self._bound: tuple[PickRequest, EndpointState | None] | None = None

    def _known(self, request: PickRequest, candidates: Candidates) -> EndpointState | None:
        if self._by_id:
            session = self._session(request)
            known = self._remembered(session, candidates) if session else None
            self._bound = (request, known)
            return known
        token = request.header(self._header)
        if not token:
            return None
        name = _decoded(token)
        return next((c for c in candidates if self._name(c) == name), None)

    def _session(self, request: PickRequest) -> str:
        found = ((request.header(each) or "").strip() for each in self._id_headers)
        return next((each for each in found if each), "")

    def _remembered(self, session: str, candidates: Candidates) -> EndpointState | None:
        table = self._context.slot(AFFINITY)
        if not isinstance(table, SeenTable):
            return None
        ages = table.at(session)
        fresh = [c for c in candidates if ages.get(c.address, self._ttl) < self._ttl]
        return min(fresh, key=lambda c: ages[c.address], default=None)

    def _name(self, state: EndpointState) -> str:
        endpoint = state.endpoint
        return f"{self._context.pool.namespace}/{endpoint.pod}-rank-{endpoint.rank}"

    def picked(self, request: PickRequest, chosen: EndpointState) -> None:
        """See `PickObserver.picked`: a session moves only when its endpoint was no candidate."""
        bound, self._bound = self._bound, None
        session = self._session(request) if self._by_id else ""
        table = self._context.slot(AFFINITY)
        if session and isinstance(table, SeenTable):
            known = bound[1] if bound is not None and bound[0] is request else None
            table.note(session, (known or chosen).address)

    def responded(
        self, request: PickRequest, served: EndpointState, header: Header
    ) -> Mapping[str, str] | None:
        """See `ResponseObserver.responded`."""
        del request, header
        if self._by_id:
            return None
        return {self._header: base64.b64encode(self._name(served).encode()).decode()}

    def finished(self, request: PickRequest, served: EndpointState) -> None:
        """See `ResponseObserver.finished`."""


def _decoded(token: str) -> str:
    try:
        return base64.b64decode(token, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return ""


class SessionScorer(_Affinity):
    """1 for the session's endpoint, 0 for the others."""

    def score(self, request: PickRequest, candidates: Candidates) -> Sequence[float]:
        """See `Scorer.score`."""
        known = self._known(request, candidates)
        return [1.0 if c is known else 0.0 for c in candidates]


class SessionFilter(_Affinity):
    """The session's endpoint alone, or all if it is not there."""

    def filter(self, request: PickRequest, candidates: Candidates) -> Candidates:
        """See `Filter.filter`."""
        known = self._known(request, candidates)
        return candidates if known is None else (known,)


TYPES = (
    PluginType("session-affinity-scorer", SessionAffinityParameters, SessionScorer),
    PluginType("session-affinity-filter", SessionAffinityParameters, SessionFilter),
)
