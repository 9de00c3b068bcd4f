"""An EndpointPickerConfig as it is written: its fields, and nothing filled in.

`apix/config/v1alpha1` of llm-d-router, with the fields of older releases that it still takes.
"""

from typing import Annotated, Any

from msgspec import Meta, Struct, field

API_VERSIONS = ("llm-d.ai/v1alpha1", "inference.networking.x-k8s.io/v1alpha1")
KIND = "EndpointPickerConfig"

Name = Annotated[str, Meta(min_length=1, max_length=253)]


class _Written(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Base of all."""


class Head(_Written, frozen=True):
    """The document: its parts are decoded one by one, so that all complaints come at once."""

    api_version: str
    kind: str
    feature_gates: list[str] | None = None
    plugins: list[Any] | None = None
    scheduling_profiles: list[Any] | None = None
    data_layer: Any = None
    flow_control: Any = None
    request_handler: Any = None
    saturation_detector: Any = None
    parser: Any = None
    metadata: Any = None


class PluginEntry(_Written, frozen=True):
    """One of `plugins`."""

    type: Name
    name: str = ""
    parameters: Any = None


class Reference(_Written, frozen=True):
    """A mention of a plugin by name."""

    plugin_ref: Name


class OptionalReference(_Written, frozen=True):
    """The same where it may be left empty."""

    plugin_ref: str = ""


class WeightedReference(_Written, frozen=True):
    """One of a profile's `plugins`."""

    plugin_ref: Name
    weight: float | None = None


class ProfileEntry(_Written, frozen=True):
    """One of `schedulingProfiles`."""

    name: Name
    plugins: list[Any] | None = None


class DataSource(_Written, frozen=True):
    """One of `dataLayer.sources`."""

    plugin_ref: Name
    extractors: list[Reference] | None = None


class DataLayer(_Written, frozen=True):
    """`dataLayer`."""

    inject_defaults: bool | None = None
    sources: list[DataSource] | None = None
    discovery: Reference | None = None
    peer_discovery: Reference | None = None
    cross_replica_syncer_plugin_ref: str = ""
    cross_replica_sync_interval: str = ""


class RequestHandler(_Written, frozen=True):
    """`requestHandler`."""

    parsers: list[Reference] | None = None


class Band(_Written, frozen=True):
    """One of `flowControl.priorityBands`."""

    priority: int = 0
    max_bytes: int | str | None = None
    max_requests: int | str | None = None
    fairness_policy_ref: str = ""
    ordering_policy_ref: str = ""


class FlowControl(_Written, frozen=True):
    """`flowControl`."""

    max_bytes: int | str | None = None
    max_requests: int | str | None = None
    default_request_ttl: str | None = field(default=None, name="defaultRequestTTL")
    no_endpoint_request_ttl: str | None = field(default=None, name="noEndpointRequestTTL")
    default_priority_band: Band | None = None
    default_negative_priority_band: Band | None = None
    priority_bands: list[Band] | None = None
    usage_limit_policy_plugin_ref: str = ""
    saturation_detector: OptionalReference | None = None
    enable_eviction: bool = False
