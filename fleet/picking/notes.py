"""What a configuration says and the fleet does not do: a line each, so that nothing is ignored
without a word.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from fleet.model.pools import RESPONSE_PHASE
from fleet.picking import document as d
from fleet.picking.config import PluginSpec
from fleet.picking.kinds import PluginKind
from fleet.picking.parameters import ActiveRequestParameters, SessionAffinityParameters

_NO_FLOW_CONTROL = (
    "flow control is not available: nothing is queued; a request of negative priority is refused "
    "with 429 while the pool is saturated, every other one is served at once"
)


def notes(
    head: d.Head,
    plugins: Mapping[str, PluginSpec],
    gates: Mapping[str, bool],
    flow: d.FlowControl | None,
    layer: d.DataLayer | None,
    kinds: Mapping[str, PluginKind],
) -> tuple[str, ...]:
    """The warnings about one document that is good otherwise."""
    return (
        *_of_the_head(head),
        *_of_gates(gates, flow),
        *_of_plugins(head, plugins, kinds),
        *_of_the_data_layer(layer),
    )


def _only_the_response_phase(metadata: Any) -> bool:
    if not isinstance(metadata, Mapping) or set(metadata) != {"annotations"}:
        return False
    annotations = metadata["annotations"]
    return isinstance(annotations, Mapping) and set(annotations) == {RESPONSE_PHASE}


def _of_the_head(head: d.Head) -> Iterator[str]:
    if head.api_version != d.API_VERSIONS[0]:
        yield f"apiVersion: {head.api_version} is the older form of {d.API_VERSIONS[0]}"
    if head.metadata is not None and not _only_the_response_phase(head.metadata):
        yield (
            f"metadata: is not looked at, but for the annotation {RESPONSE_PHASE}; a configuration "
            "is called as its file"
        )
    if head.saturation_detector is not None:
        yield "saturationDetector: is deprecated; write flowControl.saturationDetector"
    if head.parser is not None:
        yield "parser: is deprecated and has no effect: the path decides how a request is read"
    if head.request_handler is not None:
        yield "requestHandler: has no effect: the path decides how a request is read"


def _of_gates(gates: Mapping[str, bool], flow: d.FlowControl | None) -> Iterator[str]:
    if gates.get("flowControl"):
        yield f"featureGates: {_NO_FLOW_CONTROL}"
    if gates.get("haPopulateNonLeaderDatastore") is False:
        yield (
            "featureGates: haPopulateNonLeaderDatastore changes nothing: stand-bys always know "
            "their pools"
        )
    if flow is None:
        return
    names = {
        "maxBytes": flow.max_bytes,
        "maxRequests": flow.max_requests,
        "defaultRequestTTL": flow.default_request_ttl,
        "noEndpointRequestTTL": flow.no_endpoint_request_ttl,
        "defaultPriorityBand": flow.default_priority_band,
        "defaultNegativePriorityBand": flow.default_negative_priority_band,
        "priorityBands": flow.priority_bands,
        "usageLimitPolicyPluginRef": flow.usage_limit_policy_plugin_ref or None,
        "enableEviction": flow.enable_eviction or None,
    }
    for name, value in names.items():
        if value is not None:
            yield f"flowControl.{name}: has no effect: {_NO_FLOW_CONTROL}"


def _of_plugins(
    head: d.Head, plugins: Mapping[str, PluginSpec], kinds: Mapping[str, PluginKind]
) -> Iterator[str]:
    for index, (raw, spec) in enumerate(zip(head.plugins or [], plugins.values(), strict=False)):
        kind = kinds[spec.type]
        where = f"plugins[{index}] ({spec.name})"
        given = isinstance(raw, dict) and raw.get("parameters")
        if kind.left_out:
            yield f"{where}: {spec.type} is not available: {kind.left_out}"
        elif kind.built_in and given:
            yield f"{where}: parameters of {spec.type} have no effect: {kind.built_in}"
        if kind.advice:
            yield f"{where}: {spec.type} is deprecated; write {kind.advice}"
        if isinstance(spec.parameters, SessionAffinityParameters):
            yield from _of_affinity(where, spec.parameters)
        if isinstance(spec.parameters, ActiveRequestParameters) and spec.parameters.request_timeout:
            yield f"{where}: requestTimeout has no effect; requests are counted until they end"


def _of_affinity(where: str, given: SessionAffinityParameters) -> Iterator[str]:
    if given.profile_name:
        yield f"{where}: profileName has no effect: who answers is who is remembered"
    for source in given.session_id_config.sources:
        if source.attribute:
            yield f"{where}: the source {source.attribute} has no effect: name a header"


def _of_the_data_layer(layer: d.DataLayer | None) -> Iterator[str]:
    if layer is None:
        return
    own = "the fleet finds pools, pods and other workers by itself"
    if layer.inject_defaults is False:
        yield "dataLayer.injectDefaults: has no effect: endpoints are always scraped"
    if layer.discovery is not None:
        yield f"dataLayer.discovery: has no effect: {own}"
    if layer.peer_discovery is not None:
        yield f"dataLayer.peerDiscovery: has no effect: {own}"
    if layer.cross_replica_syncer_plugin_ref or layer.cross_replica_sync_interval:
        yield (
            "dataLayer.crossReplicaSyncerPluginRef: has no effect: a pool has one owner, which "
            "tells its stand-bys what it knows"
        )
