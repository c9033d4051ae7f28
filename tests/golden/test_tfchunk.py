"""Reading and verifying EventStore's databases against what the real server answered, healthy and damaged."""

from pathlib import Path

import pytest

from mqtool.errors import CorruptionError, NotAStoreError
from mqtool.formats.tfchunk import HEADER_SIZE
from mqtool.records.damage import Damage
from mqtool.siblings.tfchunk import kind
from mqtool.siblings.tfchunk.store import TFChunkDb
from mqtool.siblings.tfchunk.verify import verify
from mqtool.verify.findings import Severity
from tests.support.chunks import TFCHUNK_CASES, TFCHUNK_STORES, answer, damaged, lines, tfchunk_store
from tests.support.stores import copy_tree, tree_digest

HOME = "tfchunk/damage"
HARMLESS = (
    "extra-tmp",
    "extra-foreign",
    "boundary-untouched",
    "killed-untouched",
    "version2-opened-by-5",
    "scavenged-untouched",
    "writer-lower",
)
"""Cases in which the server has nothing to say and all its records are there."""


def findings(root):
    with TFChunkDb(root) as database:
        return list(verify(database))


@pytest.mark.parametrize("name", TFCHUNK_STORES)
def test_every_record_is_read_as_the_server_answers(name):
    with TFChunkDb(tfchunk_store(name)) as database:
        found = [(r.position, len(r.frame.record), type(r.record).__name__) for r in database.records()]
    assert found == [(a["position"], a["length"], a["type"]) for a in lines(f"tfchunk/{name}", "records")]


@pytest.mark.parametrize("name", TFCHUNK_STORES)
def test_records_read_backwards_are_those_read_forwards(name):
    with TFChunkDb(tfchunk_store(name)) as database:
        forwards = [r.position for r in database.records()]
        backwards = []
        for chunk in reversed(database.chunks):
            end = chunk.written
            while end > 0:
                record = chunk.read_record_before(end, 0)
                backwards.append(record.position)
                end = record.frame.start
    assert backwards[::-1] == forwards


@pytest.mark.parametrize("name", TFCHUNK_STORES)
def test_a_record_is_found_by_its_position_through_the_map(name):
    with TFChunkDb(tfchunk_store(name)) as database:
        for line in lines(f"tfchunk/{name}", "records"):
            assert database.record_at(line["position"]).position == line["position"]
        with pytest.raises(CorruptionError, match="no chunk holds this position"):
            database.record_at(1 << 40)


@pytest.mark.parametrize("name", TFCHUNK_STORES)
def test_nothing_is_wrong_with_a_healthy_database(name):
    before = tree_digest(tfchunk_store(name))
    assert findings(tfchunk_store(name)) == []
    assert tree_digest(tfchunk_store(name)) == before


@pytest.mark.parametrize("case_id", TFCHUNK_CASES)
def test_a_database_that_the_server_refuses_or_cannot_read_whole_has_an_error(case_id, tmp_path):
    root, expected = damaged(case_id, tmp_path / "store", HOME), answer(case_id, HOME)
    before = tree_digest(root)
    found = findings(root)
    assert tree_digest(root) == before
    errors = {finding.code for finding in found if finding.severity is Severity.ERROR}
    if expected["open"] != "ok":
        assert errors
        return
    hashes = [chunk.get("hash") for chunk in expected["chunks"] if chunk["completed"]]
    assert ("tfchunk-md5" in errors) == any(result != "ok" for result in hashes)
    if "error" in expected["forward"]:
        assert errors & {"tfchunk-frames", "tfchunk-map"}
    if case_id in HARMLESS:
        assert found == []


@pytest.mark.parametrize("case_id", TFCHUNK_CASES)
def test_reading_goes_on_behind_damage_and_gives_all_records_that_the_server_gives(case_id, tmp_path):
    expected = answer(case_id, HOME)
    if expected["open"] != "ok":
        return_early = damaged(case_id, tmp_path / "store", HOME)
        with TFChunkDb(return_early) as database:
            assert all(item is not None for item in database.records())
        return
    with TFChunkDb(damaged(case_id, tmp_path / "store", HOME)) as database:
        items = list(database.records())
    records = [item for item in items if not isinstance(item, Damage)]
    assert len(records) >= expected["forward"]["records"]
    if "error" in expected["forward"]:
        damage = [item for item in items if isinstance(item, Damage)]
        assert damage or case_id == "scavenged-map-entry"
        if "error" in expected["backward"] and case_id.startswith("record-"):
            assert len(records) == 276
            assert damage[0].start == expected["forward"]["end"]


@pytest.mark.parametrize(
    ("case_id", "code"),
    [
        ("padding-bitrot", "tfchunk-padding"),
        ("cut-100", "tfchunk-no-chunk"),
        ("missing-middle", "tfchunk-chunk-missing"),
        ("missing-last", "tfchunk-chunk-missing"),
        ("header-version", "tfchunk-version"),
        ("header-type", "tfchunk-no-chunk"),
        ("header-number", "tfchunk-numbers"),
        ("header-last-number", "tfchunk-numbers"),
        ("cut-4096", "tfchunk-not-completed"),
        ("footer-bit", "tfchunk-not-completed"),
        ("footer-physical-size", "tfchunk-footer"),
        ("record-logposition", "tfchunk-log-position"),
        ("record-suffix", "tfchunk-frames-backward"),
        ("writer-previous-chunk", "tfchunk-extraneous"),
        ("writer-missing", "tfchunk-checkpoint-missing"),
        ("writer-four-bytes", "tfchunk-checkpoint-size"),
        ("chaser-higher", "tfchunk-checkpoint-order"),
        ("truncate-set", "tfchunk-truncate-pending"),
        ("extra-version", "tfchunk-superseded"),
        ("scavenged-map-entry", "tfchunk-map"),
        ("extra-next", "tfchunk-extraneous"),
    ],
)
def test_damage_is_reported_by_its_name(case_id, code, tmp_path):
    assert code in {finding.code for finding in findings(damaged(case_id, tmp_path / "store", HOME))}


def patched(name, tmp_path, chunk, position, data):
    """A copy of a database with other bytes in one chunk; a negative position counts from the end."""
    root = copy_tree(tfchunk_store(name), tmp_path / "store")
    content = bytearray((root / chunk).read_bytes())
    start = position % len(content)
    content[start : start + len(data)] = data
    (root / chunk).write_bytes(content)
    return root


FIRST = "chunk-000000.000000"


def test_encrypted_records_are_damage_and_cannot_be_checked(tmp_path):
    root = patched("plain", tmp_path, FIRST, 34, b"\x04\x01")
    with TFChunkDb(root) as database:
        (damage, *_) = database.records()
        assert (damage.kind, damage.detail) == ("encrypted", "the records are encrypted")
    unknown = [finding for finding in findings(root) if finding.severity is Severity.UNKNOWN]
    assert [(one.code, Path(one.file).name) for one in unknown] == [("tfchunk-frames", FIRST)]


def test_a_map_that_is_no_multiple_of_its_entries_is_reported(tmp_path):
    found = findings(patched("plain", tmp_path, FIRST, -128 + 13, (5).to_bytes(4, "little")))
    assert "as map size, found 5" in next(one.evidence for one in found if one.code == "tfchunk-footer")


def test_a_map_that_is_not_sorted_is_reported(tmp_path):
    with TFChunkDb(tfchunk_store("scavenged")) as database:
        chunk = next(one for one in database.chunks if len(one.map) > 1)
        size, at = chunk.footer.map_unit.size, HEADER_SIZE + chunk.footer.physical_size
        name, entries = chunk.path.name, chunk.path.read_bytes()[at : at + 2 * size]
        logical = [entry.logical for entry in chunk.map[:2]]
    found = findings(patched("scavenged", tmp_path, name, at, entries[size:] + entries[:size]))
    words = f"entries are not sorted: {logical[0]} follows {logical[1]}"
    assert words in [one.evidence for one in found if one.code == "tfchunk-map"]


def test_files_that_a_merged_chunk_covers_are_superseded(tmp_path):
    root = patched("plain", tmp_path, FIRST, 10, (1).to_bytes(4, "little"))
    names = {Path(one.file).name for one in findings(root) if one.code == "tfchunk-superseded"}
    assert names == {"chunk-000001.000000"}


@pytest.mark.parametrize(
    ("name", "words"), [("plain", "no record: "), ("scavenged", "the position map of the scavenged chunk has no")]
)
def test_a_position_inside_of_a_record_is_no_record(name, words):
    with TFChunkDb(tfchunk_store(name)) as database:
        chunk = next(one for one in database.chunks if one.header.is_scavenged or name == "plain")
        position = next(one.position for one in database.records() if one.chunk is chunk)
        with pytest.raises(CorruptionError, match=words):
            database.record_at(position + 1)


def test_a_directory_without_chunks_is_no_database(tmp_path):
    with pytest.raises(NotAStoreError, match="holds no chunk-NNNNNN"):
        TFChunkDb(tmp_path)


@pytest.mark.parametrize(
    ("case_id", "lost"),
    [("record-suffix", 1), ("record-type", 1), ("tail-middle-zero", 1), ("tail-torn", 1), ("padding-bitrot", 0)],
)
def test_a_salvage_report_has_every_record_but_the_damaged_one(case_id, lost, tmp_path):
    expected = answer(case_id, HOME)
    with TFChunkDb(damaged(case_id, tmp_path / "store", HOME)) as database:
        reports = kind.report(database)
        assert sum(len(one.records) for one in reports) == 277 - lost
        damage = [item for one in reports for item in one.damage]
        assert [item.start for item in damage] == ([expected["forward"]["end"]] if lost else [])
        behind = [one for one in reports if one.backwards]
        assert len(behind) == (case_id in ("record-suffix", "record-type", "tail-middle-zero"))


@pytest.mark.parametrize("name", TFCHUNK_STORES)
def test_a_salvage_report_of_a_healthy_database_finds_everything_forwards(name):
    with TFChunkDb(tfchunk_store(name)) as database:
        reports = kind.report(database)
        assert all(not one.damage and not one.backwards and not one.between for one in reports)
        assert sum(len(one.forwards) for one in reports) == len(lines(f"tfchunk/{name}", "records"))


def test_records_between_two_damaged_ones_are_found(tmp_path):
    root = damaged("record-suffix", tmp_path / "store", HOME)
    with TFChunkDb(tfchunk_store("plain")) as database:
        later = [r.frame.start for r in database.records() if r.chunk is database.chunks[1]][40]
    path = root / "chunk-000001.000000"
    data = bytearray(path.read_bytes())
    data[128 + later : 132 + later] = bytes(4)
    path.write_bytes(data)
    with TFChunkDb(root) as database:
        found = kind.salvage_chunk(database, database.chunks[1])
        assert found.between
        assert len(found.damage) == 2
        assert found.damage[1].position == 128 + later
