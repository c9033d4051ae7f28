"""What tests with real clients and brokers share."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.cli.conftest import mqtool
from tests.support.served import KEYS, Served

__all__ = ["mqtool", "serve"]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Served]]:
    """`serve(store)` starts a process; whatever runs in the end is killed."""
    started: list[Served] = []

    def start(store: Path, keys: Mapping[str, object] = KEYS) -> Served:
        started.append(Served(store, tmp_path, keys))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.stop(kill=True)
