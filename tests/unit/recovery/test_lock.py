"""Asking who holds a lock takes nothing."""

import fcntl
import os

import pytest

from mqtool.recovery.lock import lock_holder
from tests.support.damage import held_lock


@pytest.fixture
def lock(tmp_path):
    path = tmp_path / "lock"
    path.write_bytes(b"lock")
    return path


def test_a_free_lock_has_no_holder(lock):
    assert lock_holder(lock) is None


def test_a_held_lock_names_its_process(lock):
    with held_lock(lock):
        found = lock_holder(lock)
        assert found is not None
        assert found not in (0, os.getpid())
    assert lock_holder(lock) is None


def test_another_byte_does_not_matter_and_the_lock_can_still_be_taken(lock):
    assert lock_holder(lock) is None
    with lock.open("r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        assert lock.read_bytes() == b"lock"


def test_a_lock_that_is_not_there_is_not_held_and_not_made(tmp_path):
    assert lock_holder(tmp_path / "lock") is None
    assert list(tmp_path.iterdir()) == []
