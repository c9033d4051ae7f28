"""What a client decodes of the bytes that a broker delivers for a unit."""

import pytest

from mqtool.formats.release import V5_5
from mqtool.recovery.delivery import Decoded, Delivery, decode
from tests.support.builder import encode


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ("3,4", Decoded(Delivery.OK, 4)),
        ("3,+4", Decoded(Delivery.OK, 4)),  # as Long.parseLong
        ("3,x", Decoded(Delivery.OTHER_TOPIC)),
        ("3", Decoded(Delivery.OTHER_TOPIC)),
    ],
)
def test_a_record_of_a_further_queue_has_the_queue_offset_that_it_states(stated, expected):
    properties = f"INNER_MULTI_DISPATCH\1%LMQ%a,%LMQ%b\2INNER_MULTI_QUEUE_OFFSET\1{stated}\2".encode()
    assert decode(encode(0, properties=properties), "%LMQ%b", 0, release=V5_5) == expected
