"""Lists of bounded size that count everything added to them."""

from collections.abc import Iterable
from itertools import islice
from typing import Generic, TypeVar

from msgspec import Struct, field

LISTED = 10_000
"""How many of each kind are kept; more are only counted, so that a log of nothing but damage needs no memory."""

T = TypeVar("T")


class Listing(Struct, Generic[T]):
    """The first items of a possibly long sequence, and the count of all."""

    items: list[T] = field(default_factory=list)  # at most `LISTED`
    count: int = 0  # of all

    def add(self, item: T) -> None:
        """Counts one more item, and keeps it if there is room."""
        self.count += 1
        if len(self.items) < LISTED:
            self.items.append(item)

    def extend(self, items: Iterable[T], count: int) -> None:
        """Counts `count` more items, of which `items` are the first."""
        self.count += count
        self.items.extend(islice(items, LISTED - len(self.items)))

    def __bool__(self) -> bool:
        return self.count > 0
