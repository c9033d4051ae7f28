"""States of an EventStore database in which the server refuses, overwrites or cannot read something."""

import hashlib
import os
import struct

import pytest
from msgspec.structs import replace

from mqtool.cli.app import run
from mqtool.cli.exits import ExitCode
from mqtool.errors import CorruptionError
from mqtool.formats import tfchunk
from mqtool.formats.equeue import MAX_TICKS
from mqtool.formats.tfchunk import FOOTER_SIZE, HEADER_SIZE, MAX_RECORD_SIZE, Commit, Prepare, System
from mqtool.records.damage import Damage
from mqtool.siblings.frames import InvalidFrame
from mqtool.siblings.registry import recognise
from mqtool.siblings.tfchunk import kind as salvage
from mqtool.siblings.tfchunk.kind import OpenedTFChunk
from mqtool.siblings.tfchunk.store import StoredRecord, TFChunkDb, valid_run
from mqtool.siblings.tfchunk.verify import verify
from mqtool.verify.findings import Severity
from tests.support.chunks import tfchunk_store
from tests.support.stores import copy_tree

SECOND = "chunk-000001.000000"


@pytest.fixture
def copied(tmp_path):
    def copy(name):
        return copy_tree(tfchunk_store(name), tmp_path / "store")

    return copy


def write_checkpoints(root, position):
    for name in ("writer", "chaser"):
        (root / f"{name}.chk").write_bytes(struct.pack("<q", position))


def states(root):
    with TFChunkDb(root) as database:
        return [(one.code, one.severity) for one in verify(database)]


def records(root):
    with TFChunkDb(root) as database:
        return [one for one in database.records() if not isinstance(one, Damage)]


def test_records_after_the_writer_of_a_completed_chunk_are_overwritten(copied):
    root = copied("plain")
    (root / "chunk-000003.000000").unlink()
    inside = [record.position for record in records(root) if record.chunk.number == 2]
    writer = inside[len(inside) // 2]
    write_checkpoints(root, writer)
    assert max(record.position for record in records(root)) < writer
    assert states(root) == [("tfchunk-writer-inside", Severity.WARNING)]


def test_a_chunk_that_was_completed_right_before_the_server_ended_is_no_finding(copied):
    root = copied("plain")
    (root / "chunk-000003.000000").unlink()
    before = records(root)
    with TFChunkDb(root) as database:
        last = database.chunks[-1]
        write_checkpoints(root, last.start + last.footer.physical_size)
    assert [one.position for one in records(root)] == [one.position for one in before]
    assert states(root) == []


def test_a_writer_inside_of_a_scavenged_chunk_keeps_the_server_from_starting(copied):
    root = copied("scavenged")
    (root / "chunk-000002.000000").unlink()
    with TFChunkDb(root) as database:
        end = database.chunks[-1].start + database.chunks[-1].footer.logical_size
    write_checkpoints(root, end - 1)
    assert states(root) == [("tfchunk-writer-inside", Severity.ERROR)]
    write_checkpoints(root, end)
    assert states(root) == []


def test_a_chunk_before_the_one_of_the_writer_must_be_completed(copied):
    root = copied("boundary")
    assert states(root) == []
    data = bytearray((root / SECOND).read_bytes())
    struct.pack_into("<ii", data, 6, 2, 2)
    data[HEADER_SIZE:] = bytes(len(data) - HEADER_SIZE)
    (root / "chunk-000002.000000").write_bytes(data)
    assert states(root) == [("tfchunk-not-completed", Severity.ERROR)]


@pytest.fixture
def loose(copied):
    """A database whose last chunk begins with a record that leaves a byte of its frame unused."""
    root = copied("plain")
    path = root / "chunk-000003.000000"
    data = bytearray(path.read_bytes())
    (length,) = struct.unpack_from("<i", data, HEADER_SIZE)
    record = tfchunk.parse_record(bytes(data[HEADER_SIZE + 4 : HEADER_SIZE + 4 + length]))
    shorter = tfchunk.build_record(replace(record, data=record.data[:-1])) + b"\7"
    assert len(shorter) == length
    data[HEADER_SIZE + 4 : HEADER_SIZE + 4 + length] = shorter
    path.write_bytes(data)
    return root


def test_a_record_that_does_not_fill_its_frame_is_damage(loose):
    assert states(loose) == [("tfchunk-frames", Severity.ERROR), ("tfchunk-frames-backward", Severity.ERROR)]
    with TFChunkDb(loose) as database:
        chunk = database.chunks[-1]
        found = [one for one in database.records(chunk.path.name) if isinstance(one, Damage)]
        assert [one.position for one in found] == [HEADER_SIZE]
        assert "expected a record that fills" in found[0].detail
        run = chunk.run(0, chunk.written, MAX_RECORD_SIZE, 1 << 16)
        assert (len(run) > 1, len(valid_run(chunk, run).run)) == (True, 0)


def cut(root):
    (root / SECOND).write_bytes((root / SECOND).read_bytes()[:100])


def remove(root):
    (root / SECOND).unlink()


def encrypt(root):
    data = bytearray((root / SECOND).read_bytes())
    data[34], data[35] = 4, 1
    (root / SECOND).write_bytes(data)


@pytest.mark.parametrize("harm", [cut, remove, encrypt])
def test_a_salvage_reports_every_chunk_of_which_nothing_is_read(harm, copied):
    root = copied("plain")
    with OpenedTFChunk(root) as opened:
        before = {row["file"]: row for row in opened.salvage(None)}
    harm(root)
    with OpenedTFChunk(root) as opened:
        after = {row["file"]: row for row in opened.salvage(None)}
        size = opened.database.chunks[-1].header.chunk_size
    assert before[SECOND]["damaged_bytes"] == 0
    assert after == {
        **before,
        SECOND: {"file": SECOND, "forwards": 0, "backwards": 0, "between": 0, "damaged_bytes": size},
    }


@pytest.mark.parametrize("number", range(4))
def test_one_damaged_first_byte_does_not_hide_the_database(number, copied):
    root = copied("plain")
    path = root / f"chunk-{number:06}.000000"
    path.write_bytes(b"\0" + path.read_bytes()[1:])
    found = recognise(root)
    assert found is not None
    assert found.name == "tfchunk"


def damage(root):
    with TFChunkDb(root) as database:
        return [(one.start, one.end) for one in database.records() if isinstance(one, Damage)]


@pytest.mark.parametrize("torn", [0, 1])
def test_what_a_chunk_before_the_writer_lost_with_its_footer_is_damage(copied, torn):
    root = copied("plain")
    with TFChunkDb(root) as database:
        chunk = database.chunks[1]
        cut, end = [record.frame.start for record in database.records(SECOND)][5], chunk.header.end
    os.truncate(root / SECOND, HEADER_SIZE + cut + torn)
    assert damage(root) == [(chunk.start + cut, end)]
    with TFChunkDb(root) as database:
        reports = salvage.report(database)
        assert [(one.start, one.end) for one in reports[1].damage] == [(chunk.start + cut, end)]


def test_a_chunk_in_which_only_the_flag_of_the_footer_is_damaged_has_lost_no_record(copied):
    root = copied("plain")
    with (root / SECOND).open("r+b") as file:
        file.seek(-128, 2)
        file.write(b"\0")
    assert damage(root) == []


def test_a_scavenged_chunk_of_the_writer_must_be_completed(copied):
    root = copied("scavenged")
    (root / "chunk-000002.000000").unlink()
    with TFChunkDb(root) as database:
        last = database.chunks[-1]
        path, at, start = last.path, last.size - FOOTER_SIZE, last.start
    data = bytearray(path.read_bytes())
    data[at] &= ~1
    path.write_bytes(data)
    write_checkpoints(root, start + 1)
    assert ("tfchunk-not-completed", Severity.ERROR) in states(root)


def test_the_md5_of_a_chunk_that_is_cut_meanwhile_is_that_of_what_is_left(copied):
    root = copied("plain")
    with TFChunkDb(root) as database:
        chunk = database.chunks[0]
        stated = chunk.md5()
        os.truncate(chunk.path, 1000)
        assert chunk.md5() == hashlib.md5(chunk.path.read_bytes(), usedforsecurity=False).digest() != stated


def test_a_record_is_not_read_backwards_into_those_that_are_read_forwards(copied):
    root = copied("plain")
    with TFChunkDb(root) as database:
        chunk = database.chunks[0]
        first = chunk.read_record(0)
        second = chunk.read_record(first.frame.end)
        end = second.frame.end
        assert chunk.read_record_before(end, first.frame.end).frame.start == first.frame.end
        assert isinstance(chunk.read_record_before(end, first.frame.end + 1), InvalidFrame)


def rewritten(root, chosen, **changes):
    """Changes fields of the last record of a type; returns its position."""
    with TFChunkDb(root) as database:
        of_kind = (
            one for one in database.records() if isinstance(one, StoredRecord) and isinstance(one.record, chosen)
        )
        *_, found = of_kind
        data = tfchunk.build_record(replace(found.record, **changes))
        with found.chunk.path.open("r+b") as file:
            file.seek(HEADER_SIZE + found.frame.start + 4)
            file.write(data)
    return found.position


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        (Prepare, {"time": (1 << 63) - 1}),
        (Prepare, {"time": -1}),
        (Prepare, {"time": MAX_TICKS + 1}),
        (Commit, {"time": MAX_TICKS + 1}),
        (System, {"system_type": 0}),
        (System, {"serialization": 0}),
    ],
)
def test_a_record_that_the_server_cannot_read_is_damage(kind, changes, tmp_path, capsys):
    root = copy_tree(tfchunk_store("plain"), tmp_path / "store")
    position = rewritten(root, kind, **changes)
    with TFChunkDb(root) as database:
        damage = [one for one in database.records() if isinstance(one, Damage)]
        with pytest.raises(CorruptionError, match=next(iter(changes))):
            database.record_at(position)
    assert [one.start for one in damage] == [position]
    assert next(iter(changes)) in damage[0].detail
    assert run(["verify", str(root)]) == ExitCode.NO
    assert "tfchunk-frames" in capsys.readouterr().out


def test_the_latest_time_of_the_calendar_is_readable(tmp_path):
    root = copy_tree(tfchunk_store("plain"), tmp_path / "store")
    rewritten(root, Prepare, time=MAX_TICKS)
    with TFChunkDb(root) as database:
        assert not [one for one in database.records() if isinstance(one, Damage)]
