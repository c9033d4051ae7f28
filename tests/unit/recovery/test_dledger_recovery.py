"""The recovery of a DLedger log of a few small files, where no answer of a real broker is recorded."""

import os
import shutil
from pathlib import Path

import pytest

from mqtool.formats.dledger import DEFAULT_INDEX_FILE_SIZE
from mqtool.recovery import predict
from mqtool.recovery.action_log import ActionLog, StartFailed
from mqtool.recovery.dledger_recovery import DataFiles, LedgerFiles, LedgerRecovery, rewritten_units
from mqtool.recovery.mapped_files import list_entries
from mqtool.store.layout import LedgerPlace
from tests.support.ledger import UNIT, into_ledger
from tests.unit.recovery.stores import QUEUE_FILE, SEGMENT, StoreWriter, named

KEYS = {
    "enableDLegerCommitLog": "true",
    "dLegerSelfId": "n0",
    "mappedFileSizeCommitLog": SEGMENT,
    "mappedFileSizeConsumeQueue": QUEUE_FILE,
    "maxHashSlotNum": 10,
    "maxIndexNum": 20,
}
COUNT = 140


@pytest.fixture
def home(tmp_path) -> Path:
    """A ledger of eight data files."""
    writer = StoreWriter(tmp_path / "store")
    for number in range(COUNT):
        writer.put(b"%03d" % number + bytes(60))
    into_ledger(writer.root)
    return writer.root / "dledger-n0"


def recovery(home: Path, index_size: int = COUNT * UNIT.size) -> LedgerRecovery:
    actions = ActionLog()
    data = DataFiles(home / "data", SEGMENT, actions)
    index = LedgerFiles(home / "index", index_size, actions)
    for files in (data, index):
        files.load(list_entries(files.directory) or [])
    return LedgerRecovery(home, data, index, actions)


def split_index(home: Path, size: int) -> list[Path]:
    """Has the index in files of a size instead of one."""
    (whole,) = (home / "index").iterdir()
    data = whole.read_bytes()
    whole.unlink()
    paths = []
    for base in range(0, len(data), size):
        paths.append(home / "index" / f"{base:020d}")
        paths[-1].write_bytes(data[base : base + size].ljust(size, b"\0"))
    return paths


def data_files(home: Path) -> list[Path]:
    return sorted((home / "data").iterdir())


def test_a_log_is_followed_from_the_third_file_from_the_end(home):
    found = recovery(home).run()
    assert len(data_files(home)) == 8
    assert (found.scan_from, found.end_index, found.committed_index) == (5 * SEGMENT, COUNT - 1, COUNT - 1)


@pytest.mark.parametrize("left", [0, 20])
def test_a_file_that_is_cut_meanwhile_is_not_begun_with(left, home):
    made = recovery(home)
    os.truncate(data_files(home)[5], left)
    with pytest.raises(StartFailed, match=f"truncating the data from {5 * SEGMENT}"):
        made.run()
    assert made.result.scan_from == 4 * SEGMENT


def test_a_log_without_a_valid_entry_is_cut_to_nothing(home):
    for path in data_files(home)[1:]:
        path.unlink()
    data_files(home)[0].write_bytes(bytes(SEGMENT))
    made = recovery(home)
    found = made.run()
    assert (found.entries, found.end_index, found.end) == (0, -1, 0)
    assert (made._data.max_offset, made._index.max_offset) == (0, 0)


def test_a_committed_entry_that_the_index_does_not_have_ends_the_start(home):
    """DLedgerMmapFileStore.get is asked for it; the index files of the entries before those that are checked are gone."""
    for path in split_index(home, 10 * UNIT.size)[:3]:
        path.unlink()
    (home / "checkpoint").write_text("committedIndex=1\nendIndex=139\n")
    with pytest.raises(StartFailed, match="Get null index for 1"):
        recovery(home, 10 * UNIT.size).run()
    (home / "checkpoint").write_text("committedIndex=50\nendIndex=139\n")
    assert recovery(home, 10 * UNIT.size).run().committed_index == 50


def test_no_units_are_written_again_in_a_log_that_no_start_recovers(home):
    os.truncate(home / "index" / f"{0:020d}", DEFAULT_INDEX_FILE_SIZE)
    with (home / "index" / f"{0:020d}").open("r+b") as file:
        file.seek((COUNT - 1) * UNIT.size)
        file.write(bytes(UNIT.size))
    assert rewritten_units(LedgerPlace(home, (home / "data",)), SEGMENT) == {COUNT - 1}
    two = LedgerPlace(home, (home / "data", home / "more"))
    assert rewritten_units(two, SEGMENT) == frozenset()
    shutil.rmtree(home / "data")
    shutil.rmtree(home / "index")
    assert rewritten_units(LedgerPlace(home, (home / "data",)), SEGMENT) == frozenset()


@pytest.mark.parametrize(("committed", "hangs"), [(2, False), (3, True)])
def test_dispatch_may_end_after_what_is_committed_and_not_before(committed, hangs, tmp_path):
    """The offset of a further queue is no number: the thread dies, and start() waits for what is committed only."""
    writer = StoreWriter(tmp_path / "store").put()
    bad = named(INNER_MULTI_DISPATCH="%LMQ%a", INNER_MULTI_QUEUE_OFFSET="x")
    writer.put(bytes(3600)).put(bytes(500), stored=bad)  # the bad one is in a file of its own
    into_ledger(writer.root)
    os.truncate(writer.root / "dledger-n0/index" / f"{0:020d}", DEFAULT_INDEX_FILE_SIZE)
    (writer.root / "dledger-n0/checkpoint").write_text(f"committedIndex={committed - 1}\nendIndex=2\n")
    keys = {**KEYS, "enableLmq": "true", "enableMultiDispatch": "true"}
    found = predict(writer.root, "4.9", keys)
    assert (found.hung is not None) == hangs
    if not hangs:
        assert any("dispatch gets no further than" in one for one in found.accepted)


@pytest.mark.parametrize("release", ["4.9", "5.5"])
@pytest.mark.parametrize("node", ["node-a", "n", "n1x", "n99999999999"])
def test_a_node_without_a_number_does_not_start(node, release, home):
    home.rename(home.with_name(f"dledger-{node}"))
    found = predict(home.parent, release, KEYS | {"dLegerSelfId": node}, whole_broker=False)
    assert (found.exit, found.refusal) == (-1, f'java.lang.NumberFormatException: For input string: "{node[1:]}"')


@pytest.mark.parametrize("node", ["n7", "x-1", "n+2"])
def test_a_node_is_any_character_and_a_number_of_java(node, home):
    home.rename(home.with_name(f"dledger-{node}"))
    found = predict(home.parent, "5.5", KEYS | {"dLegerSelfId": node}, whole_broker=False)
    assert found.refusal is not None
    assert "length not matched" in found.refusal  # of the ledger's small index, which is looked at afterwards
