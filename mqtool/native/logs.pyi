from typing import TypeAlias

from _typeshed import ReadableBuffer
from numpy import int32, int64, uint8, uint64
from numpy.typing import NDArray

_Bytes: TypeAlias = NDArray[uint8] | ReadableBuffer

class TopicSlots:
    def learn(self, raw: bytes, number: int, key_hash: int, tag_hash: int) -> None: ...

def crc_of(body: _Bytes) -> int: ...
def crcs_of(data: _Bytes, starts: NDArray[int64], ends: NDArray[int64], crcs: NDArray[int32]) -> None: ...
def dispatch(
    data: _Bytes,
    topic_start: NDArray[int64],
    topic_length: NDArray[int64],
    properties_start: NDArray[int64],
    properties_length: NDArray[int64],
    topics: TopicSlots,
    schedule: int,
    with_keys: bool,
    index_tags: bool,
    row: int,
    keys: int,
    others: int,
    numbers: NDArray[int32],
    tags_codes: NDArray[int64],
    key_rows: NDArray[int64],
    key_hashes: NDArray[int32],
    other_rows: NDArray[int64],
) -> tuple[int, int, int]: ...
def scan(
    data: _Bytes,
    start: int,
    with_crc: bool,
    positions: NDArray[int64],
    ints: NDArray[int32],
    longs: NDArray[int64],
    crcs: NDArray[int32],
) -> int: ...
def read(
    data: _Bytes,
    positions: NDArray[int64],
    sizes: NDArray[int64],
    ints: NDArray[int32],
    longs: NDArray[int64],
) -> None: ...
def properties(data: _Bytes, starts: NDArray[int64], lengths: NDArray[int64], slices: NDArray[int64]) -> int: ...
def views(data: _Bytes, starts: NDArray[int64], lengths: NDArray[int64], words: NDArray[uint64]) -> None: ...
def group(
    data: _Bytes,
    starts: NDArray[int64],
    lengths: NDArray[int64],
    firsts: NDArray[int64],
    codes: NDArray[int32],
) -> int: ...
def field_records(
    descriptor: int,
    base: int,
    position: int,
    end: int,
    stop: int,
    window: NDArray[uint8],
    last_window: NDArray[int64],
    topics: TopicSlots,
    latest: int,
    with_crc: bool,
    taken: int,
    positions: NDArray[int64],
    ints: NDArray[int32],
    longs: NDArray[int64],
    codes: NDArray[int32],
) -> tuple[int, int, int, int, int]: ...
def plain_records(
    descriptor: int,
    base: int,
    position: int,
    end: int,
    stop: int,
    window: NDArray[uint8],
    topics: TopicSlots,
    schedule: int,
    with_keys: bool,
    index_tags: bool,
    queue_table: tuple[NDArray[uint64], NDArray[int32], int],
    queue_keys: NDArray[uint64],
    known: NDArray[uint8],
    first: NDArray[int64],
    first_at: NDArray[int64],
    following: NDArray[int64],
    last_at: NDArray[int64],
    messages: NDArray[int64],
    index_starts: NDArray[int64],
    index_begins: NDArray[int64],
    shift: int,
    unit_total: NDArray[uint64],
    unit_count: NDArray[int64],
    key_total: NDArray[uint64],
    key_count: NDArray[int64],
    first_record: NDArray[int64],
    hashes: NDArray[int32],
    state: NDArray[int64],
) -> tuple[int, bool]: ...
def plain_units(
    data: _Bytes,
    start: int,
    key: int | uint64,
    end: int,
    bases: NDArray[int64],
    ends: NDArray[int64],
    first_buckets: NDArray[int64],
    shift: int,
    total: NDArray[uint64],
    count: NDArray[int64],
) -> tuple[int, int, int] | None: ...
def plain_entries(
    data: _Bytes,
    first: int,
    heads: NDArray[int32],
    end: int,
    bases: NDArray[int64],
    ends: NDArray[int64],
    first_buckets: NDArray[int64],
    shift: int,
    total: NDArray[uint64],
    count: NDArray[int64],
) -> tuple[int, int, int]: ...
