"""The HA stream: what a proxy recorded between real masters and slaves is the slave's log, however it is cut."""

import json
import struct
from itertools import groupby
from pathlib import Path

import pytest

from mqtool.errors import RemoteProtocolError
from mqtool.formats.commit_log import FRAME, MAGIC_BLANK, MAGIC_V1
from mqtool.server.replication import Piece, RecordAssembler, TransferReader
from tests.support.stores import fixture

SEGMENT = 65536
STORES = ("ha-4.9.7", "ha-5.5.0")


def connections(name: str) -> list[tuple[list[int], bytes]]:
    """Of each recorded connection: what the slave reported, and the bytes that the master sent."""
    lines = (fixture(f"{name}/answers/ha-wire.jsonl")).read_text("utf-8").splitlines()
    chunks = [row for row in map(json.loads, lines) if "hex" in row]
    chunks.sort(key=lambda row: row["connection"])
    found = []
    for _, group in groupby(chunks, key=lambda row: row["connection"]):
        rows = list(group)
        reports = b"".join(bytes.fromhex(row["hex"]) for row in rows if row["direction"] == "slave>master")
        sent = b"".join(bytes.fromhex(row["hex"]) for row in rows if row["direction"] == "master>slave")
        found.append(([value for (value,) in struct.iter_unpack(">q", reports)], sent))
    return found


def log_of(store: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((store / "commitlog").iterdir()))


@pytest.mark.parametrize("step", [1, 7, 1 << 20])
@pytest.mark.parametrize("name", STORES)
def test_recorded_streams_are_the_log_of_the_slave(name, step):
    log, end = log_of(fixture(f"{name}/store-slave")), 0
    for reports, sent in connections(name):
        reader, assembler = TransferReader(), RecordAssembler(reports[0], SEGMENT)
        for position in range(0, len(sent), step):
            for piece in reader.feed(sent[position : position + step]):
                for frame in assembler.feed(piece) if piece.data else ():
                    assert frame.physical_offset == end
                    assert frame.data == log[end : end + len(frame.data)]
                    end += len(frame.data)
        assert assembler.expected == end
    assert end > SEGMENT
    assert not any(log[end:])


@pytest.mark.parametrize("name", STORES)
def test_slaves_report_ends_of_what_they_have(name):
    """So a report is where a frame ends, or where a piece was cut."""
    for reports, sent in connections(name):
        ends = {reports[0]} | {piece.physical_offset + len(piece.data) for piece in TransferReader().feed(sent)}
        assert set(reports) <= ends


@pytest.mark.parametrize(("offset", "size"), [(-1, 0), (0, -1), (0, 17 << 20)])
def test_a_size_that_no_master_sends_is_refused(offset, size):
    with pytest.raises(RemoteProtocolError, match="no master sends a piece of this size"):
        list(TransferReader().feed(struct.pack(">qi", offset, size)))


def test_a_piece_that_does_not_follow_is_refused():
    with pytest.raises(RemoteProtocolError, match="sends physical offset 8, not 0"):
        list(RecordAssembler(0, SEGMENT).feed(Piece(8, b"x")))


@pytest.mark.parametrize(
    ("size", "magic"), [(100, 0), (7, MAGIC_V1), (-1, MAGIC_V1), (SEGMENT + 1, MAGIC_V1), (0, MAGIC_BLANK)]
)
def test_what_is_no_record_is_refused_with_its_place(size, magic):
    with pytest.raises(RemoteProtocolError, match="holds no record at physical offset 131072"):
        list(RecordAssembler(2 * SEGMENT, SEGMENT).feed(Piece(2 * SEGMENT, FRAME.pack(size, magic))))


def test_a_blank_takes_all_that_is_left_of_its_segment():
    assembler = RecordAssembler(SEGMENT - 20, SEGMENT)
    data = FRAME.pack(20, MAGIC_BLANK) + b"old bytes..."
    assert list(assembler.feed(Piece(SEGMENT - 20, data[:10]))) == []
    assert list(assembler.feed(Piece(SEGMENT - 10, data[10:]))) == [Piece(SEGMENT - 20, data)]
    assert assembler.expected == SEGMENT
