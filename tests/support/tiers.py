"""The tiers of tests: `./check --fast`, `./check`, `./check --full`, and the night job with MQTOOL_LONG=1.

A marker of a test decides in which tier it first runs: `slow`, `long`, `spark`, `browser` and `interop` keep it out of
the fast tier, `long` and `interop` (unless it is also `short`) out of the default one, `night` out of all but the night
job. Everything else in `tests/golden` and `tests/cli` belongs to the default tier.
"""

import os
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

NIGHT = os.environ.get("MQTOOL_LONG") == "1"
"""Whether everything is wanted, for the hours that it takes."""

TIERS = ("fast", "default", "full")
FAST_FOLDERS = frozenset({"unit", "property", "house"})
_NOT_FAST = frozenset({"slow", "long", "spark", "interop", "browser"})


def night(*values: Any, id: str | None = None) -> Any:  # noqa: A002 - as pytest.param calls it
    """One set of parameters that takes too long for every run; its siblings show the same with another release or store."""
    return pytest.param(*values, marks=pytest.mark.night, id=id)


def one_in(step: int, values: Iterable[Any], others: str = "slow") -> list[Any]:
    """Sets of parameters of which the first of every `step` runs in each tier; the others get a mark, `slow` or `night`."""
    return [
        value
        if number % step == 0
        else pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=getattr(pytest.mark, others))
        for number, value in enumerate(values)
    ]


def some(step: int, values: Sequence[Any]) -> Sequence[Any]:
    """Cases of a table in parts: the first of every `step`, and all in the night."""
    return values if NIGHT else values[::step]


def belongs(folder: str, markers: frozenset[str], tier: str) -> bool:
    """Whether a test runs in a tier.

    Args:
        folder: of `tests/`, in which it is.
        markers: names of its markers.
        tier: one of TIERS.
    """
    if tier == "full":
        return True
    if tier == "default":
        return "short" in markers or markers.isdisjoint({"interop", "long"})
    return folder in FAST_FOLDERS and not markers & _NOT_FAST
