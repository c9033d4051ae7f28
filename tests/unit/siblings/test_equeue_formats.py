"""EQueue's layouts on every real record, entry, header and footer, and on hostile bytes."""

import hashlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtool.errors import FormatError, TruncatedError
from mqtool.formats import codec, equeue
from mqtool.formats.equeue import CURRENT, OLD, MessageId, MessageRecord
from mqtool.siblings.equeue import listing
from mqtool.siblings.equeue.chunk import tag_code
from tests.support.chunks import EQUEUE_STORES, equeue_store, lines

# A record as the real encoder gives it: broker B1, topic T, tag A, code 100, body "hi", at the start of a third chunk.
SAMPLE = bytes.fromhex(
    f"000000c0000000001c000000{b'020000004231000000c000000000'.hex()}010000005401000000410000000064000000020000006869"
    "0200000007000000000000000000ed63e308d80880968564e308d808"
)


def chunk(name, kind, number):
    return (equeue_store(name) / f"{kind}-chunks" / f"{kind}-chunk-{number:09}").read_bytes()


def frames(name):
    """Position and record bytes of every message of the answers, cut out without the code under test."""
    for line in lines(name, "messages"):
        data = chunk(name, "message", line["chunkNumber"])
        at = 128 + line["localPosition"] + 4
        yield line, data[at : at + line["length"]]


@pytest.mark.parametrize("name", EQUEUE_STORES)
def test_every_real_record_says_what_the_broker_answers_and_is_written_back_to_its_own_bytes(name):
    shape = OLD if name == "equeue-2.2.0" else CURRENT
    for line, raw in frames(name):
        record, after = shape.parse(raw)
        assert after == len(raw)
        assert shape.build(record) == raw
        assert (record.log_position, record.message_id.decode(), record.topic.decode(), record.tag.decode()) == (
            line["logPosition"],
            line["messageId"],
            line["topic"],
            line["tag"],
        )
        assert record.producer_address.decode() == line.get("producerAddress", "")
        assert (record.code, len(record.body), hashlib.sha256(record.body).hexdigest()) == (
            line["code"],
            line["bodyLength"],
            line["bodySha256"],
        )
        assert (record.queue_id, record.queue_offset, record.created_time, record.stored_time) == (
            line["queueId"],
            line["queueOffset"],
            line["createdTicks"],
            line["storedTicks"],
        )
        assert equeue.detect(raw, line["position"]) is shape


@pytest.mark.parametrize("name", EQUEUE_STORES)
def test_message_ids_say_what_the_broker_parses_out_of_them(name):
    for line in lines(name, "messages"):
        found = equeue.parse_id(line["messageId"])
        assert found.broker == line.get("idBrokerName", line.get("idAddress"))
        assert found.position == line["idPosition"]
        assert equeue.build_id(found).decode() == line["messageId"]


@pytest.mark.parametrize("name", EQUEUE_STORES)
def test_every_header_footer_and_queue_entry_is_written_back_to_its_own_bytes(name):
    for path in equeue_store(name).rglob("*-chunk-*"):
        data = path.read_bytes()
        header, footer = equeue.HEADER.parse(data), equeue.FOOTER.parse(data, len(data) - 128)
        assert equeue.HEADER.build(header) + equeue.FOOTER.build(footer) == data[:128] + data[-128:]
        assert header.chunk_number == equeue.named_number(path.name)
        if path.name.startswith(equeue.QUEUE_PREFIX):
            used = data[128 : 128 + header.capacity]
            entries = [equeue.QUEUE_ENTRY.parse(used, at) for at in range(0, len(used), 12)]
            assert b"".join(map(equeue.QUEUE_ENTRY.build, entries)) == used


@pytest.mark.parametrize("name", EQUEUE_STORES)
def test_tag_codes_of_entries_are_the_hashes_of_their_messages_tags(name):
    tags = {line["messageId"]: line["tag"] for line in lines(name, "messages")}
    entries = [line for line in lines(name, "queue-entries") if line.get("messageId") in tags]
    assert entries
    assert [equeue.tag_code(tags[line["messageId"]]) for line in entries] == [line["tagCode"] for line in entries]


def test_the_bytes_of_a_whole_chunk_are_those_of_the_real_encoder():
    record = MessageRecord(
        3 << 30,
        equeue.build_id(MessageId("B1", 3 << 30)),
        b"T",
        b"A",
        b"",
        100,
        b"hi",
        2,
        7,
        637_269_120_000_000_000,
        637_269_120_010_000_000,
    )
    frame = equeue.build_frame(CURRENT.build(record))
    assert frame[4:-4] == SAMPLE
    assert hashlib.sha256(frame).hexdigest() == "e0a975f221e1d04e8874a10c0995d43670a5689b90b740e8af3eb19e32d55576"
    header = equeue.HEADER.build(equeue.ChunkHeader(3, 1 << 30))
    data = header + frame + equeue.FOOTER.build(equeue.ChunkFooter(len(frame)))
    assert hashlib.sha256(data).hexdigest() == "5f2f13abe2f31cb7b8a08590f4f1a56277d038f73b1cb675b3406000a8f576e4"
    assert equeue.data_size(data) == 100
    assert equeue.data_size(data[:-1]) is None


@pytest.mark.parametrize("size", range(len(SAMPLE)))
def test_a_record_cut_anywhere_is_no_record(size):
    with pytest.raises(TruncatedError):
        CURRENT.parse(SAMPLE[:size])


@given(st.binary(max_size=120))
def test_hostile_bytes_give_a_record_that_is_built_back_or_an_error(data):
    for shape in (CURRENT, OLD):
        try:
            record, after = shape.parse(data)
        except FormatError:
            continue
        assert shape.build(record) == data[:after]


@given(st.binary(max_size=90).map(lambda tail: SAMPLE[:20] + tail))
def test_the_derived_reader_agrees_with_construct(data):
    try:
        slow = codec.parse(equeue.RECORD.layout, data)
    except FormatError:
        with pytest.raises(FormatError):
            CURRENT.parse(data)
        return
    record, _ = CURRENT.parse(data)
    assert {name: getattr(record, name) for name in record.__struct_fields__} == slow


def test_bytes_behind_a_record_are_ignored_as_the_decoder_does_but_give_no_shape():
    assert CURRENT.parse(SAMPLE + b"junk")[1] == len(SAMPLE)
    assert equeue.detect(SAMPLE, 3 << 30) is CURRENT
    assert equeue.detect(SAMPLE + b"junk", 3 << 30) is None
    assert equeue.detect(SAMPLE, 0) is None


@pytest.mark.parametrize(
    ("ticks", "decodable"),
    [(0, True), (-1, False), (3_155_378_975_999_999_999, True), (3_155_378_976_000_000_000, False)],
)
def test_times_outside_the_range_of_dates_cannot_be_decoded(ticks, decodable):
    record, _ = CURRENT.parse(SAMPLE[:-8] + struct.pack("<q", ticks))
    assert record.is_decodable is decodable


@pytest.mark.parametrize(
    ("tag", "code"), [("", 0), ("A", 778), ("TagA", 23_839_902), ("orders-created", 617_702_441), ("订单", 1_151_562)]
)
def test_tag_codes_are_those_of_the_real_hash(tag, code):
    assert equeue.tag_code(tag) == code


def test_a_tag_whose_hash_has_no_absolute_value_has_no_code_and_the_broker_fails_on_it():
    tag = "\N{ARABIC FATHATAN}'<(_"
    with pytest.raises(FormatError, match="no absolute value"):
        equeue.tag_code(tag)
    assert tag_code(tag.encode()) is None
    assert tag_code(b"TagA") == 23_839_902


@pytest.mark.parametrize(
    ("text", "words"),
    [('{"IsDeleted": 1}', "expected booleans, found"), ("[]", "expected a JSON object"), ("{", "expected a JSON")],
)
def test_a_setting_of_a_queue_that_is_none_is_refused(text, words, tmp_path):
    (tmp_path / equeue.QUEUE_SETTING).write_text(text)
    with pytest.raises(FormatError, match=words):
        listing.setting(tmp_path)


def test_an_id_by_address_has_the_address_in_network_order_and_the_port_little_endian():
    text = "0a00000588130000000000c000000000"
    assert equeue.parse_id(text) == MessageId("10.0.0.5:5000", 3 << 30, by_address=True)
    assert equeue.build_id(MessageId("10.0.0.5:5000", 3 << 30, by_address=True)).decode() == text


def test_an_address_that_could_be_the_length_of_a_name_is_an_address():
    """2.0.0.0 is also the length of a name of two bytes, after which two bytes would be left."""
    assert equeue.parse_id("02000000881300000700000000000000") == MessageId("2.0.0.0:5000", 7, by_address=True)


@pytest.mark.parametrize("text", ["", "zz", "00", "0a000005", b"\xff"])
def test_a_text_that_is_no_id_is_refused(text):
    with pytest.raises(FormatError):
        equeue.parse_id(text)


@pytest.mark.parametrize(
    ("name", "chunk", "plain"),
    [
        ("message-chunk-000000001", True, True),
        ("message-chunk-000001", True, False),
        ("message-chunk-000000001.bak", True, False),
        ("message-chunk-00001", False, False),
        ("queue-chunk-000000001", False, False),
        ("xmessage-chunk-000000001", False, False),
    ],
)
def test_the_broker_takes_six_digits_and_anything_behind_them_for_a_chunk(name, chunk, plain):
    assert equeue.is_chunk_name(name, equeue.MESSAGE_PREFIX) is chunk
    assert equeue.is_plain_name(name, equeue.MESSAGE_PREFIX) is plain
