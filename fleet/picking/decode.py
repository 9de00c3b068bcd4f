"""The text of an EndpointPickerConfig to what a pool picks by: strict, all complaints at once.

What is filled in is what the llm-d router fills in: a name is the type, a weight is 1, a profile
without a picker takes the first one listed or a max-score-picker, no profile at all means one with
every filter, scorer and picker, and one profile needs no handler.
"""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from fleet.errors import ManifestError, SettingsError
from fleet.model.pools import RESPONSE_PHASE, RESPONSE_PHASES
from fleet.picking import document as d
from fleet.picking.config import DEFAULT, PickerConfig, PluginSpec, ProfileSpec
from fleet.picking.kinds import KINDS, PluginKind, Role, unknown
from fleet.picking.notes import notes
from fleet.picking.parameters import deciders_named, producers_named
from fleet.picking.shape import brief, convert, known_fields
from fleet.sources import yamldocs

MAX_BYTES = 1024 * 1024
MAX_PLUGINS = 256
MAX_PROFILES = 32
MAX_WEIGHT = 1_000_000
"""Of a scorer: beside one so heavy no other has a say."""

GATES = {"flowControl": False, "haPopulateNonLeaderDatastore": True}
"""Feature gates and whether they are on unless a configuration says otherwise."""

_KIND = re.compile(r"^[\"']?(?:apiVersion|kind|schedulingProfiles)[\"']?[ \t]*:", re.MULTILINE)
_SCHEDULING = (Role.FILTER, Role.SCORER, Role.PICKER)
_PICKER, _HANDLER, _DETECTOR = (
    "max-score-picker",
    "single-profile-handler",
    "utilization-detector",
)


def decode(
    text: str,
    *,
    name: str,
    experimental: bool = False,
    kinds: Mapping[str, PluginKind] = KINDS,
) -> PickerConfig:
    """Read a configuration.

    Args:
        experimental: take experimental plugins.
        kinds: the plugin types that there are.

    Raises:
        SettingsError: one line per complaint, starting with the path.
    """
    return _Reader(name, kinds, experimental=experimental).read(_document(text))


def looks_like_one(text: str) -> bool:
    """Whether a text means to be a picker configuration, however wrong: it says its kind, as no
    settings file does."""
    if text.lstrip().startswith("{"):
        return '"apiVersion"' in text or '"schedulingProfiles"' in text
    return _KIND.search(text) is not None


def _document(text: str) -> object:
    if len(text.encode(errors="replace")) > MAX_BYTES:
        raise SettingsError([f"longer than {MAX_BYTES} bytes: no picker configuration"])
    try:
        found = [
            each
            for chunk in yamldocs.chunks(text)
            for each in yamldocs.load(chunk)
            if each is not None
        ]
    except ManifestError as error:
        raise SettingsError([str(error)]) from None
    if len(found) != 1:
        raise SettingsError([f"must be one document, has {len(found)}"])
    return found[0]


class _Reader:
    """Reads one document; complaints gather in `problems`."""

    def __init__(self, name: str, kinds: Mapping[str, PluginKind], *, experimental: bool) -> None:
        self._name = name
        self._kinds = kinds
        self._experimental = experimental
        self._problems: list[str] = []
        self._warnings: list[str] = []
        self._plugins: dict[str, PluginSpec] = {}

    def read(self, raw: object) -> PickerConfig:
        head = convert(known_fields(raw, d.Head, self._problems), d.Head, "", self._problems)
        if head is None:
            raise SettingsError(self._problems)
        self._head(head)
        gates = self._gates(head.feature_gates or [])
        for index, entry in enumerate(self._bounded(head.plugins, "plugins", MAX_PLUGINS)):
            self._plugin(entry, f"plugins[{index}]")
        self._cross_refer()
        profiles = self._profiles(head.scheduling_profiles)
        layer = self._part(head.data_layer, d.DataLayer, "dataLayer")
        flow = self._part(head.flow_control, d.FlowControl, "flowControl")
        detector = self._detector(head, flow)
        parsers = self._parsers(head)
        self._refer_data(layer)
        handler = self._handler(profiles)
        response_phase = self._response_phase(head.metadata)
        if self._problems:
            raise SettingsError(self._problems)
        return PickerConfig(
            name=self._name,
            plugins=self._plugins,
            profiles=tuple(self._with_picker(profile) for profile in profiles),
            handler=handler,
            detector=detector,
            parsers=parsers,
            gates=gates,
            warnings=(
                *notes(head, self._plugins, gates, flow, layer, self._kinds),
                *self._warnings,
            ),
            response_phase=response_phase,
        )

    def _head(self, head: d.Head) -> None:
        if head.api_version not in d.API_VERSIONS:
            wanted = " or ".join(d.API_VERSIONS)
            self._problems.append(f"apiVersion: must be {wanted}, is {brief(head.api_version)}")
        if head.kind != d.KIND:
            self._problems.append(f"kind: must be {d.KIND}, is {brief(head.kind)}")

    def _response_phase(self, metadata: Any) -> str:
        """By the annotation that pools have too."""
        annotations = metadata.get("annotations") if isinstance(metadata, Mapping) else None
        if not isinstance(annotations, Mapping) or RESPONSE_PHASE not in annotations:
            return ""
        phase = annotations[RESPONSE_PHASE]
        if phase in RESPONSE_PHASES:
            return str(phase)
        path = f"metadata.annotations.{RESPONSE_PHASE}"
        self._problems.append(
            f"{path}: must be one of {', '.join(RESPONSE_PHASES)}, is {brief(phase)}"
        )
        return ""

    def _part(self, raw: Any, kind: type[Any], path: str) -> Any:
        return None if raw is None else convert(raw, kind, path, self._problems)

    def _bounded(self, items: list[Any] | None, path: str, most: int) -> list[Any]:
        if items is not None and len(items) > most:
            self._problems.append(f"{path}: has {len(items)} entries, at most {most}")
        return (items or [])[:most]

    def _gates(self, given: list[str]) -> dict[str, bool]:
        found: dict[str, bool] = {}
        for index, text in enumerate(given):
            gate, equals, value = text.partition("=")
            if gate not in GATES:
                known = ", ".join(GATES)
                self._problems.append(
                    f"featureGates[{index}]: unknown gate {brief(gate)}; known: {known}"
                )
            elif equals and value not in ("true", "false"):
                self._problems.append(
                    f"featureGates[{index}]: must be {gate}, {gate}=true or {gate}=false, "
                    f"is {brief(text)}"
                )
            else:
                found[gate] = value != "false"
        return found

    def _plugin(self, raw: Any, path: str) -> None:
        entry = convert(raw, d.PluginEntry, path, self._problems)
        if entry is None:
            return
        name = entry.name or entry.type
        kind = self._kinds.get(entry.type)
        if name in self._plugins:
            self._problems.append(f"{path}.name: another plugin is called {brief(name)} already")
        if kind is None:
            self._problems.append(f"{path}.type: {unknown(entry.type, self._kinds)}")
            # Mentions of it are no further problem.
            self._plugins[name] = PluginSpec(name, entry.type, frozenset(), None)
            return
        if kind.experimental and not self._experimental:
            self._problems.append(
                f"{path}.type: {entry.type} is experimental; set picking.allow_experimental to "
                "take such plugins"
            )
        raw_parameters = {} if entry.parameters is None else entry.parameters
        parameters = convert(raw_parameters, kind.parameters, f"{path}.parameters", self._problems)
        self._plugins[name] = PluginSpec(name, entry.type, kind.roles, parameters, kind.left_out)

    def _profiles(self, raw: list[Any] | None) -> list[ProfileSpec]:
        found: list[ProfileSpec] = []
        for index, item in enumerate(self._bounded(raw, "schedulingProfiles", MAX_PROFILES)):
            path = f"schedulingProfiles[{index}]"
            entry = convert(item, d.ProfileEntry, path, self._problems)
            if entry is None:
                continue
            if any(entry.name == other.name for other in found):
                self._problems.append(
                    f"{path}.name: another profile is called {brief(entry.name)} already"
                )
            items = self._bounded(entry.plugins, f"{path}.plugins", MAX_PLUGINS)
            mentions = [
                self._mention(each, f"{path}.plugins[{number}]")
                for number, each in enumerate(items)
            ]
            found.append(ProfileSpec(entry.name, tuple(each for each in mentions if each)))
        if not raw:
            every = tuple(
                (spec.name, 1.0)
                for spec in self._plugins.values()
                if not spec.roles.isdisjoint(_SCHEDULING)
            )
            found.append(ProfileSpec("default", every))
        for profile in found:
            self._check_pickers(profile)
        return found

    def _check_pickers(self, profile: ProfileSpec) -> None:
        named = (self._plugins[name] for name, _ in profile.plugins if name in self._plugins)
        pickers = [spec.name for spec in named if Role.PICKER in spec.roles]
        if len(pickers) > 1:
            self._problems.append(
                f"schedulingProfiles: {brief(profile.name)} may have one picker; it has "
                f"{', '.join(pickers)}"
            )

    def _mention(self, raw: Any, path: str) -> tuple[str, float] | None:
        entry = convert(raw, d.WeightedReference, path, self._problems)
        if entry is None:
            return None
        spec = self._referred(entry.plugin_ref, f"{path}.pluginRef")
        if spec is not None and spec.roles and spec.roles.isdisjoint(_SCHEDULING):
            role = " and ".join(sorted(spec.roles))
            self._warnings.append(
                f"{path}.pluginRef: {brief(spec.name)} is a {role}, which no profile uses: "
                "profiles have filters, scorers and a picker"
            )
            return None
        weight = 1.0 if entry.weight is None else entry.weight
        if not 0 <= weight <= MAX_WEIGHT:  # nor is it NaN: no sum with one can be compared
            self._problems.append(
                f"{path}.weight: must be a number from 0 to {MAX_WEIGHT}, is {brief(weight)}"
            )
        return entry.plugin_ref, weight

    def _referred(self, name: str, path: str) -> PluginSpec | None:
        spec = self._plugins.get(name)
        if spec is None:
            known = ", ".join(self._plugins) or "none"
            self._problems.append(
                f"{path}: no plugin is called {brief(name)}; there are: {known[:200]}"
            )
        return spec

    def _cross_refer(self) -> None:
        """Plugins that others name in their parameters are there, and are what is wanted."""
        for index, spec in enumerate(tuple(self._plugins.values())):
            path = f"plugins[{index}].parameters"
            for parameter, name in deciders_named(spec.parameters):
                found = self._referred(name, f"{path}.{parameter}")
                if found is not None and found.roles and Role.DECIDER not in found.roles:
                    self._problems.append(f"{path}.{parameter}: {brief(name)} is no decider")
            for parameter, name in producers_named(spec.parameters):
                found = self._referred(name, f"{path}.{parameter}")
                if found is not None and found.roles and Role.PRODUCER not in found.roles:
                    self._problems.append(f"{path}.{parameter}: {brief(name)} is no producer")
                elif found is not None and found.left_out:
                    own = replace(spec.parameters, prefix_match_info_producer_name="")
                    self._plugins[spec.name] = dataclasses.replace(spec, parameters=own)

    def _add(self, type_: str) -> str:
        self._plugins.setdefault(type_, DEFAULT.plugins[type_])
        return type_

    def _with_picker(self, profile: ProfileSpec) -> ProfileSpec:
        named = [self._plugins[name] for name, _ in profile.plugins]
        if any(Role.PICKER in spec.roles for spec in named):
            return profile
        pickers = (spec.name for spec in self._plugins.values() if Role.PICKER in spec.roles)
        picker = next(pickers, None) or self._add(_PICKER)
        return ProfileSpec(profile.name, (*profile.plugins, (picker, 1.0)))

    def _handler(self, profiles: list[ProfileSpec]) -> str:
        handlers = [spec.name for spec in self._plugins.values() if Role.HANDLER in spec.roles]
        if len(handlers) > 1:
            self._problems.append(
                f"plugins: there may be one profile handler; there are {', '.join(handlers)}"
            )
        if handlers:
            return handlers[0]
        if len(profiles) > 1:
            self._problems.append(
                "plugins: several schedulingProfiles need a profile handler, and there is none"
            )
        return self._add(_HANDLER)

    def _detector(self, head: d.Head, flow: d.FlowControl | None) -> str:
        old = self._part(head.saturation_detector, d.OptionalReference, "saturationDetector")
        new = None if flow is None else flow.saturation_detector
        path = "saturationDetector" if new is None else "flowControl.saturationDetector"
        name = (new or old or d.OptionalReference()).plugin_ref or _DETECTOR
        if name == _DETECTOR and name not in self._plugins:
            return self._add(_DETECTOR)
        spec = self._referred(name, f"{path}.pluginRef")
        if spec is not None and spec.roles and Role.DETECTOR not in spec.roles:
            self._problems.append(
                f"{path}.pluginRef: {brief(name)} ({spec.type}) is no saturation detector"
            )
        return name

    def _parsers(self, head: d.Head) -> tuple[str, ...]:
        handler = self._part(head.request_handler, d.RequestHandler, "requestHandler")
        old = self._part(head.parser, d.Reference, "parser")
        named = [] if handler is None else handler.parsers or []
        paths = [f"requestHandler.parsers[{index}]" for index in range(len(named))]
        if not named and old is not None:
            named, paths = [old], ["parser"]
        found: list[str] = []
        for mention, path in zip(named, paths, strict=True):
            kind = self._kinds.get(mention.plugin_ref)
            if mention.plugin_ref not in self._plugins and kind and Role.PARSER in kind.roles:
                found.append(mention.plugin_ref)  # the router makes parsers that are only named
                continue
            spec = self._referred(mention.plugin_ref, f"{path}.pluginRef")
            if spec is not None and spec.roles and Role.PARSER not in spec.roles:
                self._problems.append(
                    f"{path}.pluginRef: {brief(spec.name)} ({spec.type}) is no parser"
                )
            elif spec is not None:
                found.append(spec.type)
        return tuple(found)

    def _refer_data(self, layer: d.DataLayer | None) -> None:
        for index, source in enumerate((layer and layer.sources) or []):
            path = f"dataLayer.sources[{index}]"
            self._referred(source.plugin_ref, f"{path}.pluginRef")
            for number, extractor in enumerate(source.extractors or []):
                self._referred(extractor.plugin_ref, f"{path}.extractors[{number}].pluginRef")
