"""A clock that stepped back while the broker wrote: its files state what happened, and are not damaged."""

import mqtool
from mqtool.formats import index_file
from mqtool.formats.index_file import HEADER
from mqtool.rebuild.job import rebuild
from mqtool.rebuild.settings import settings_of
from mqtool.verify import State, verify
from tests.support.engine import HeldClock, open_small

CONFIG = {"maxHashSlotNum": "10", "maxIndexNum": "20"}


def written(path):
    """A store with one index file whose last entry is an hour older than its first."""
    clock = HeldClock()
    with open_small(path, clock) as store:
        for number in range(8):
            clock.time -= 3_600_000 // 7
            store.put("Orders", 0, b"body", f"KEYS\1k{number}\2".encode())
    (file,) = (path / "index").iterdir()
    header = HEADER.parse(file.read_bytes()[: index_file.HEADER_SIZE])
    assert header.end_timestamp < header.begin_timestamp
    return file, header


def test_an_index_file_that_ends_before_it_begins_is_as_the_broker_writes_it(tmp_path):
    file, _ = written(tmp_path / "store")
    with mqtool.open(tmp_path / "store", CONFIG) as store:
        found = verify(store)
        assert {one.code for one in found.findings} & {"index-header"} == set()
        assert next(check.state for check in found.checks if check.area == "index") is State.CLEAN
        rebuild(store, tmp_path / "again", settings_of(store))
    (again,) = (tmp_path / "again/index").iterdir()
    assert again.read_bytes() == file.read_bytes()


def test_a_time_that_is_not_the_last_record_s_is_an_error_still(tmp_path):
    file, header = written(tmp_path / "store")
    with file.open("r+b") as opened:
        opened.seek(HEADER.offset("end_timestamp"))
        opened.write((header.end_timestamp - 1000).to_bytes(8, "big"))
    with mqtool.open(tmp_path / "store", CONFIG) as store:
        found = verify(store)
    (one,) = (one for one in found.findings if one.code == "index-header")
    assert f"ends at time {header.end_timestamp - 1000}" in one.evidence
