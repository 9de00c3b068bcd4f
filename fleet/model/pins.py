"""Pins: which workers may own a pool's groups, by its own annotation.

    epp-fleet.dev/pin: zone=eu-1a
    epp-fleet.dev/pin: zone in (eu-1a,eu-1b),node!=gpu-7
    epp-fleet.dev/pin: worker=worker-0

A label selector over what every worker says of itself. Zones and nodes outlive pods; `worker` is
the pod's name, so it is for fleets whose workers keep theirs (a StatefulSet, local mode).

A pin that no worker meets is as good as none until one does: a pool is rather served elsewhere
than not at all.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fleet.model.labels import LabelSelector

PIN = "epp-fleet.dev/pin"
"""Annotation of a pool."""

KEYS = ("node", "worker", "zone")

MAX_CHARS = 1024
"""Of a pin; it is read on every change of the pool."""


@dataclass(frozen=True, slots=True)
class Pin:
    """Where groups must be. `text` is as it was written, for people."""

    text: str
    selector: LabelSelector

    @classmethod
    def parse(cls, text: str) -> "Pin":
        """Read a pin.

        Raises:
            ValueError: says what is wrong and how to write it.
        """
        if len(text) > MAX_CHARS:
            raise ValueError(f"has {len(text)} characters; write at most {MAX_CHARS}")
        selector = LabelSelector.parse(text)
        for requirement in selector.requirements:
            if requirement.key not in KEYS:
                raise ValueError(
                    f"{requirement.key[:80]!r} is unknown here; use zone, node or worker, for "
                    "instance zone=eu-1a"
                )
        return cls(text.strip(), selector)

    def meets(self, *, worker: str, zone: str, node: str) -> bool:
        """Whether a worker may own what is pinned so; an unknown zone or node is no label."""
        said = {"worker": worker, "zone": zone, "node": node}
        return self.selector.matches({key: value for key, value in said.items() if value})


@dataclass(frozen=True, slots=True)
class Pinned:
    """What the annotations of one pool or group come to.

    Attributes:
        pin: None = no pin, or none that can be used.
        problem: why a pin that was written is ignored; "" if none is.
    """

    pin: Pin | None = None
    problem: str = ""


def pin_of(annotations: Mapping[str, str]) -> Pinned:
    """The pin of one pool."""
    text = annotations.get(PIN)
    if text is None:
        return Pinned()
    try:
        return Pinned(Pin.parse(text))
    except ValueError as error:
        return Pinned(problem=f"annotation {PIN}: {error}; the pin is ignored")


def agreed(pins: Iterable[Pin | None]) -> Pinned:
    """The pin of a group of pools: they have one owner, so all of them must say the same."""
    found = sorted({"" if pin is None else pin.text for pin in pins})
    if len(found) > 1:
        shown = " and ".join(repr(text[:80]) if text else "no pin" for text in found[:3])
        return Pinned(
            problem=f"annotation {PIN}: pools that share a Service and port have one owner, and "
            f"theirs say {shown}; give all of them the same; the pin is ignored"
        )
    return Pinned(next((pin for pin in pins if pin is not None), None))
