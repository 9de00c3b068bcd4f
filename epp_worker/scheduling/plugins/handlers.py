"""Profile handlers: which profiles run for a request, and what the gateway is told of it."""

from collections.abc import Mapping
from typing import Final

from epp_worker.scheduling.contract import PickRequest
from epp_worker.scheduling.endpoint import EndpointState
from epp_worker.scheduling.plugin import (
    Candidates,
    Decider,
    PluginContext,
    PluginType,
    Profile,
    Selection,
)
from fleet.model.identity import host_port
from fleet.picking.parameters import (
    DataParallelParameters,
    DisaggParameters,
    HeaderProfileParameters,
    Parameters,
    PdParameters,
)

PREFILL_HEADER: Final = "x-prefiller-host-port"
ENCODER_HEADER: Final = "x-encoder-hosts-ports"
DATA_PARALLEL_HEADER: Final = "x-data-parallel-host-port"

NONE: Final = Selection(())


class SingleProfile:
    """The only profile."""

    def __init__(self, _parameters: Parameters, _context: PluginContext) -> None:
        pass

    def select(
        self, request: PickRequest, candidates: Candidates, profiles: Mapping[str, Profile]
    ) -> Selection:
        """See `ProfileHandler.select`."""
        for profile in profiles.values():
            return Selection(profile.run(request, candidates))
        return NONE


class DataParallel:
    """The only profile chooses a rank; the request goes to the pod's primary port, which passes it
    on by a header."""

    def __init__(self, parameters: DataParallelParameters, _context: PluginContext) -> None:
        self._port = parameters.primary_port

    def select(
        self, request: PickRequest, candidates: Candidates, profiles: Mapping[str, Profile]
    ) -> Selection:
        """See `ProfileHandler.select`."""
        for profile in profiles.values():
            return at_primary_port(Selection(profile.run(request, candidates)), self._port)
        return NONE


def at_primary_port(selection: Selection, port: int) -> Selection:
    """The same choice, reached by the pods' primary port."""
    chosen = selection.endpoints
    if not chosen or not port:
        return selection
    return Selection(
        chosen,
        {**selection.headers, DATA_PARALLEL_HEADER: chosen[0].address},
        selection.removed,
        selection.others,
        ",".join(host_port(each.ip, port) for each in chosen),
    )


class HeaderProfile:
    """The profile that a request's header names, else the default one."""

    def __init__(self, parameters: HeaderProfileParameters, _context: PluginContext) -> None:
        self._header = parameters.header_name.strip().lower()
        self._default = parameters.default_profile.strip()

    def select(
        self, request: PickRequest, candidates: Candidates, profiles: Mapping[str, Profile]
    ) -> Selection:
        """See `ProfileHandler.select`."""
        named = (request.header(self._header) or "").strip() or self._default
        profile = next(iter(profiles.values())) if len(profiles) == 1 else profiles.get(named)
        return NONE if profile is None else Selection(profile.run(request, candidates))


class Disaggregated:
    """The decode profile answers; deciders say whether others prefill or encode before."""

    def __init__(self, parameters: DisaggParameters, context: PluginContext) -> None:
        profiles, deciders = parameters.profiles, parameters.deciders
        self._decode = parameters.decode_profile or profiles.decode
        self._prefill = parameters.prefill_profile or profiles.prefill
        self._encode = parameters.encode_profile or profiles.encode
        self._port = 0
        self._prefills = _decider(parameters.prefill_decider, context)
        if parameters.stage_order == "prefill-first":
            self._prefills = AlwaysPrefill(Parameters(), context)
        self._encodes = _decider(deciders.encode or parameters.encode_decider_plugin_name, context)

    def select(
        self, request: PickRequest, candidates: Candidates, profiles: Mapping[str, Profile]
    ) -> Selection:
        """See `ProfileHandler.select`."""
        decode = profiles.get(self._decode)
        chosen = () if decode is None else decode.run(request, candidates)
        if not chosen:
            return NONE
        headers: dict[str, str] = {}
        others: dict[str, Candidates] = {}
        for name, decider, header, most in (
            (self._encode, self._encodes, ENCODER_HEADER, None),
            (self._prefill, self._prefills, PREFILL_HEADER, 1),
        ):
            profile = profiles.get(name)
            if profile is None or decider is None or not decider.disaggregate(request, chosen[0]):
                continue
            helpers = profile.run(request, candidates)
            if helpers:
                others[name] = helpers
                headers[header] = ",".join(each.address for each in helpers[:most])
        # No client may send the sidecar anywhere.
        removed = tuple(h for h in (PREFILL_HEADER, ENCODER_HEADER) if h not in headers)
        return at_primary_port(Selection(chosen, headers, removed, others), self._port)


class PrefillDecode(Disaggregated):
    """The older form of the same, without encode workers and perhaps by the pods' primary port."""

    def __init__(self, parameters: PdParameters, context: PluginContext) -> None:
        same = DisaggParameters(
            decode_profile=parameters.decode_profile,
            prefill_profile=parameters.prefill_profile,
            decider_plugin_name=parameters.decider_plugin_name,
        )
        super().__init__(same, context)
        self._port = parameters.primary_port


def _decider(name: str, context: PluginContext) -> Decider | None:
    if not name:
        return None
    found = context.find(name)
    if found is None:
        return None  # it is left out: it never decides
    if not isinstance(found, Decider):
        raise ValueError(f"{name!r} is no decider")
    return found


class AlwaysPrefill:
    """Prefill is always split off."""

    def __init__(self, _parameters: Parameters, _context: PluginContext) -> None:
        pass

    def disaggregate(self, request: PickRequest, chosen: EndpointState) -> bool:
        """See `Decider.disaggregate`."""
        del request, chosen
        return True


TYPES = (
    PluginType("single-profile-handler", Parameters, SingleProfile),
    PluginType("data-parallel-profile-handler", DataParallelParameters, DataParallel),
    PluginType("header-profile-handler", HeaderProfileParameters, HeaderProfile),
    PluginType("disagg-profile-handler", DisaggParameters, Disaggregated),
    PluginType("pd-profile-handler", PdParameters, PrefillDecode),
    PluginType("always-disagg-pd-decider", Parameters, AlwaysPrefill),
)
