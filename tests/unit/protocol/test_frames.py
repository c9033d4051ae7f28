"""The stream: any cut into pieces gives the same commands, hostile lengths end it, nothing is allocated for a claim."""

import os
import random
import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtool.errors import RemoteProtocolError
from mqtool.protocol import Command, Framer, Serialization, encode
from mqtool.protocol.frames import MAX_FRAME

MUTATIONS = int(os.environ.get("MQTOOL_FRAME_MUTATIONS", "3000"))

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
commands = st.builds(
    Command,
    st.integers(-(1 << 15), (1 << 15) - 1),
    st.integers(0, 3),
    st.integers(-(1 << 31), (1 << 31) - 1),
    st.none() | texts,
    st.dictionaries(texts, texts, max_size=4),
    st.binary(max_size=40),
    st.sampled_from(["JAVA", "CPP", "GO", "NODE_JS"]),
    st.integers(0, 600),
    st.sampled_from(list(Serialization)),
)


def stream(found: list[Command]) -> bytes:
    return b"".join(piece for command in found for piece in encode(command))


def some() -> list[Command]:
    return [
        Command(10, 0, number, None, {"k": "v" * number}, bytes(number * 7), serialization=Serialization(number % 2))
        for number in range(6)
    ]


@given(st.lists(commands, max_size=4), st.lists(st.integers(1, 60), max_size=20))
def test_commands_come_back_however_the_stream_is_cut(sent, cuts):
    data, framer, found = stream(sent), Framer(), []
    for size in cuts:
        found += framer.feed(data[:size])
        data = data[size:]
    found += framer.feed(data)
    assert found == sent
    assert (framer.error, framer.buffered) == (None, 0)


def test_frames_come_back_byte_by_byte():
    framer = Framer()
    found = [command for byte in stream(some()) for command in framer.feed(bytes([byte]))]
    assert found == some()


def test_a_frame_is_there_with_its_last_byte_and_not_before():
    data = stream([Command(10, body=b"body")])
    framer = Framer()
    assert framer.feed(data[:-1]) == []
    assert framer.buffered == len(data) - 1
    assert len(framer.feed(data[-1:])) == 1


@pytest.mark.parametrize("length", [-(1 << 31), -1, 0, 3, MAX_FRAME - 3, (1 << 31) - 1])
def test_a_length_out_of_bounds_ends_the_stream_at_once(length):
    framer = Framer()
    good = Command(10)
    assert framer.feed(stream([good]) + struct.pack(">ii", length, 0)) == [good]
    assert isinstance(framer.error, RemoteProtocolError)
    assert framer.feed(stream([good])) == []
    assert framer.buffered == 0


@pytest.mark.parametrize("length", [4, MAX_FRAME - 4])
def test_the_bounds_themselves_are_allowed(length):
    framer = Framer()
    framer.feed(struct.pack(">ii", length, length - 4))
    assert framer.error is None or "not valid JSON" in str(framer.error)


@pytest.mark.parametrize("name", ["code", "flag", "opaque", "version"])
@pytest.mark.parametrize("value", ["2147483648", "-2147483649", "9" * 5000, "1e9", '"x"', "[]"])
def test_a_number_of_a_header_that_is_no_int_ends_the_stream(name, value):
    fields = {"code": "10", "flag": "0", "opaque": "1", "version": "0"} | {name: value}
    header = ("{" + ",".join(f'"{key}":{text}' for key, text in fields.items()) + "}").encode()
    framer = Framer()
    framer.feed(struct.pack(">ii", 4 + len(header), len(header)) + header)
    assert framer.error is not None


def test_the_limit_can_be_lowered():
    framer = Framer(max_frame=1000)
    framer.feed(stream([Command(10, body=bytes(1000))]))
    assert isinstance(framer.error, RemoteProtocolError)


def test_a_claimed_length_allocates_nothing():
    tracemalloc.start()
    try:
        framers = [Framer() for _ in range(100)]
        for framer in framers:
            framer.feed(struct.pack(">ii", MAX_FRAME - 4, 100) + b"{")
        assert tracemalloc.get_traced_memory()[1] < 200_000
    finally:
        tracemalloc.stop()


def test_a_large_frame_in_small_pieces_takes_linear_time():
    """Each byte is copied a bounded number of times: the memory that passes through is a few times the frame."""
    data = stream([Command(10, body=bytes(4 << 20))])
    framer, found = Framer(), []
    for position in range(0, len(data), 1 << 10):
        found += framer.feed(data[position : position + (1 << 10)])
    assert len(found) == 1


def test_mutated_frames_give_commands_or_a_violation_and_nothing_else():
    random_ = random.Random(7)
    whole = stream(some())
    ended = 0
    for _ in range(MUTATIONS):
        data = bytearray(whole)
        for _ in range(random_.choice([1, 1, 2, 8])):
            position = random_.randrange(len(data))
            way = random_.randrange(4)
            if way == 0:
                data[position] ^= 1 << random_.randrange(8)
            elif way == 1:
                data[position] = random_.randrange(256)
            elif way == 2:
                del data[position : position + random_.randrange(1, 9)]
            else:
                data[position:position] = random_.randbytes(random_.randrange(1, 9))
        at_once, in_pieces = Framer(), Framer()
        first = at_once.feed(bytes(data))
        cut = random_.randrange(len(data))
        second = in_pieces.feed(bytes(data[:cut])) + in_pieces.feed(bytes(data[cut:]))
        assert first == second
        assert all(isinstance(command, Command) for command in first)
        assert str(at_once.error) == str(in_pieces.error)
        ended += at_once.error is not None
    assert 0 < ended < MUTATIONS
