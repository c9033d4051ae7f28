"""TFChunk's layouts on every real header, footer, map, checkpoint and record, and on hostile bytes."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtool.errors import FormatError
from mqtool.formats import codec, equeue, tfchunk
from mqtool.formats.tfchunk import Commit, Prepare, System
from tests.support.chunks import TFCHUNK_STORES, lines, opened, tfchunk_store


def chunks(name):
    return sorted(tfchunk_store(name).glob("chunk-*"))


def frames(path):
    """Records of a chunk file between their lengths, by hopping over them."""
    data = path.read_bytes()
    at = 128
    while True:
        length = int.from_bytes(data[at : at + 4], "little", signed=True)
        if length <= 0 or data[at + 4 + length : at + 8 + length] != data[at : at + 4]:
            return
        yield data[at + 4 : at + 4 + length]
        at += length + 8


@pytest.mark.parametrize("name", TFCHUNK_STORES)
def test_headers_and_footers_say_what_the_server_answers_and_are_written_back(name):
    answered = opened(f"tfchunk/{name}")["chunks"]
    if name == "boundary":  # the open made the file that was not there yet
        assert answered.pop()["startPosition"] == opened("tfchunk/boundary")["checkpoints"]["writer"]
        assert answered[-1]["completed"]  # the open did that too
    for path, line in zip(chunks(name), answered, strict=True):
        data = path.read_bytes()
        header, footer = tfchunk.HEADER.parse(data), tfchunk.parse_footer(data, len(data) - 128)
        assert tfchunk.HEADER.build(header) + tfchunk.build_footer(footer) == data[:128] + data[-128:]
        assert (header.chunk_size, header.start_number, header.end_number, header.uuid) == (
            line["chunkSize"],
            line["startNumber"],
            line["endNumber"],
            line["chunkId"],
        )
        assert (header.start, header.end, bool(header.is_scavenged)) == (
            line["startPosition"],
            line["endPosition"],
            line["isScavenged"],
        )
        assert str(tfchunk.parse_name(path.name)) == path.name
        if footer.is_completed:
            assert (footer.physical_size, footer.logical_size, footer.map_size, footer.md5.hex()) == (
                line["physicalDataSize"],
                line["logicalDataSize"],
                line["mapSize"],
                line["md5"],
            )
            assert footer.md5 == hashlib.md5(data[:-16]).digest()
            assert tfchunk.file_size(header, footer) == len(data)


@pytest.mark.parametrize("name", TFCHUNK_STORES)
def test_every_real_record_says_what_the_server_answers_and_is_written_back_to_its_own_bytes(name):
    answers = {line["position"]: line for line in lines(f"tfchunk/{name}", "records")}
    seen = 0
    for raw in (raw for path in chunks(name) for raw in frames(path)):
        record = tfchunk.parse_record(raw)
        assert tfchunk.build_record(record) == raw
        line = answers.get(record.log_position)
        if line is None:  # past writer.chk
            assert name == "killed"
            continue
        seen += 1
        assert (type(record).__name__, record.version, len(raw), record.time) == (
            line["type"],
            line["version"],
            line["length"],
            line["ticks"],
        )
        check(record, line)
    assert seen == len(answers)


def check(record, line):
    match record:
        case Prepare():
            assert (record.flags, record.transaction_offset, record.event_stream_id.decode()) == (
                line["flags"],
                line["transactionOffset"],
                line["eventStreamId"],
            )
            assert (tfchunk.guid(record.event_id), record.event_type.decode(), len(record.metadata)) == (
                line["eventId"],
                line["eventType"],
                line["metadataLength"],
            )
            assert hashlib.sha256(record.data).hexdigest() == line["dataSha256"]
            assert tfchunk.event_number(record) == line["expectedVersion"]
        case Commit():
            assert (record.transaction_position, record.sort_key) == (line["transactionPosition"], line["sortKey"])
            assert tfchunk.event_number(record) == line["firstEventNumber"]
        case System():
            assert (record.system_type, record.data.decode()) == (line["systemType"], line["data"])


@pytest.mark.parametrize("name", TFCHUNK_STORES)
def test_checkpoints_say_what_the_server_answers(name):
    for key, value in opened(f"tfchunk/{name}")["checkpoints"].items():
        data = (tfchunk_store(name) / f"{key}.chk").read_bytes()
        assert tfchunk.CHECKPOINT.parse(data) == tfchunk.Checkpoint(value)
        assert tfchunk.CHECKPOINT.build(tfchunk.Checkpoint(value)) == data


def test_the_greatest_number_of_version_0_means_the_greatest_of_version_1():
    commit = Commit(1, 0, 0, 0, (1 << 31) - 1, 0, bytes(16), 0)
    assert tfchunk.event_number(commit) == (1 << 63) - 1
    assert tfchunk.parse_record(tfchunk.build_record(commit)) == commit


@given(st.binary(max_size=140), st.sampled_from(list(tfchunk.LAYOUTS)))
def test_hostile_bytes_give_a_record_that_construct_reads_alike_or_an_error(data, kind):
    data = bytes(kind) + data
    layout = tfchunk.LAYOUTS[kind]
    try:
        record = tfchunk.parse_record(data)
    except FormatError:
        return
    assert codec.parse(layout.layout, data) == {name: getattr(record, name) for name in record.__struct_fields__}
    assert len(tfchunk.build_record(record)) <= len(data)


@pytest.mark.parametrize("head", [b"\x03\x00", b"\x00\x07", b"\x02\x01"])
def test_types_and_versions_that_are_not_known_are_refused(head):
    with pytest.raises(FormatError, match="expected type 0, 1 or 2"):
        tfchunk.parse_record(head + bytes(100))


def test_a_frame_is_built_as_for_equeue():
    raw = next(frames(chunks("plain")[0]))
    assert chunks("plain")[0].read_bytes()[128:].startswith(equeue.build_frame(raw))
