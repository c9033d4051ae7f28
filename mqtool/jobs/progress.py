"""The progress callback of all long work."""

from collections.abc import Callable

OnProgress = Callable[[int, int], None]
"""`on_progress(done, total)`, called at intervals: how much is done, and of how much; bytes unless stated otherwise.

`done` grows; it may end before `total` where less had to be read than was there.
"""


def ignore(_done: int, _total: int) -> None:
    """The `OnProgress` of callers that want none."""
