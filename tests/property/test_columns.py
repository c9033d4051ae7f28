"""Columns and JSON Lines of any records are what reading them one by one gives."""

import json
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mqtool.formats import commit_log
from mqtool.records import columns
from mqtool.records.columns import binary_view
from mqtool.records.frame_scan import scan_frames
from mqtool.records.frames import Frames, crc32_of_ranges
from mqtool.store.log.json_rows import json_lines, row_of
from mqtool.store.log.message import from_record
from tests.property.records import log_of, records
from tests.support.native import FORMS, form, needs_native

USUAL = {"properties": b"KEYS\1k1 k2\2UNIQ_KEY\1" + b"7F" * 16 + b"\2TAGS\1a\2"}


def frames_of(data, base=0, before=b"", behind=b""):
    """The frames of a log, in a buffer that begins and ends with other bytes."""
    view = memoryview(before + data + behind)
    found = scan_frames(view, len(before))
    assert len(found.positions)
    return Frames(view, base - len(before), found.positions, found.sizes)


def messages_of(frames):
    return [from_record(commit_log.parse_record(frames.view, position)) for position in frames.positions.tolist()]


def value_of(message, column):
    if column == "body_decoded":
        return not message.body_problem
    if column == "properties":
        return list(message.properties.items())
    return list(message.keys) if column == "keys" else getattr(message, column)


EVERY = [column.name for column in columns.COLUMNS]


@given(made=records, base=st.sampled_from([0, 1 << 40]), behind=st.sampled_from([b"", b"\0" * 100]))
@example(made=[USUAL] * 100, base=0, behind=b"")
@example(made=[USUAL] * 50 + [{"properties": b""}] + [USUAL] * 50, base=0, behind=b"")
@example(made=[{"properties": b"a\1b\2a\1c\2"}] * 5, base=0, behind=b"")
@example(made=[{"properties": b""}] * 3, base=0, behind=b"")
@example(made=[USUAL, {"properties": b"big\1" + b"x" * 30_000 + b"\2"}] * 60, base=0, behind=b"")
def test_every_column_is_the_field_of_every_message(made, base, behind):
    data, _ = log_of(made, base)
    frames = frames_of(data, base, b"before", behind)
    batch = columns.record_batch(frames, EVERY)
    batch.validate(full=True)
    messages = messages_of(frames)
    assert len(messages) == len(made)
    for name in EVERY:
        assert batch[name].to_pylist() == [value_of(message, name) for message in messages], name


@pytest.mark.slow
@given(made=records, mask=st.lists(st.booleans(), min_size=12, max_size=12))
def test_a_selection_of_frames_has_the_columns_of_the_selected(made, mask):
    data, _ = log_of(made)
    frames = frames_of(data).select(np.array(mask[: len(made)], bool))
    batch = columns.record_batch(frames, EVERY)
    messages = messages_of(frames)
    for name in EVERY:
        assert batch[name].to_pylist() == [value_of(message, name) for message in messages], name


@given(made=records, mode=st.sampled_from(["none", "text", "hex", "base64"]), raw=st.booleans())
@example(made=[USUAL] * 100, mode="text", raw=False)
@example(made=[{"properties": b""}] * 3, mode="text", raw=False)
@example(made=[{**USUAL, "body": b"plain"}] * 3 + [{**USUAL, "body": b'"'}], mode="text", raw=False)
@example(made=[{"properties": b"a\1b"}] * 3, mode="none", raw=False)
@example(made=[{"properties": b"a\1b\2a\1c\2"}] * 3 + [USUAL], mode="none", raw=False)
def test_every_line_of_json_is_the_row_of_its_message(made, mode, raw):
    data, _ = log_of(made)
    frames = frames_of(data)
    lines = json_lines(frames, mode, raw=raw).tobytes().splitlines(keepends=True)
    rows = [row_of(message, mode) for message in messages_of(frames)]
    if raw:
        from mqtool.store.log.json_rows import encode_body

        for row, message in zip(rows, messages_of(frames), strict=True):
            row["body"], row["body_encoding"] = encode_body(message.raw_body, mode)
    assert [json.loads(line) for line in lines] == rows
    assert all(line.endswith(b"\n") for line in lines)


@needs_native
@given(made=records, mode=st.sampled_from(["none", "text", "hex", "base64"]), raw=st.booleans())
@example(
    made=[{**USUAL, "body": bytes(range(256))}, {**USUAL, "body": bytes(range(128))}, USUAL], mode="text", raw=False
)
@example(made=[{**USUAL, "body": b"x" * 63 + "ß€😀".encode() * 9}, USUAL], mode="text", raw=False)
@example(made=[{"properties": b"a\1b\2a\1c\2"}] + [USUAL] * 3, mode="text", raw=False)
@example(made=[{"properties": b"\1b\2a\1\2a\1c\1\x1f\2d"}] * 2, mode="text", raw=False)
def test_both_forms_write_the_same_lines(made, mode, raw):
    data, _ = log_of(made)
    frames = frames_of(data, before=b"before", behind=b"behind")
    with form(compiled=False):
        lines = json_lines(frames, mode, raw=raw).tobytes()
    assert json_lines(frames, mode, raw=raw).tobytes() == lines


INVALID = (
    b"\x80",
    b"\xc0\xaf",
    b"\xc2",
    b"\xe0\x9f\xbf",
    b"\xed\xa0\x80",
    b"\xf0\x8f\xbf\xbf",
    b"\xf4\x90\x80\x80",
    b"\xf5",
)
VALID = ("\x7f", "\x80", "\u07ff", "\u0800", "\ud7ff", "\ue000", "\uffff", "\U00010000", "\U0010ffff")


@needs_native
@pytest.mark.parametrize("where", ["body", "properties", "name"])
def test_both_forms_know_what_is_utf8(where):
    for piece in (*INVALID, *(text.encode() for text in VALID)):
        for text in (piece, b"a" * 64 + piece + b"z", b'"' + piece[:-1], piece + b"\n" + piece):
            one = {"body": text} if where == "body" else {"properties": b"k\1" + text + b"\2"}
            data, _ = log_of([{"properties": text + b"\1v\2"} if where == "name" else one, USUAL])
            frames = frames_of(data)
            with form(compiled=False):
                lines = json_lines(frames).tobytes()
            assert json_lines(frames).tobytes() == lines


@given(data=st.binary(max_size=200), cuts=st.lists(st.integers(0, 200), max_size=20), gaps=st.booleans())
def test_views_are_the_ranges_of_the_buffer(data, cuts, gaps):
    places = sorted(min(cut, len(data)) for cut in cuts)
    ranges = list(zip(places[::2], places[1::2], strict=False)) if gaps else list(pairwise(places))
    starts = np.array([start for start, _ in ranges], np.int64)
    lengths = np.array([end - start for start, end in ranges], np.int64)
    nulls = np.where(np.arange(len(ranges)) == 0, -1, lengths)
    for compiled in FORMS:
        with form(compiled=compiled):
            made = binary_view(np.frombuffer(data, np.uint8), starts, lengths)
            first_null = binary_view(np.frombuffer(data, np.uint8), starts, nulls)
        made.validate(full=True)
        assert made.to_pylist() == made.cast(pa.binary()).to_pylist() == [data[start:end] for start, end in ranges]
        assert first_null.to_pylist() == [None, *made.to_pylist()[1:]][: len(ranges)]


@needs_native
@pytest.mark.parametrize(("start", "length"), [(-1, 2), (9, 2), (0, 11), (10, 1)])
def test_a_view_outside_the_buffer_is_refused(start, length):
    with pytest.raises(ValueError, match="range 0 is not inside the buffer"):
        binary_view(np.zeros(10, np.uint8), np.array([start]), np.array([length]))


@given(parts=st.lists(st.binary(max_size=80), max_size=200))
@example(parts=[b"part %d" % number for number in range(3000)])
@example(parts=[b""] * 600)
def test_the_crc_of_ranges_is_the_crc_of_each(parts):
    data = b"".join(parts)
    ends = np.cumsum([len(part) for part in parts], dtype=np.int64)
    starts = ends - np.array([len(part) for part in parts], np.int64)
    assert crc32_of_ranges(memoryview(data), starts, ends).tolist() == [commit_log.body_crc(part) for part in parts]
