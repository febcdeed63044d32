"""Contrast, measured: every pair of colours that the style sheet puts on each other, in both themes (WCAG 2.1, AA)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import rekappa.console

SHEET = (Path(rekappa.console.__file__).parent / "static" / "console.css").read_text()
TEXT, LARGE = 4.5, 3.0
"""What AA asks of text, and of large text, the parts of charts, borders of fields and marks of focus."""
PAIRS = [
    *((ink, back, TEXT) for ink in ("ink", "soft", "accent") for back in ("card", "page", "hover")),
    *((ink, f"{ink}-back", TEXT) for ink in ("good", "bad", "waits", "quiet")),
    *(("ink", back, TEXT) for back in ("waits-back", "bad-back", "good-back", "code")),
    *(("accent", back, TEXT) for back in ("waits-back", "bad-back", "quiet-back")),
    ("soft", "code", TEXT),
    ("accent-ink", "accent", TEXT),
    ("card", "bad", TEXT),
    *((f"c{number}", "card", LARGE) for number in range(6)),
    ("edge", "page", LARGE),
    ("edge", "card", LARGE),
    ("focus", "card", LARGE),
    ("focus", "page", LARGE),
    ("bad", "card", LARGE),
]


def colours(theme: str) -> dict[str, str]:
    light = re.search(r":root \{(.*?)\}", SHEET, re.DOTALL)
    dark = re.search(r"prefers-color-scheme: dark\) \{\s*:root \{(.*?)\}", SHEET, re.DOTALL)
    assert light is not None
    assert dark is not None
    found = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", light[1]))
    return found | (dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", dark[1])) if theme == "dark" else {})


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_the_measure_is_that_of_the_standard() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_colour_can_be_told_from_what_it_stands_on(theme: str) -> None:
    known = colours(theme)
    poor = {
        f"{ink} on {back}": round(contrast(known[ink], known[back]), 2)
        for ink, back, wanted in PAIRS
        if contrast(known[ink], known[back]) < wanted
    }
    assert poor == {}


def test_the_style_sheet_has_no_colour_of_its_own_beside_its_themes() -> None:
    """So that the pairs above are all that there are."""
    rest = re.sub(r":root \{.*?\}", "", SHEET, flags=re.DOTALL)
    assert re.findall(r"#[0-9a-fA-F]{3,8}\b|rgba?\(|hsla?\(", rest) == []
    named = set(re.findall(r"var\(--([\w-]+)\)", rest))
    assert named <= set(colours("dark"))
    assert set(colours("light")) == set(re.findall(r"--([\w-]+): #", SHEET))
