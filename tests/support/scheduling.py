"""How xdist hands out the tests: as its own scheduler of groups does, in a time that does not grow with their number.

That one counts all groups that a worker has ever had after each test, and searches the list of all tests for the next
one: with 12,000 tests on two workers, 25 of 61 seconds of processor time.
"""

from collections.abc import Sequence
from typing import Any

from xdist.scheduler import LoadGroupScheduling


class _Numbered(list[str]):
    """The names of all tests, each found without a search."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(names)
        self._numbers = {name: number for number, name in enumerate(names)}

    def index(self, name: str, *_: Any) -> int:
        return self._numbers[name]


class GroupScheduling(LoadGroupScheduling):
    """Forgets groups whose tests have all run."""

    def add_node_collection(self, node: Any, collection: Sequence[str]) -> None:
        """Takes the names of the tests that a worker has found."""
        super().add_node_collection(node, _Numbered(collection))

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        """Notes that a worker has run a test."""
        super().mark_test_complete(node, item_index, duration)
        work = self.assigned_work[node]
        for name in [name for name, tests in work.items() if all(tests.values())]:
            del work[name]
