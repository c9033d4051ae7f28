"""Rows of any shape: each is a message or is refused in words, and what is foretold of a message is what becomes of it."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqtool.engine import Compat, PutStatus, open_store
from mqtool.engine.write.messages import OutgoingMessage
from mqtool.formats import commit_log, file_names
from mqtool.ingest import bulk_ingest
from mqtool.ingest.bulk_ingest import Row
from mqtool.ingest.row_source import NoMessageError, message_of
from tests.support.engine import HeldClock, findings_of, small_options
from tests.support.engine_faults import fast_directory, remove

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)
FIELDS = [
    "topic",
    "queue_id",
    "body",
    "body_base64",
    "body_encoding",
    "tags",
    "keys",
    "properties",
    "delay_level",
    "flag",
    "sys_flag",
    "born_timestamp",
    "born_host",
    "store_host",
    "reconsume_times",
    "unique_key",
    "body_crc",
    "batch_index",
]
LIKELY = {
    "topic": st.sampled_from(
        ["A", "B" * 127, "C" * 128, "%RETRY%" + "d" * 200, "%RETRY%" + "d" * 260, "..", "a/b", "é"]
    ),
    "queue_id": st.integers(0, 3),
    "body": st.text(max_size=20) | st.integers(3000, 5000).map("x".__mul__),
    "properties": st.dictionaries(
        st.text(st.characters(exclude_characters="\1\2"), min_size=1, max_size=4),
        st.text(st.characters(exclude_characters="\1\2"), max_size=6),
        max_size=3,
    ),
    "tags": st.sampled_from(["t", ""]),
    "keys": st.just(["k"]),
    "delay_level": st.integers(0, 30),
    "sys_flag": st.sampled_from([0, 1, 4, 8, 12, 16, 32, 64, 128]),
    "born_host": st.sampled_from(["1.2.3.4:5", "[::1]:9"]),
}
MESSAGES = st.fixed_dictionaries({"topic": LIKELY.pop("topic")}, optional=LIKELY)


@pytest.mark.slow
@given(st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=6), VALUES, max_size=6) | VALUES)
@settings(max_examples=400)
def test_a_row_is_a_message_or_is_refused_in_words(row):
    try:
        found = message_of(row, small_options())
    except NoMessageError as refused:
        assert refused.reason
        return
    assert isinstance(found, OutgoingMessage)
    json.dumps(row)
    assert (found.topic, found.body) == (row["topic"], found.body)
    assert all(isinstance(value, int | bytes | str | type(None)) for value in found)


@pytest.mark.slow
@pytest.mark.parametrize("compat", list(Compat))
@given(rows=st.lists(MESSAGES, min_size=1, max_size=8))
@settings(max_examples=40)
def test_what_a_dry_run_says_is_what_becomes_of_a_row(compat, rows):
    directory = fast_directory()
    try:
        options = small_options(compat=compat)
        messages = [Row(number, message_of(row, options)) for number, row in enumerate(rows)]
        validator = bulk_ingest.PutValidator(options)
        said = list(bulk_ingest.check(messages, validator))
        with open_store(directory / "store", options, clock=HeldClock(), background=False) as store:
            done = list(bulk_ingest.append(store, messages, validator))
            for ack in done:
                if ack.stored:
                    record = commit_log.parse_record(bytes(store.message_at(ack.physical_offset)))
                    assert (record.topic.decode(), record.queue_id) == (ack.topic, ack.queue_id)
        assert [(ack.number, ack.status, ack.topic) for ack in done] == [
            (ack.number, ack.status, ack.topic) for ack in said
        ]
        assert all(ack.stored is (ack.status is PutStatus.PUT_OK) for ack in done)
        if any(ack.stored for ack in done):
            # A delayed message whose topic cannot be a directory is never delivered, and `verify` says so.
            odd = not all(file_names.is_directory_name(str(row.get("topic"))) for row in rows if isinstance(row, dict))
            declared = ("log-bad-compression", *(["log-unusable-message"] if odd else []))
            assert findings_of(directory / "store", options, *declared) == []
    finally:
        remove(directory)
