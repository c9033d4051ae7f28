"""DLedger logs: the real decoder's entries and the real broker's messages, one by one; damage of every part."""

import base64
import struct

import pyarrow.parquet as pq
import pytest

import mqtool
from mqtool.choices import FileKind
from mqtool.cli.app import run
from mqtool.formats import dledger
from mqtool.records.damage import Damage
from mqtool.store.describe import describe
from mqtool.store.entries import rows_of
from mqtool.store.known_file import recognise_all
from mqtool.verify.store import verify
from tests.support.stores import STORES, answers, copy_store, tree_digest

LEDGERS = [store for store in STORES if store.name.startswith("dledger")]
HEADER = 48


def entries_answer(name):
    """The lines of kind entry that belong to a store, and the one of kind ledger."""
    node = name.rpartition("-")[2] if name.startswith("dledger3") else ""
    lines = answers(name, f"entries-{node}" if node else "entries")
    return [line for line in lines if line["kind"] == "entry"], lines[0]


@pytest.fixture(scope="module", params=LEDGERS, ids=str)
def ledger(request, tmp_path_factory):
    """A store in DLedger mode: its name and a copy whose index file is unpacked."""
    return request.param.name, copy_store(request.param.name, tmp_path_factory.mktemp("ledger"))


def test_every_entry_is_the_real_decoders(ledger):
    name, root = ledger
    expected, summary = entries_answer(name)
    files = recognise_all(next(root.glob("dledger-*")), FileKind.DLEDGER_ENTRY)
    found = [row for file in files for row in rows_of(file)]
    names = ("magic", "size", "index", "term", "pos", "channel", "chainCrc", "bodyCrc", "bodyLength")
    ours = ("magic", "size", "index", "term", "position", "channel", "chain_crc", "body_crc", "body_length")
    assert [[row[field] for field in ours] for row in found] == [[line[field] for field in names] for line in expected]
    assert found[-1]["position"] + found[-1]["size"] == summary["writePos"]


def test_every_index_unit_is_the_real_decoders(ledger):
    name, root = ledger
    expected, _ = entries_answer(name)
    files = recognise_all(next(root.glob("dledger-*")), FileKind.DLEDGER_INDEX)
    found = [row for file in files for row in rows_of(file)]
    names = ("indexMagic", "indexPos", "indexSize", "indexIndex", "indexTerm")
    ours = ("magic", "position", "size", "index", "term")
    assert [[row[field] for field in ours] for row in found] == [[line[field] for field in names] for line in expected]


def test_every_message_is_the_one_that_the_broker_served(ledger):
    name, root = ledger
    before = tree_digest(root)
    with mqtool.open(root) as store:
        found = {message.physical_offset: message for message in store.messages()}
    expected = {line["phyOffset"]: line for line in answers(name, "messages") if line["kind"] == "message"}
    assert found.keys() == expected.keys()
    for offset, line in expected.items():
        message = found[offset]
        ours = (
            message.topic,
            message.queue_id,
            message.queue_offset,
            message.store_size,
            message.sys_flag & ~1,
            message.born_timestamp,
            message.store_timestamp,
            message.body_crc,
            message.properties,
        )
        assert ours == (
            line["topic"],
            line["queueId"],
            line["queueOffset"],
            line["size"],
            line["sysFlag"] & ~1,
            line["bornTimestamp"],
            line["storeTimestamp"],
            line["bodyCrc"],
            line["properties"],
        )
        assert message.body == base64.b64decode(line["body"])
    assert tree_digest(root) == before


def test_every_message_is_found_through_its_queue_and_by_its_offset(ledger):
    name, root = ledger
    with mqtool.open(root) as store:
        for line in answers(name, "messages"):
            if line["kind"] == "message":
                found = store.get_message(line["topic"], line["queueId"], line["queueOffset"], 1).messages[0]
                assert found.physical_offset == line["phyOffset"]
                assert store.commit_log.record_at(line["phyOffset"]).queue_offset == line["queueOffset"]


def test_an_undamaged_ledger_is_checked_and_clean(ledger):
    _, root = ledger
    with mqtool.open(root) as store:
        found = verify(store)
    assert found.findings == ()
    assert [check.state.value for check in found.checks if check.area == "dledger"] == ["clean"]


def test_a_ledger_without_its_index_file_is_unknown_not_clean(tmp_path):
    root = copy_store("dledger-5.5.0", tmp_path)
    (root / "dledger-n0/index/00000000000000000000").unlink()
    with mqtool.open(root) as store:
        states = {check.area: check.state.value for check in verify(store).checks}
    assert states["dledger"] == "unknown"


def over(path, position, data):
    """Replaces bytes of a file."""
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


FIELD = {field.name: field for field in dledger.ENTRY.fields}
DATA, INDEX = "data/00000000000000000000", "index/00000000000000000000"
HARM = {
    "index of an entry": (DATA, 1001 + FIELD["index"].offset, struct.pack(">q", 9), "dledger-index-order"),
    "term of an entry": (DATA, 1001 + FIELD["term"].offset, struct.pack(">q", -1), "dledger-term-order"),
    "chain crc": (DATA, 1001 + FIELD["chain_crc"].offset, b"\1", "dledger-unused-field"),
    "position in the index": (INDEX, 32 + 4, struct.pack(">q", 7), "dledger-index-unit"),
    "end of the index": (INDEX, 32 * 185, bytes(32), "dledger-index-unit"),
    "end index": ("checkpoint", 0, b"endIndex=99999\ncommittedIndex=9\n", "dledger-checkpoint-ahead"),
    "current term": ("currterm", 0, b"currTerm=-4\nvoteLeader=n0\n\n", "dledger-term-behind"),
    "no text": ("checkpoint", 0, b"\xff\xfe", "dledger-text"),
    "entry magic": (DATA, 1001, struct.pack(">i", 2), "log-bad-header"),
    "entry size": (DATA, 1001 + FIELD["size"].offset, struct.pack(">i", 77), "log-bad-header"),
    "entry position": (DATA, 1001 + FIELD["position"].offset, struct.pack(">q", 77), "log-bad-header"),
    "record body": (DATA, 1001 + HEADER + 300, b"\0\1", "log-bad-body"),
}


@pytest.mark.parametrize("harm", list(HARM))
def test_each_harm_is_named(tmp_path, harm):
    root = copy_store("dledger-5.5.0", tmp_path)
    file, position, data, code = HARM[harm]
    over(root / "dledger-n0" / file, position, data)
    with mqtool.open(root) as store:
        codes = {finding.code for finding in verify(store).findings}
        assert code in codes
        messages = [item for item in store.messages() if not isinstance(item, Damage)]
    assert len(messages) == (185 if harm == "record body" else 186)


def test_several_ledgers_are_refused_until_one_is_chosen(tmp_path):
    root = copy_store("dledger-5.5.0", tmp_path)
    (root / "dledger-n7").mkdir()
    with pytest.raises(mqtool.errors.LayoutError, match="dLegerSelfId"):
        mqtool.open(root)
    with mqtool.open(root, {"dLegerSelfId": "n0"}) as store:
        assert store.commit_log.max_offset == 175926


def test_a_broker_without_dledger_sees_the_ordinary_part_only(tmp_path):
    root = copy_store("dledger-mixed-5.5.0", tmp_path)
    with mqtool.open(root, {"enableDLegerCommitLog": "false"}) as store:
        assert sum(1 for _ in store.messages()) == 100
        assert {check.area.value for check in verify(store).checks if check.state == "unknown"} >= {"commitlog"}


def test_a_ledger_is_described_with_its_directory_and_first_time():
    fixture = next(store for store in LEDGERS if store.name == "dledger-5.5.0")
    with mqtool.open(fixture.directory) as store:
        log = describe(store)["commit_log"]
    first = next(line for line in answers(fixture.name, "messages") if line.get("phyOffset") == HEADER)
    assert log["first_timestamp"] == first["storeTimestamp"]
    assert log["directories"] == [str(fixture.directory / "dledger-n0" / "data")]


def test_an_export_in_pieces_holds_every_message_once(tmp_path):
    fixture = next(store for store in LEDGERS if store.name == "dledger-mixed-5.5.0")
    assert (
        run(["export", str(fixture.directory), "--output", str(tmp_path / "lake"), "--split", "4096", "--jobs", "1"])
        == 0
    )
    rows = pq.read_table(tmp_path / "lake" / "messages").to_pylist()
    expected = [line for line in answers(fixture.name, "messages") if line["kind"] == "message"]
    assert sorted(row["physical_offset"] for row in rows) == sorted(line["phyOffset"] for line in expected)
