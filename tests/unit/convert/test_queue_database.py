"""Queues written to RocksDB, on a disk that is full."""

import resource

import pytest

from mqtool.convert.queues import _Writer
from mqtool.errors import StoreError
from mqtool.formats.consume_queue import RocksUnit

pytest.importorskip("rocksdict")

_LIMIT = 64 << 10
_ENOUGH = 100_000


@pytest.fixture
def small_files():
    """While this lasts, no file may have more than 64 KiB."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (_LIMIT, hard))

    yield limited
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("when", ["while units are added", "at the end"])
def test_an_error_of_the_disk_names_the_database_and_the_reason(when, tmp_path, small_files):
    """The library's next error, when it is closed, is "Writer has previous error"."""

    def write():
        with _Writer(tmp_path / "queues") as writer:
            if when == "at the end":
                for offset in range(9_999):
                    writer.add(("Topic", 0), offset, RocksUnit(offset, 100, 0, 0))
            small_files()
            for offset in range(_ENOUGH if when != "at the end" else 0):
                writer.add(("Topic", 0), offset, RocksUnit(offset, 100, 0, 0))
            writer.finish(_ENOUGH)

    with pytest.raises(StoreError, match=r"queues: cannot be written: IO error: .*File too large"):
        write()
