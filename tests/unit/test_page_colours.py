"""The page's colours, from its style sheet: readable, and told apart whatever one's eyes."""

import itertools
import re

import pytest

from coordinator.web.page import FOLDER

PHASES = ("owned", "opening", "moving", "quarantined", "unowned")

# Machado, Oliveira and Fernandes 2009, full severity; on linear RGB.
EYES = {
    "normal": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}
Rgb = tuple[float, float, float]


def themes() -> dict[str, dict[str, str]]:
    """Names and colours of both themes."""
    text = (FOLDER / "style.css").read_text()
    blocks = re.findall(r":root(\[[^\]]*\])? \{(.*?)\}", text, re.DOTALL)
    return {
        "dark" if mark else "light": dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", body))
        for mark, body in blocks
    }


def linear(colour: str) -> Rgb:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return red, green, blue


def luminance(colour: str) -> float:
    red, green, blue = linear(colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """As WCAG 2 has it."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def lab(rgb: Rgb) -> Rgb:
    """Oklab; distances in it are about as eyes see them."""
    red, green, blue = (max(0.0, value) for value in rgb)
    long = (0.4122214708 * red + 0.5363325363 * green + 0.0514459929 * blue) ** (1 / 3)
    middle = (0.2119034982 * red + 0.6806995451 * green + 0.1073969566 * blue) ** (1 / 3)
    short = (0.0883024619 * red + 0.2817188376 * green + 0.6299787005 * blue) ** (1 / 3)
    return (
        0.2104542553 * long + 0.7936177850 * middle - 0.0040720468 * short,
        1.9779984951 * long - 2.4285922050 * middle + 0.4505937099 * short,
        0.0259040371 * long + 0.7827717662 * middle - 0.8086757660 * short,
    )


def seen(colour: str, eyes: str) -> Rgb:
    rgb = linear(colour)
    red, green, blue = (sum(a * b for a, b in zip(row, rgb, strict=True)) for row in EYES[eyes])
    return lab((red, green, blue))


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_can_be_read(theme: str) -> None:
    """4.5 : 1 for all text, 3 : 1 for cells (WCAG AA)."""
    colours = themes()[theme]
    for text in ("ink", "muted", "accent", "good", "bad"):
        assert contrast(colours[text], colours["ground"]) >= 4.5, text
    assert contrast(colours["bad"], colours["bad-ground"]) >= 4.5
    assert contrast(colours["ink"], colours["note-ground"]) >= 4.5
    assert contrast(colours["ink"], colours["label"]) >= 4.5
    for phase in PHASES:
        assert contrast(colours[phase], colours["ground"]) >= 3.0, phase


@pytest.mark.parametrize("eyes", sorted(EYES))
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_phases_are_told_apart(theme: str, eyes: str) -> None:
    """By colour; each has a figure of its own besides. The hollow one is not compared by colour."""
    colours = themes()[theme]
    for one, other in itertools.combinations(PHASES[:-1], 2):
        distance = sum(
            (a - b) ** 2
            for a, b in zip(seen(colours[one], eyes), seen(colours[other], eyes), strict=True)
        )
        assert distance**0.5 >= 0.05, (one, other)
