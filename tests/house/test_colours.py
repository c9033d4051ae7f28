"""Text on mqtool's own pages has a contrast of at least 4.5 in light and in dark mode (WCAG 2 AA)."""

import re
from itertools import product

import pytest

from tests.house.modules import ROOT

PAGES = ("report", "server/admin")
STATES = ("clean", "dirty", "corrupt")
PAIRS = [*product(("ink", "soft", "link", *STATES), ("back", "pale")), *product(("on",), STATES)]
"""Names of two colours: a text, and what is behind it."""


def colours(page):
    """Colours by name for each mode; what the dark one does not set is that of the light one."""
    css = (ROOT / "mqtool" / page / "templates" / "style.css").read_text("utf-8")
    light, dark = (
        dict(re.findall(r"--([a-z]+): (#[0-9a-f]{6})", block))
        for block in re.findall(r":root \{(.*?)\}", css, re.DOTALL)
    )
    return {"light": light, "dark": light | dark}


def luminance(colour):
    """The relative luminance of `#rrggbb` by WCAG 2."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(text, behind):
    """From 1 (the same) to 21 (black on white)."""
    low, high = sorted((luminance(text), luminance(behind)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("mode", ["light", "dark"])
@pytest.mark.parametrize("page", PAGES)
def test_text_can_be_read(page, mode):
    found = colours(page)[mode]
    low = {f"{text} on {behind}": contrast(found[text], found[behind]) for text, behind in PAIRS}
    assert {pair: ratio for pair, ratio in low.items() if ratio < 4.5} == {}


def test_the_measure_is_that_of_wcag():
    assert contrast("#000000", "#ffffff") == 21
    assert round(contrast("#777777", "#ffffff"), 2) == 4.48
