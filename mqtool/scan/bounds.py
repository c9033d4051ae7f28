"""What a condition implies about single columns: a set or range that contains the value of every matching row.

Bounds are necessary, not sufficient: they decide what need not be read, and the condition itself is evaluated on the
rest. A condition that is not understood has no bounds, so no matching row is lost.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from msgspec import Struct


class Bounds(Struct, frozen=True):
    """Possible values of one column."""

    low: Any = None  # and high: minimum and maximum, both inclusive; None for no limit
    high: Any = None
    values: frozenset[Any] | None = None  # the only possible values; None if any value between low and high is possible

    @classmethod
    def of(cls, values: Iterable[Any]) -> "Bounds":
        """Returns the bounds of a few values."""
        few = frozenset(values)
        return cls(min(few, default=None), max(few, default=None), few)

    @property
    def is_empty(self) -> bool:
        """Whether no value is possible."""
        if self.values is not None:
            return not self.values
        return self.low is not None and self.high is not None and self.low > self.high

    def admits(self, value: Any) -> bool:
        """Whether a value is possible."""
        if self.values is not None:
            return value in self.values
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)

    def overlaps(self, low: Any, high: Any) -> bool:
        """Whether a value from low to high, both inclusive, is possible."""
        if self.values is not None:
            return any(low <= value <= high for value in self.values)
        return (self.low is None or high >= self.low) and (self.high is None or low <= self.high)

    def mask(self, values: np.ndarray) -> np.ndarray:
        """Returns which of some integers are possible."""
        if self.values is not None:
            return np.isin(values, list(self.values))
        mask = np.ones(len(values), bool)
        if self.low is not None:
            mask &= values >= self.low
        if self.high is not None:
            mask &= values <= self.high
        return mask

    def __and__(self, other: "Bounds") -> "Bounds":
        if self.values is not None:
            return Bounds.of(value for value in self.values if other.admits(value))
        if other.values is not None:
            return other & self
        lows = [bound for bound in (self.low, other.low) if bound is not None]
        highs = [bound for bound in (self.high, other.high) if bound is not None]
        return Bounds(max(lows, default=None), min(highs, default=None))

    def __or__(self, other: "Bounds") -> "Bounds":
        if self.values is not None and other.values is not None:
            return Bounds.of(self.values | other.values)
        low = None if self.low is None or other.low is None else min(self.low, other.low)
        high = None if self.high is None or other.high is None else max(self.high, other.high)
        return Bounds(low, high)


NO_BOUNDS = Bounds()
_MAX_ALTERNATIVES = 16


class Facts(Struct, frozen=True):
    """Bounds by column, for one condition."""

    columns: Mapping[str, Bounds]  # bounds of the columns that are bounded; `store_timestamp` in ms since epoch
    # Alternatives of which every matching row satisfies at least one, if that is more specific than `columns`; else
    # empty.
    either: tuple["Facts", ...] = ()

    def __getitem__(self, column: str) -> Bounds:
        return self.columns.get(column, NO_BOUNDS)

    @property
    def is_impossible(self) -> bool:
        """Whether no row can match."""
        return any(bounds.is_empty for bounds in self.columns.values())

    def __and__(self, other: "Facts") -> "Facts":
        columns = {name: self[name] & other[name] for name in {*self.columns, *other.columns}}
        if not self.either and not other.either:
            return Facts(columns)
        both = [facts & another for facts in self._alternatives for another in other._alternatives]
        return Facts(columns, _few(facts for facts in both if not facts.is_impossible))

    def __or__(self, other: "Facts") -> "Facts":
        if self.is_impossible or other.is_impossible:
            return other if self.is_impossible else self
        columns = {name: self[name] | other[name] for name in self.columns.keys() & other.columns.keys()}
        if not self.either and not other.either and len({*self.columns, *other.columns}) == 1:
            return Facts(columns)
        return Facts(columns, _few((*self._alternatives, *other._alternatives)))

    @property
    def _alternatives(self) -> tuple["Facts", ...]:
        return self.either or (self,)


def _few(alternatives: Iterable[Facts]) -> tuple[Facts, ...]:
    """Returns alternatives if they are few enough to examine each, else none."""
    facts = tuple(alternatives)
    return facts if len(facts) <= _MAX_ALTERNATIVES else ()


NO_FACTS = Facts({})
IMPOSSIBLE = Facts({"topic": Bounds.of(())})


def compared(column: str, operator: str, low: Any, high: Any) -> Facts:
    """Returns the bounds that a comparison with a constant implies.

    Args:
        column: left of the operator.
        operator: "==", "<", "<=", ">" or ">=".
        low, high: values next below and above the constant; both the constant itself if the column can contain it.
    """
    match operator:
        case "==":
            return Facts({column: Bounds.of([low]) if low == high else Bounds(low, high)})
        case "<" | "<=":
            return Facts({column: Bounds(high=high)})
    return Facts({column: Bounds(low=low)})
