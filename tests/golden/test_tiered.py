"""Tiered storage: the messages that the broker served, through records, units and index; damage of every part."""

import base64
import json
import struct
from pathlib import Path

import pytest

from mqtool.errors import CorruptionError
from mqtool.formats import java, tiered
from mqtool.formats.tiered import INDEX_NODE
from mqtool.records.damage import Damage
from mqtool.siblings.registry import recognise
from mqtool.siblings.tiered.store import TieredStore
from mqtool.siblings.tiered.verify import MAX_INDEX_BYTES, verify_index
from mqtool.verify import Severity
from tests.support.stores import answers, copy_store, fixture, tree_digest
from tests.support.unreadable import unreadable

ROOT = fixture("tieredstore-5.5.0/store/tiered")
HOME = "212d6b50_DefaultCluster/broker-a"
SEGMENT = "cfcd208400000000000000000000"
LOG, QUEUE = f"{HOME}/Tier/0/COMMIT_LOG/{SEGMENT}", f"{HOME}/Tier/0/CONSUME_QUEUE/{SEGMENT}"
INDEX = f"{HOME}/rmq_sys_INDEX/0/INDEX/{SEGMENT}"
OPEN = "../tiered_index_file/1795222629120"
"""An index file of 100 slots and room for 200 entries, of which the real IndexStoreFile wrote 80."""


def opened(path=ROOT):
    """The store, by the way that commands take."""
    kind = recognise(path)
    assert kind.name == "tiered"
    return kind.open(path)


def test_every_message_is_the_one_that_the_broker_served():
    expected = [line for line in answers("tieredstore-5.5.0", "messages") if line["kind"] == "message"]
    before = tree_digest(ROOT)
    with opened() as store:
        found = list(store.rows("tiered-message"))
        for line in expected:
            (row,) = store.get(f"{line['topic']}/{line['queueId']}@{line['queueOffset']}")
            assert row["unique_key"] == line["properties"]["UNIQ_KEY"]
    ours = [
        (
            row["topic"],
            row["queue_id"],
            row["queue_offset"],
            row["store_timestamp"],
            row["born_timestamp"],
            row["keys"],
            row["tags"],
            row["body"],
        )
        for row in found
    ]
    assert ours == [
        (
            line["topic"],
            line["queueId"],
            line["queueOffset"],
            line["storeTimestamp"],
            line["bornTimestamp"],
            line["properties"]["KEYS"],
            line["properties"]["TAGS"],
            base64.b64decode(line["body"]),
        )
        for line in expected
    ]
    assert tree_digest(ROOT) == before


def test_units_lead_to_the_records_of_their_queue_offsets():
    with opened() as store:
        places = [(row["queue_offset"], row["position"], row["size"]) for row in store.rows("tiered-message")]
        assert [(r["queue_offset"], r["position"], r["size"]) for r in store.rows("tiered-unit")] == places


def test_segments_are_those_that_the_metadata_lists():
    metadata = fixture("tieredstore-5.5.0/store/config/tieredStoreMetadata.json").read_text("utf-8")
    with opened() as store:
        sizes = {row["type"]: row["size"] for row in store.rows("tiered-segment")}
        assert store.layout()["segments"] == 3
    assert all(f'"size":{size},' in metadata for size in sizes.values())
    assert set(sizes) == {"COMMIT_LOG", "CONSUME_QUEUE", "INDEX"}


def test_an_undamaged_store_has_no_finding():
    with opened() as store:
        assert list(store.verify()) == []


HARM = {
    "body": (LOG, 300, b"\0\1", "tiered-damage"),
    "framing": (LOG, 851, struct.pack(">i", 7), "tiered-damage"),
    "queue of a record": (LOG, 12, struct.pack(">i", 9), "tiered-foreign-record"),
    "position of a unit": (QUEUE, 0, struct.pack(">q", 5), "tiered-unit"),
    "tags of a unit": (QUEUE, 32, struct.pack(">q", 5), "tiered-unit"),
    "index magic": (INDEX, 0, b"\0", "tiered-index"),
    "index count": (INDEX, 24, struct.pack(">i", 301), "tiered-index"),
    "index slot": (INDEX, 28, struct.pack(">i", 1 << 20), "tiered-index"),
    "index hash": (INDEX, 828, struct.pack(">i", 447986800 + 100), "tiered-index"),
    "index offset": (INDEX, 840, struct.pack(">q", 3), "tiered-index"),
    "index topic": (INDEX, 832, struct.pack(">i", 7), "tiered-index"),
    "open index magic": (OPEN, 0, b"\0", "tiered-index"),
    "open index count": (OPEN, 24, struct.pack(">i", 81), "tiered-index"),
    "open index slots": (OPEN, 20, struct.pack(">i", 53), "tiered-index"),
    "open index slot": (OPEN, 28, struct.pack(">i", 81), "tiered-index"),
    "open index hash": (OPEN, 860, struct.pack(">i", 12), "tiered-index"),
    "open index offset": (OPEN, 872, struct.pack(">q", 3), "tiered-index"),
    "open index chain": (OPEN, 860 + 79 * 32 + 28, struct.pack(">i", 80), "tiered-index"),
}


@pytest.mark.parametrize("harm", list(HARM))
def test_each_harm_is_named(harm, tmp_path):
    root = copy_store("tieredstore-5.5.0", tmp_path) / "tiered"
    file, position, data, code = HARM[harm]
    with (root / file).open("r+b") as target:
        target.seek(position)
        target.write(data)
    with opened(root) as store:
        assert code in {finding.code for finding in store.verify()}


def test_entries_of_an_open_index_are_the_keys_that_were_put():
    data = (ROOT / OPEN).read_bytes()
    nodes = [INDEX_NODE.parse(data, 860 + number * INDEX_NODE.size) for number in range(80)]
    lines = [line for line in answers("tieredstore-5.5.0", "messages") if line["kind"] == "message"][:40]
    keys = [key for line in lines for key in (*line["properties"]["KEYS"].split(), line["properties"]["UNIQ_KEY"])]
    assert [node.key_hash for node in nodes] == [java.index_hash(f"Tier#{key}") for key in keys]


def test_a_negative_count_of_an_open_index_is_an_error_of_the_file(tmp_path):
    root = copy_store("tieredstore-5.5.0", tmp_path) / "tiered"
    data = bytearray((root / OPEN).read_bytes())
    data[24:28] = struct.pack(">i", -6)
    (root / OPEN).write_bytes(data)
    with opened(root) as store:
        assert [finding.code for finding in store.verify()] == ["tiered-index"]


def test_slots_that_all_claim_all_entries_are_followed_once(tmp_path):
    root = copy_store("tieredstore-5.5.0", tmp_path) / "tiered"
    slots = entries = 40_000
    header = tiered.INDEX_HEADER.build(tiered.TieredIndexHeader(tiered.MAGIC_FULL, 0, 0, slots, entries))
    first = len(header) + slots * tiered.INDEX_SLOT.size
    slot = tiered.INDEX_SLOT.build(tiered.TieredIndexSlot(first, entries * tiered.INDEX_ITEM.size))
    item = tiered.INDEX_ITEM.build(tiered.TieredIndexItem(0, 0, 0, 0, 0, 0))
    (root / INDEX).write_bytes(header + slot * slots + item * entries)
    details = [
        finding.evidence for finding in verify_index(root / INDEX, TieredStore(root), frozenset(), is_open=False)
    ]
    assert any("claim more than" in detail for detail in details)


def test_an_index_file_above_the_limit_is_unknown(tmp_path):
    root = copy_store("tieredstore-5.5.0", tmp_path) / "tiered"
    with (root / INDEX).open("r+b") as file:
        file.seek(MAX_INDEX_BYTES)
        file.write(b"x")
    with opened(root) as store:
        assert [finding.severity.value for finding in store.verify() if finding.code == "tiered-index"] == ["unknown"]


def test_an_open_index_without_entries_is_in_order(tmp_path):
    root = copy_store("tieredstore-5.5.0", tmp_path) / "tiered"
    path = root / OPEN
    path.write_bytes(path.read_bytes()[:20] + bytes(7208))
    with opened(root) as store:
        assert list(store.verify()) == []


def test_names_sizes_and_gaps_are_checked(tmp_path):
    root = copy_store("tieredstore-5.5.0", tmp_path) / "tiered"
    (root / QUEUE).rename(root / f"{HOME}/Tier/0/CONSUME_QUEUE/{'0' * 8}{'0' * 20}")
    (root / LOG).with_name("cfcd2084" + f"{200_000:020d}").write_bytes(b"\0" * 7)
    (root / LOG).write_bytes((root / LOG).read_bytes()[:-1])
    (root / HOME / "Tier/0/COMMIT_LOG/stray").touch()
    with opened(root) as store:
        codes = {finding.code for finding in store.verify()}
    assert {"tiered-name", "tiered-gap", "tiered-stray", "tiered-damage", "tiered-metadata"} <= codes


def test_names_of_clusters_and_queues_and_units_that_are_cut_are_checked(tmp_path):
    root = copy_store("tieredstore-5.5.0", tmp_path) / "tiered"
    with (root / QUEUE).open("ab") as file:
        file.write(bytes(7))
    (root / HOME / "Tier" / "other").mkdir()
    (root / "notes").touch()
    (root / "212d6b50_DefaultCluster").rename(root / "00000000_DefaultCluster")
    with opened(root) as store:
        found = {(finding.code, Path(finding.file).name) for finding in store.verify()}
        strays = store.layout()["oddities"]
    assert {("tiered-name", "00000000_DefaultCluster"), ("tiered-queue-size", SEGMENT)} <= found
    assert {name for code, name in found if code == "tiered-stray"} == {"notes", "other"}
    assert len(strays) == 2


def test_an_index_file_without_a_header_is_an_error(tmp_path):
    root = copy_store("tieredstore-5.5.0", tmp_path) / "tiered"
    (root / INDEX).write_bytes(b"short")
    with opened(root) as store:
        found = [finding for finding in store.verify() if finding.code == "tiered-index"]
    assert [(Path(one.file).name, one.severity.value) for one in found] == [(SEGMENT, "error")]


@pytest.mark.parametrize(
    ("position", "data", "words"),
    [
        (8, struct.pack(">i", 900), "the record there states 0 and 851 bytes"),
        (0, struct.pack(">q", 1 << 40), f"has no data at {1 << 40}"),
    ],
    ids=["size", "position"],
)
def test_a_unit_that_leads_to_no_record_is_said(position, data, words, tmp_path):
    root = copy_store("tieredstore-5.5.0", tmp_path) / "tiered"
    with (root / QUEUE).open("r+b") as file:
        file.seek(position)
        file.write(data)
    with opened(root) as store, pytest.raises(CorruptionError, match=words):
        store.get("Tier/0@0")


def test_an_address_of_nothing_is_no_message():
    with opened() as store:
        assert store.get("Tier") == []
        for address in ("Tier/0@999", "Tier/7@0", "Other/0@0"):
            with pytest.raises(CorruptionError, match="no unit with this queue offset"):
                store.get(address)


@pytest.mark.parametrize("data", [None, b"", b"[1]", b'{"a": ' * 5000, b"\xff\xfe"], ids=lambda data: repr(data)[:12])
def test_without_metadata_what_the_index_means_is_unknown(tmp_path, data):
    root = copy_store("tieredstore-5.5.0", tmp_path) / "tiered"
    path = root.parent / "config/tieredStoreMetadata.json"
    path.unlink() if data is None else path.write_bytes(data)
    path.with_name(path.name + ".bak").unlink()
    with opened(root) as store:
        found = [(finding.code, finding.severity.value) for finding in store.verify()]
    assert found == [*[("tiered-index", "unknown")] * 2, ("tiered-metadata", "unknown")]


def test_damage_is_a_value_and_what_follows_it_is_read(tmp_path):
    root = copy_store("tieredstore-5.5.0", tmp_path) / "tiered"
    with (root / LOG).open("r+b") as target:
        target.seek(851)
        target.write(b"\xff" * 8)
    with opened(root) as store:
        items = list(store.rows("tiered-message"))
        damage = [item for item in items if isinstance(item, Damage)]
        assert (len(items) - len(damage), damage[0].start, damage[0].end) == (149, 851, 1702)
        with pytest.raises(CorruptionError):
            store.get("Tier/0@1")


def test_the_commands_take_the_directory(capsys):
    from mqtool.cli.app import run

    assert run(["verify", str(ROOT)]) == 0
    assert run(["find", str(ROOT), "--tag", "TagA", "--limit", "2", "--format", "jsonl"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert [line["queue_offset"] for line in lines if "queue_offset" in line] == [0, 1]


@pytest.mark.parametrize("name", [LOG, QUEUE, INDEX])
def test_a_segment_that_cannot_be_read_is_unknown_and_nothing_is_concluded_from_it(name, tmp_path, monkeypatch):
    root = copy_store("tieredstore-5.5.0", tmp_path) / "tiered"
    with unreadable(monkeypatch, root / name), opened(root) as store:
        (found,) = store.verify()
    assert (found.code, found.severity) == ("tiered-unreadable", Severity.UNKNOWN)
    assert found.file == str(root / name)
    assert "cannot be opened: Permission denied" in found.evidence
