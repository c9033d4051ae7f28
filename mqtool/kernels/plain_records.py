"""Records as they mostly are, read and checked in one pass without the interpreter: all that `verify` asks of a log.

For every rule there is another form, over columns, in `records` and `verify`. A record that this pass does not find
plain ends it, and is left to them with what follows; so nothing here says what is wrong with a record. Each window is
copied out of the page cache into memory that stays in the processor's cache, and all questions about a record are
asked while it is there.
"""

from typing import Any

import numpy as np

from mqtool.formats import commit_log, java, properties
from mqtool.formats.commit_log import SysFlag
from mqtool.kernels.body_crc import body_crc32
from mqtool.kernels.compiling import compiled, inlined, keep_order, word_at
from mqtool.kernels.frame_scan import AT, BODY_AT, MIN_SIZE, V1
from mqtool.kernels.heads import FILE, head, record_in, topic_of
from mqtool.kernels.machine_code import BYTES, CRC32, I32, I64, PREAD, U32, U64
from mqtool.kernels.numbers import i32_at, i64_at
from mqtool.kernels.plain_state import BATCH, COUNTED, MAX_STEP_BACK, State
from mqtool.kernels.sums import mixed_entry, mixed_unit
from mqtool.kernels.trailers import TOPICS, WANTED, hash_on, property_slices, put_keys

_CRC_AT, _PLACE_AT = AT["body_crc"], AT["queue_offset"]
_PREPARED, _ROLLBACK = int(SysFlag.TRANSACTION_PREPARED), int(SysFlag.TRANSACTION_ROLLBACK)
_TRANSACTION, _COMPRESSED = commit_log.TRANSACTION_MASK, int(SysFlag.COMPRESSED)
_CRC_TAIL = properties.CRC32_TAIL_SIZE
_CRC_NAME = np.uint64(int.from_bytes(properties.crc32_tail(0)[:8], "little"))
_MIX, _ONE, _INT_MAX = np.uint64(0x9E3779B97F4A7C15), np.uint64(1), java.INT_MAX
_RECORDS, _NEWEST, _KNOWN, _FIRST, _LAST = State.RECORDS, State.NEWEST, State.KNOWN, State.FIRST, State.LAST


# Indices are unsigned where they cannot be negative: numba adds the length to a negative one, which takes three
# instructions each time, 1.5 of 48 ns for a record.


@inlined
def _queue_number(topic: Any, queue_id: Any, table: Any) -> Any:
    """Returns the number of a queue in a `records.words.WordTable`, -1 if it is not there."""
    values, numbers, shift = table
    value = np.uint64(topic) << np.uint64(32) | np.uint64(queue_id)
    slot, mask = (value * _MIX) >> shift, np.uint64(len(values) - 1)
    while numbers[slot] >= 0 and values[slot] != value:
        slot = (slot + _ONE) & mask
    return np.int64(numbers[slot])


@inlined
def _seconds(stored: Any, begin: Any) -> Any:
    """Returns `records.index_build.time_diffs` of one entry."""
    return min(max((stored - begin) // 1000, 0), _INT_MAX) if begin > 0 else np.int64(0)


@inlined
def _has_crc(window: Any, properties_at: Any, properties_length: Any) -> Any:
    """Whether the last property is named as the CRC of the whole record."""
    at = np.uint64(window.ctypes.data) + np.uint64(properties_at + properties_length - _CRC_TAIL)
    return properties_length >= _CRC_TAIL and word_at(at) == _CRC_NAME


@inlined
def _sum_keys(window: Any, slices: Any, topics: Any, topic: Any, index_tags: Any, scratch: Any, entry: Any) -> Any:
    """Returns the sum of a record's keys as index entries, and how many there are.

    Args:
        window, slices, topics, topic, index_tags: as for `trailers.put_keys`.
        scratch: room for the keys.
        entry: physical offset and seconds.
    """
    total = np.uint64(0)
    keys = put_keys(window, slices, topics, topic, index_tags, 0, scratch[0], scratch[1], 0)
    for key in range(keys):
        keep_order()  # a record has one to three keys: making vectors of them would take longer than the sum
        value = np.int64(np.int32(scratch[1][key]))
        # Math.abs, and 0 for the smallest int, as `java.index_hash`
        total += mixed_entry(entry[0], np.int64(0) if value == -_INT_MAX - 1 else abs(value), entry[1])
    return total, keys


@inlined
def _add_unit(window: Any, record: Any, queues: Any, units: Any, bucket: Any) -> Any:
    """Adds a record to its queue, and its unit to the sums of a bucket.

    Args:
        window: the bytes.
        record: position in the window, physical offset, total_size, topic number, queue id, begin and end of its tag.
        queues: see `plain_records`.
        units: total and count by bucket.
        bucket: of the record.

    Returns:
        Whether it was added: not if the queue is unknown or holds batches, or the queue offset is not its next one.
    """
    at, physical, total, topic, queue_id, tag_start, tag_end = record
    table, queue_keys, known, first, first_at, following, last_at, messages = queues
    number, offset = _queue_number(topic, queue_id, table), i64_at(window, at + _PLACE_AT)
    queue = np.uint64(number)
    fits = number >= 0 and known[queue] & BATCH == 0 and (messages[queue] == 0 or following[queue] == offset)
    if fits:
        if messages[queue] == 0:
            first[queue], first_at[queue] = offset, physical
        following[queue], last_at[queue] = offset + 1, physical
        messages[queue] += 1
        if known[queue] & COUNTED != 0:
            tags_code = np.int64(np.int32(hash_on(window, tag_start, tag_end, np.uint32(0))))
            units[0][bucket] += mixed_unit(physical, offset, total, tags_code, queue_keys[queue])
            units[1][bucket] += 1
    return fits


@inlined
def _index_file_of(physical: Any, starts: Any, before: Any) -> Any:
    """Returns the number of the index file that has a record's entries, from that of the record before; -1 at first."""
    while before + 1 < len(starts) and starts[before + 1] <= physical:
        before += 1
    return before


_TABLE = (U64, I32, "uint64")
_QUEUES = (_TABLE, U64, BYTES, I64, I64, I64, I64, I64)
_INDEX = (I64, I64)
_SUMS = ("int64", U64, I64, U64, I64, I64)


@compiled(("int64", "bool"), CRC32, PREAD, FILE, BYTES, TOPICS, WANTED, _QUEUES, _INDEX, _SUMS, (I64, U32), I64)
def plain_records(  # noqa: C901, PLR0915 - one pass, and each break a rule
    crc32: Any,
    pread: Any,
    file: Any,
    window: Any,
    topics: Any,
    options: Any,
    queues: Any,
    index: Any,
    sums: Any,
    scratch: Any,
    state: Any,
) -> Any:
    """Reads records until one is not plain, or as many bytes as are asked for.

    Args:
        crc32: of isal.
        pread: of the C library.
        file: see `heads.FILE`.
        window: memory for the bytes: the size of what is read at a time, and `tables.SPARE`.
        topics, options: as for `trailers.dispatch`.
        queues: the table of their numbers by topic and queue id: values, numbers, shift (`records.words.WordTable`).
            By number: `verify.checksums.queue_key`, bits of `plain_state`, and the columns of
            `verify.continuity.QueueSpan` from `first` on, which are updated.
        index: physical offset of each index file's first entry, ascending, and the begin timestamp in its header.
        sums: bits of a bucket; total and count of units, total and count of keys, and the physical offset of the first
            record, by bucket of the file; updated.
        scratch: room for the keys of one record.
        state: `plain_state.State`, updated.

    Returns:
        Position after the last record that was read; whether what is there was not looked at.
    """
    base, position = file[1], file[2]
    schedule, with_keys, index_tags = options
    shift, unit_total, unit_count, key_total, key_count, first_record = sums
    start, filled = position, np.int64(0)
    entry = np.int64(-1)
    index_file = -1
    taken, newest, seen = np.int64(0), state[_NEWEST], state[_KNOWN]
    time_before, before_at, time_last, record_at = state[_LAST], state[_LAST + 1], state[_LAST + 2], state[_LAST + 3]
    step_before = time_last - time_before if seen > 1 else np.int64(0)
    is_plain = True
    while True:
        start, filled, total = record_in(pread, file, window, position, start, filled)
        if total < 0:
            break
        is_plain, at = False, position - start
        if total < MIN_SIZE or i32_at(window, at + 4) != V1:
            break
        physical = base + position
        fields = head(window, at, total, physical, _COMPRESSED)
        plain_head, flags, queue_id, stored, body, topic_at, topic_length, properties_at, properties_length = fields
        # of a spike one step leads back by more than the limit; it and the step after it are for array arithmetic
        step = stored - time_last if seen > 0 else np.int64(0)
        if not plain_head or step < -MAX_STEP_BACK or (step_before < -MAX_STEP_BACK and step > MAX_STEP_BACK):
            break
        if body > 0 and body_crc32(crc32, window, at + BODY_AT, body) != i32_at(window, at + _CRC_AT):
            break
        entry = topic_of(window, topic_at, topic_length, topics, entry)
        if entry < 0 or _has_crc(window, properties_at, properties_length):
            break
        topic = topics[4][entry]
        slices = property_slices(window, properties_at, properties_at + properties_length, topic == schedule)
        if slices[0] < 0:
            break
        bucket = np.uint64(position >> shift)
        if flags & _PREPARED == 0:
            record = (at, physical, total, topic, queue_id, slices[0], slices[1])
            if not _add_unit(window, record, queues, (unit_total, unit_count), bucket):
                break
            # nothing ends the pass from here on: the record counts
        if with_keys and flags & _TRANSACTION != _ROLLBACK:
            index_file = _index_file_of(physical, index[0], index_file)
            begin = index[1][max(index_file, 0)] if len(index[0]) > 0 else np.int64(0)
            entry_of = (physical, _seconds(stored, begin))
            mixed, keys = _sum_keys(window, slices, topics, topic, index_tags, scratch, entry_of)
            key_total[bucket] += mixed
            key_count[bucket] += keys
        if first_record[bucket] < 0:
            first_record[bucket] = physical
        if taken < 2:
            state[_FIRST + 2 * taken], state[_FIRST + 2 * taken + 1] = stored, physical
        time_before, before_at, time_last, record_at = time_last, record_at, stored, physical
        step_before, seen = step, seen + 1
        newest = max(newest, stored)
        taken += 1
        position += total
        is_plain = True
    state[_RECORDS], state[_NEWEST], state[_KNOWN] = taken, newest, min(seen, 2)
    state[_LAST], state[_LAST + 1], state[_LAST + 2], state[_LAST + 3] = time_before, before_at, time_last, record_at
    return position, is_plain
