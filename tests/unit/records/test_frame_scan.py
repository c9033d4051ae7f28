"""A frame scan finds the frames that following total_size from one to the next finds, and says why it ends."""

import struct

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mqtool.formats import commit_log
from mqtool.records.frame_scan import FrameScan, Stop
from mqtool.records.frames import frames_at
from tests.unit.rebuild.model import laid_out, record

pytestmark = pytest.mark.usefixtures("either_way")

MAGICS = [struct.pack(">i", code) for code in (commit_log.MAGIC_V1, commit_log.MAGIC_V2)]
lures = st.sampled_from([*MAGICS, b"\xda", b"\xda\xa3", b"\x00\x00\x00\x70" + MAGICS[0], b"\xff" * 4 + MAGICS[1]])
bodies = st.lists(lures | st.binary(max_size=40), max_size=4).map(b"".join)
ends = st.sampled_from(
    [
        b"",
        bytes(7),
        bytes(8),
        bytes(200),
        commit_log.build_blank(64) + bytes(56),
        b"\xda" * 30,
        struct.pack(">i", 5000) + MAGICS[0],
        struct.pack(">i", 3) + MAGICS[0] + bytes(90),
    ]
)


def chain_of(data: bytes) -> FrameScan:
    """One by one, or by the compiled form, whichever is in use."""
    return frames_at(memoryview(data), 0, 0)[0]


def followed(data):
    """Positions of frames, one by one; where the next would begin; why none does."""
    at, found = 0, []
    while at + 8 <= len(data):
        total, magic = struct.unpack_from(">ii", data, at)
        if magic not in (commit_log.MAGIC_V1, commit_log.MAGIC_V2) or total < 91:
            blank = magic == commit_log.MAGIC_BLANK
            return found, at, Stop.BLANK if blank else Stop.ZEROS if total == magic == 0 else Stop.BAD
        if at + total > len(data):
            return found, at, Stop.MORE
        found.append(at)
        at += total
    return found, at, Stop.END


@settings(max_examples=200)
@given(st.lists(bodies, max_size=12), st.integers(1, 30), ends)
@example([b""], 63, struct.pack(">i", 5000) + MAGICS[0])
def test_a_chain_of_small_frames_is_followed_to_the_same_end(found_bodies, times, end):
    data = laid_out([record(body=body) for body in found_bodies] * times)[0] + end
    chain = chain_of(data)
    assert (chain.positions.tolist(), chain.end, chain.stop) == followed(data)


runs = st.lists(st.tuples(bodies, st.integers(1, 200)), min_size=1, max_size=6)


@pytest.mark.slow
@settings(max_examples=200)
@given(runs, st.sampled_from([0, 700]), ends, st.integers(0, 60))
@example([(b"", 129), (b"x", 2), (b"", 70)], 0, b"", 0)
def test_runs_of_frames_of_one_size_are_followed_to_the_same_end(found, longer, end, cut):
    made = [record(body=body + bytes(longer)) for body, times in found for _ in range(times)]
    data = laid_out(made)[0][: -cut or None] + end
    chain = chain_of(data)
    assert (chain.positions.tolist(), chain.end, chain.stop) == followed(data)
    assert chain.sizes.tolist() == [struct.unpack_from(">i", data, at)[0] for at in chain.positions.tolist()]


@pytest.mark.parametrize("at", [0, 1, 63, 64, 65, 200, 299])
@pytest.mark.parametrize("head", [struct.pack(">i", 700) + MAGICS[0], struct.pack(">i", 640) + MAGICS[1], bytes(8)])
def test_a_run_ends_at_a_frame_of_another_size_or_version(at, head):
    data = bytearray(laid_out([record(body=bytes(640 - 92))] * 300)[0])
    data[at * 640 : at * 640 + 8] = head
    chain = chain_of(data)
    assert (chain.positions.tolist(), chain.end, chain.stop) == followed(data)


def test_many_small_frames_are_followed_to_the_same_end():
    data = laid_out([record(f"t{number % 3}", body=bytes(number % 70)) for number in range(20_000)])[0]
    chain = chain_of(data)
    assert (chain.positions.tolist(), chain.end, chain.stop) == followed(data)


@pytest.mark.parametrize("lure", [MAGICS[0], b"\x00\x00\x00\x70" + MAGICS[0]])
def test_magic_codes_in_every_body_only_slow_it_down(lure):
    data = laid_out([record(body=lure * 5)] * 3000)[0]
    chain = chain_of(data)
    assert (chain.positions.tolist(), chain.end, chain.stop) == followed(data)


@pytest.mark.parametrize(
    ("size", "magic", "left", "expected"),
    [
        (91, commit_log.MAGIC_V1, 91, 91),
        (100, commit_log.MAGIC_V2, 4096, 100),
        (90, commit_log.MAGIC_V1, 4096, 0),
        (101, commit_log.MAGIC_V1, 100, 0),
        (-1, commit_log.MAGIC_V1, 4096, 0),
        (100, 0, 4096, 0),
        (8, commit_log.MAGIC_BLANK, 4096, 4096),
        (4096, commit_log.MAGIC_BLANK, 4096, 4096),
        (7, commit_log.MAGIC_BLANK, 4096, 0),
        (4097, commit_log.MAGIC_BLANK, 4096, 0),
    ],
)
def test_a_record_leads_to_its_end_and_a_blank_to_the_end_of_its_segment(size, magic, left, expected):
    assert commit_log.frame_size(bytes(3) + struct.pack(">ii", size, magic), 3, left) == expected
