"""Prepared answers are the frames that writing the whole command makes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtool.protocol import Command, encode
from mqtool.protocol.command import FLAG_RESPONSE
from mqtool.protocol.frames import PreparedAnswer

ANSWER = PreparedAnswer(0, {"id": "C0A8%016X", "queueId": "%d", "kept": "100%%", "key": "%b"})


@given(
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**31 - 1),
    st.text("0123456789ABCDEFxyz"),
    st.integers(-(2**31), 2**31 - 1),
)
def test_a_filled_answer_is_the_frame_of_the_whole_command(place, queue_id, key, opaque):
    fields = {"id": f"C0A8{place:016X}", "queueId": str(queue_id), "kept": "100%", "key": key}
    whole = encode(Command(0, FLAG_RESPONSE, opaque, None, fields))
    assert ANSWER.frame(place, queue_id, key.encode(), opaque) == b"".join(whole)


@pytest.mark.parametrize("text", ["2147483646", '"opaque":2147483646', "é\n"], ids=["number", "member", "escaped"])
def test_what_stands_in_a_field_is_not_taken_for_the_opaque(text):
    assert PreparedAnswer(0, {"a": text}).frame(7) == b"".join(encode(Command(0, FLAG_RESPONSE, 7, None, {"a": text})))
