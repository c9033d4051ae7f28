"""Fixtures of the engine's tests: stores that are closed and verified when the test ends."""

import pytest

from mqtool.engine import open_store
from tests.support.engine import HeldClock, findings_of, small_options


@pytest.fixture
def clock():
    return HeldClock()


@pytest.fixture
def opened(in_memory, clock):
    """Opens small stores without threads; at the end each is closed, and `verify` must find nothing in it."""
    stores = []

    def open_one(name="store", *, declared=(), **more):
        known = {key: more.pop(key) for key in ("hooks", "files", "policy", "bit_map_of", "background") if key in more}
        known.setdefault("background", False)
        store = open_store(in_memory / name, small_options(**more), clock=clock, **known)
        stores.append((store, declared))
        return store

    yield open_one
    for store, declared in stores:
        store.close()
        if any((store.path / "commitlog").glob("*")):
            assert findings_of(store.path, store.options, *declared) == []
