"""Searching for records by magic code: what only looks like one is passed over, and the search goes on."""

import io

from mqtool.formats import commit_log
from mqtool.records.record_search import holds_record, records_anywhere
from tests.support.builder import encode

MAGIC = commit_log.MAGIC_V1.to_bytes(4, "big", signed=True)
WHOLE = encode(1 << 40, b"elsewhere")


class Bytes:
    """A file in memory without holes."""

    def __init__(self, data: bytes) -> None:
        self.size = len(data)
        self._data = io.BytesIO(data)

    def read(self, position: int, count: int) -> bytes:
        self._data.seek(position)
        return self._data.read(count)

    def next_data(self, position: int) -> int:
        return position


def found(data: bytes) -> list[tuple[int, bytes]]:
    return [(position, record.body) for position, record in records_anywhere(Bytes(data))]


def test_a_record_is_found_whatever_offset_it_states():
    assert found(bytes(100) + WHOLE) == [(100, b"elsewhere")]
    assert holds_record(bytes(100) + WHOLE)


def test_a_magic_code_at_the_very_beginning_is_no_record():
    assert found(MAGIC + bytes(200) + WHOLE) == [(204, b"elsewhere")]


def test_a_magic_code_with_a_size_that_fits_and_no_record_is_passed_over():
    false = (120).to_bytes(4, "big") + MAGIC + b"\xff" * 112
    assert found(false + WHOLE) == [(120, b"elsewhere")]
    assert holds_record(false + WHOLE)
    assert not holds_record(false)


def test_a_record_with_a_wrong_body_is_not_one_but_a_torn_log_holds_it():
    damaged = bytearray(WHOLE)
    damaged[damaged.index(b"elsewhere")] ^= 1
    assert found(bytes(damaged)) == []
    assert holds_record(bytes(damaged))
