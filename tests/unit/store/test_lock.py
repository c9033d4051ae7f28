"""Who holds the store's lock is found out without taking the lock or releasing it."""

import fcntl
import os
import subprocess
import sys

from mqtool.store import lock
from tests.support.damage import held_lock
from tests.support.engine import open_small

ASK = """
import fcntl, os, struct, sys
asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
found = fcntl.fcntl(os.open(sys.argv[1], os.O_RDONLY), fcntl.F_GETLK, asked)
sys.exit(struct.unpack("hhqqi4x", found)[0] != fcntl.F_UNLCK)
"""


def is_locked(path):
    """Asks another process whether somebody holds the lock."""
    return subprocess.run([sys.executable, "-c", ASK, path], check=False).returncode == 1


def test_a_lock_of_this_process_is_found_and_kept(tmp_path):
    path = tmp_path / "lock"
    with path.open("wb") as file:
        fcntl.lockf(file, fcntl.LOCK_EX, 1)
        assert lock.lock_holder(tmp_path) == os.getpid()
        assert is_locked(path)


def test_a_file_that_is_only_open_is_no_lock(tmp_path):
    with (tmp_path / "lock").open("wb"):
        assert lock.lock_holder(tmp_path) is None
    assert lock.lock_holder(tmp_path) is None


def test_the_list_of_all_locks_is_not_asked_for_if_the_file_is_not_open(tmp_path, monkeypatch):
    (tmp_path / "lock").touch()
    monkeypatch.setattr(lock, "LOCKS", None)
    assert lock.lock_holder(tmp_path) is None


def test_a_held_lock_names_its_process(tmp_path):
    path = tmp_path / "lock"
    path.write_bytes(b"lock")
    with held_lock(path):
        assert lock.lock_holder(tmp_path) not in (None, 0, os.getpid())
    assert lock.lock_holder(tmp_path) is None


def test_the_lock_of_an_open_file_names_the_process_that_opened_it(tmp_path, monkeypatch):
    """An engine locks so; the kernel itself answers with process -1."""
    with open_small(tmp_path):
        assert lock.lock_holder(tmp_path) == os.getpid()
        assert is_locked(tmp_path / "lock")
        monkeypatch.setattr(lock, "PROCESSES", tmp_path)
        assert lock.holder_words(lock.lock_holder(tmp_path)) == "another process"
    assert lock.lock_holder(tmp_path) is None


def test_a_descriptor_that_is_closed_while_they_are_listed_hides_no_other(tmp_path):
    """That of the list itself is closed by then; it is the first one that is free."""
    earlier = [os.open(tmp_path, os.O_RDONLY) for _ in range(4)]
    with open_small(tmp_path):
        for descriptor in earlier:
            os.close(descriptor)
        assert lock.lock_holder(tmp_path) == os.getpid()


def test_another_process_may_take_the_lock_after_the_question(tmp_path):
    path = tmp_path / "lock"
    path.write_bytes(b"lock")
    assert lock.lock_holder(tmp_path) is None
    with held_lock(path):
        assert path.read_bytes() == b"lock"


def test_a_lock_that_is_not_there_is_not_held_and_not_made(tmp_path):
    assert lock.lock_holder(tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def failing(*_, **__):
    raise OSError(38, "Function not implemented")


def test_a_lock_that_the_system_cannot_be_asked_about_has_no_known_holder(tmp_path, monkeypatch):
    """As on a file system without locks."""
    path = tmp_path / "lock"
    path.write_bytes(b"lock")
    with held_lock(path):
        assert lock.lock_holder(tmp_path) is not None
        monkeypatch.setattr(lock.fcntl, "fcntl", failing)
        assert lock.lock_holder(tmp_path) is None


def test_without_the_list_of_descriptors_the_list_of_locks_decides(tmp_path, monkeypatch):
    path = tmp_path / "lock"
    with path.open("wb") as file:
        fcntl.lockf(file, fcntl.LOCK_EX, 1)
        monkeypatch.setattr(lock.os, "listdir", failing)
        assert lock.lock_holder(tmp_path) == os.getpid()
        fcntl.lockf(file, fcntl.LOCK_UN, 1)
        assert lock.lock_holder(tmp_path) is None


def test_without_the_list_of_locks_the_lock_of_an_engine_here_is_found_and_kept(tmp_path, monkeypatch):
    """macOS has no such list; the kernel then says that somebody has the lock, since it belongs to the open file."""
    monkeypatch.setattr(lock, "LOCKS", tmp_path / "absent")
    with open_small(tmp_path / "store"):
        assert lock.lock_holder(tmp_path / "store") is not None
        assert is_locked(tmp_path / "store" / "lock")
