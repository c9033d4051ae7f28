"""A salvage brings compacted topics along: a broker serves them only from their own log, and never fills that again."""

import json
import shutil

import pytest

import mqtool
from mqtool.formats.consume_queue import BATCH_CONSUME_QUEUE_UNIT, SPARSE_END_UNIT
from mqtool.repair.runbooks import RUNBOOKS, Request, run
from mqtool.repair.salvage import SalvageOptions, salvage
from mqtool.store import Message
from mqtool.store.config.broker_config import BrokerConfig
from mqtool.store.file_sizes import compaction_sizes
from mqtool.store.known_file import recognise_all
from mqtool.store.target import logs_of
from mqtool.verify import verify
from tests.support.stores import answers, copy_store, tree_digest

NAME = "compaction-5.5.0"
LOG, QUEUE = "compaction/compactionLog/Compact/0", "compaction/compactionCq/Compact/0"
FIRST, MIDDLE, LAST = "0" * 20, f"{16100:020}", f"{64400:020}"
SERVED = [
    (row["queueOffset"], row["properties"]["KEYS"]) for row in answers(NAME, "messages") if row["kind"] == "message"
]
"""Queue offset and KEYS of what the real broker served, in order."""


@pytest.fixture
def root(tmp_path):
    return copy_store(NAME, tmp_path)


def compacted(root):
    """Queue offset and KEYS of the messages in a compacted log."""
    (log,) = logs_of(root / LOG, recognise_all(root / LOG))
    messages = list(log.messages())
    assert all(isinstance(message, Message) for message in messages)
    return [(message.queue_offset, message.properties["KEYS"]) for message in messages]


def overwrite(path, position, data):
    """Writes bytes into a file."""
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def codes(root):
    """Codes of what verify finds."""
    with mqtool.open(root) as store:
        return {finding.code for finding in verify(store).findings}


def test_a_healthy_store_keeps_what_its_compacted_log_has(root, tmp_path):
    before = tree_digest(root)
    result = salvage(root, tmp_path / "new")
    assert (result.is_complete, result.lost, result.verify) == (True, 0, "clean")
    assert not any("compactionMappedFileSize" in note for note in result.notes)
    assert compacted(tmp_path / "new") == compacted(root) == SERVED
    positions = "compaction/position-checkpoint"
    assert (tmp_path / "new" / positions).read_bytes() == (root / positions).read_bytes()
    assert tree_digest(root) == before


DAMAGE = {
    "a record": lambda root: overwrite(root / LOG / FIRST, 200, b"\0\1"),
    "its queue offset": lambda root: overwrite(root / LOG / FIRST, 745 + 20, (5).to_bytes(8, "big")),
    "a unit": lambda root: overwrite(root / QUEUE / FIRST, 46, (5).to_bytes(8, "big")),
    "units of a file": lambda root: overwrite(root / QUEUE / FIRST, 0, bytes(2300)),
    "records of a file": lambda root: overwrite(root / LOG / MIDDLE, 0, bytes(16100)),
    "a queue file": lambda root: (root / QUEUE / MIDDLE).unlink(),
    "a log file": lambda root: (root / LOG / FIRST).unlink(),
    "the last file": lambda root: [(root / part / LAST).unlink() for part in (LOG, QUEUE)],
}


@pytest.mark.parametrize("damage", list(DAMAGE))
def test_what_a_damaged_compacted_log_lacks_comes_from_the_log(damage, root, tmp_path):
    DAMAGE[damage](root)
    assert any(code.startswith("compaction-") for code in codes(root))
    result = salvage(root, tmp_path / "new")
    assert (result.lost, result.verify) == (0, "clean")
    assert compacted(tmp_path / "new") == SERVED


def test_an_interrupted_compaction_loses_no_key(root, tmp_path):
    """The broker renames the old files before it moves the new ones up (CompactionLog.replaceFiles)."""
    for part in (LOG, QUEUE):
        (root / part / FIRST).rename(root / part / f"{FIRST}.delete")
        (root / part / "compacting").mkdir()
        (root / part / MIDDLE).rename(root / part / "compacting" / MIDDLE)
    (root / "commitlog" / FIRST).unlink()
    result = salvage(root, tmp_path / "new")
    assert (result.lost, result.verify) == (0, "clean")
    newest = {key: (offset, key) for offset, key in SERVED}
    assert set(newest.values()) <= set(compacted(tmp_path / "new")) <= set(SERVED)


def test_the_whole_topic_comes_from_the_log_if_its_compacted_log_is_missing(root, tmp_path):
    shutil.rmtree(root / "compaction")
    assert codes(root) == {"compaction-missing"}
    assert any("compactionMappedFileSize" in note for note in salvage(root, tmp_path / "new").notes)
    with mqtool.open(root) as store:
        log = [(message.queue_offset, message.properties["KEYS"]) for message in store.messages()]
    assert compacted(tmp_path / "new") == log
    assert codes(tmp_path / "new") == set()


def test_what_neither_log_has_any_more_is_counted(root, tmp_path):
    overwrite(root / LOG / FIRST, 200, b"\0\1")
    (root / "commitlog" / FIRST).unlink()
    result = salvage(root, tmp_path / "new")
    (row,) = result.queues
    assert row.lost_offsets == ((20, 20),)
    assert compacted(tmp_path / "new") == SERVED[1:]


def test_a_message_that_only_the_compacted_log_has_is_not_lost(root, tmp_path):
    with mqtool.open(root) as store:
        record = next(message for message in store.messages() if message.queue_offset == SERVED[0][0])
    overwrite(root / "commitlog" / FIRST, record.physical_offset + 200, b"\0\1")
    result = salvage(root, tmp_path / "new")
    assert (result.lost, result.lost_bytes) == (0, record.store_size)
    assert compacted(tmp_path / "new") == SERVED


def test_a_slave_has_what_the_master_lacks(root, tmp_path):
    slave = copy_store(NAME, tmp_path / "slave")
    overwrite(root / LOG / FIRST, 200, b"\0\1")
    for store in (root, slave):
        (store / "commitlog" / FIRST).unlink()
    result = salvage(root, tmp_path / "new", SalvageOptions(copies=(slave,)))
    assert result.lost == 0
    assert compacted(tmp_path / "new") == SERVED


def test_the_files_have_the_configured_sizes(root, tmp_path):
    config = {"compactionMappedFileSize": 30000, "compactionCqMappedFileSize": 1000}
    salvage(root, tmp_path / "new", SalvageOptions(config=config))
    assert {path.stat().st_size for path in (tmp_path / "new" / LOG).iterdir()} == {966 * 31}
    queue_files = sorted((tmp_path / "new" / QUEUE).iterdir())
    assert {path.stat().st_size for path in queue_files} == {966}
    assert BATCH_CONSUME_QUEUE_UNIT.parse(queue_files[0].read_bytes(), 966 - 46) == SPARSE_END_UNIT
    assert compacted(tmp_path / "new") == SERVED


def test_the_default_sizes_are_those_of_the_broker():
    """CompactionLog's constructor and getCompactionLogSize with the defaults of 5.5.0."""
    assert compaction_sizes(BrokerConfig(), [], []) == (104_857_460, 10_485_746)


def test_topics_that_are_left_out_have_no_compacted_log(tmp_path):
    root = copy_store(NAME, tmp_path)
    table = json.loads((root / "config/topics.json").read_text())
    table["topicConfigTable"]["Other"] = table["topicConfigTable"]["Compact"] | {"topicName": "Other"}
    (root / "config/topics.json").write_text(json.dumps(table))
    shutil.copytree(root / "compaction/compactionLog/Compact", root / "compaction/compactionLog/Other")
    options = SalvageOptions(compact=True, without_topics=("Other",), map_file=tmp_path / "map")
    salvage(root, tmp_path / "new", options)
    assert [path.name for path in (tmp_path / "new/compaction/compactionLog").iterdir()] == ["Compact"]


def test_the_runbook_that_verify_names_restores_the_topic(root, tmp_path):
    shutil.rmtree(root / "compaction")
    protocol = run(RUNBOOKS["RB-05"], root, Request(apply=True, to=tmp_path / "new"))
    assert protocol.repaired
    assert len(compacted(tmp_path / "new")) == 103
