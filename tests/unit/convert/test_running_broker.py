"""A store is not converted while its broker runs: what the broker stores meanwhile would be missing."""

import pytest

from mqtool.convert.dledger import convert
from mqtool.engine.start.lock import StoreLock
from mqtool.errors import StoreLockedError
from mqtool.store.store import open_store
from tests.support.damage import held_lock
from tests.support.stores import copy_store


@pytest.fixture
def root(tmp_path):
    return copy_store("dledger-4.9.7", tmp_path)


def test_a_store_that_a_broker_has_open_is_refused(root, tmp_path):
    with (
        held_lock(root / "lock"),
        open_store(root) as store,
        pytest.raises(StoreLockedError, match="stop it, or convert a copy"),
    ):
        convert(store, tmp_path / "plain")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store"]


def test_a_broker_that_is_started_meanwhile_leaves_nothing(root, tmp_path):
    lock = StoreLock(root)

    def start(*_):
        if lock._fd < 0:
            lock.acquire()

    with open_store(root) as store, pytest.raises(StoreLockedError):
        convert(store, tmp_path / "plain", start)
    lock.release()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store"]
