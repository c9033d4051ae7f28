"""What a client decodes of the bytes that a broker delivers for a unit."""

import pytest

from mqtool.formats.consume_queue import UNIT_SIZE
from mqtool.formats.release import V5_5
from mqtool.recovery import predict
from mqtool.recovery.reading import Decoded, Delivery, decode
from tests.support.builder import encode
from tests.support.damage import damage_case


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


@pytest.mark.parametrize("release", ["4.9.7", "5.5.0"])
def test_messages_after_a_unit_that_points_to_no_record_are_passed_over(release, tmp_path):
    root = damage_case(f"none@{release}-clean", tmp_path)
    path = root / "consumequeue/Orders/0/00000000000000000000"
    data = bytearray(path.read_bytes())
    data[10 * UNIT_SIZE : 10 * UNIT_SIZE + 8] = (1 << 40).to_bytes(8, "big")
    path.write_bytes(data)
    found = predict(root, release[:3])
    assert found.lost == {"Orders/0": ((10, 10),)}
    assert (
        found.readings["Orders/0"].passed_over == 39
    )  # the real releases serve 81 of 121 to a consumer from the start
    words = "queue Orders/0: 39 message(s) follow a unit that points to no record"
    assert any(one.startswith(words) for one in found.accepted)
    assert {reading.passed_over for key, reading in found.readings.items() if key != "Orders/0"} == {0}
