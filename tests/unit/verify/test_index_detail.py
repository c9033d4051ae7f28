"""An index that disagrees with the log in all its entries: the work grows with the entries, not with their square."""

import numpy as np
import pytest

import mqtool
from mqtool.formats import index_file
from mqtool.formats.index_file import ENTRY
from mqtool.verify import index_findings, verify
from tests.support.big_store import write_big_store

MESSAGES, KEYS = 300, 3
NOTED = 5


class Counted(list):
    """A list that counts how many of its items are read."""

    read = 0

    def __getitem__(self, which):
        found = super().__getitem__(which)
        Counted.read += len(found) if isinstance(which, slice) else 1
        return found

    def __iter__(self):
        Counted.read += len(self)
        return super().__iter__()


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return write_big_store(tmp_path_factory.mktemp("odd") / "store", MESSAGES, size=100, segment=1 << 20, index=True)


@pytest.fixture
def found(monkeypatch):
    """The entries noted while they were compared; of each file no more than `NOTED`."""
    monkeypatch.setattr(Counted, "read", 0)
    made = []
    whole = index_findings.IndexDifferences

    def counted():
        made.append(whole(wrong=Counted()))
        return made[-1]

    monkeypatch.setattr(index_findings, "IndexDifferences", counted)
    monkeypatch.setattr(index_findings, "MAX_NOTED", NOTED)
    return made


@pytest.mark.parametrize(
    ("field", "by", "code"),
    [
        ("time_diff", 1, "index-wrong-time"),
        ("physical_offset", 4, "index-dangling-entry"),
        ("key_hash", 5_000_000, "index-foreign-entry"),  # the same slot: the chains stay as they are
    ],
)
def test_what_is_noted_is_not_read_again_for_each_entry(store, found, field, by, code):
    (path,) = (store / "index").iterdir()
    at = index_file.entry_position(1, 5_000_000)
    entries = np.memmap(path, ENTRY.dtype, "r+", at, (MESSAGES * KEYS,))
    before = entries[field].copy()
    entries[field] = before % (1 << 30) + by
    try:
        with mqtool.open(store) as opened:
            verify(opened)
    finally:
        entries[field] = before
    noted = found[0].wrong
    read = Counted.read
    assert [entry.code for _, entry in noted] == [code] * NOTED
    assert read <= 10 * NOTED
