"""Declarations of bytes.h, and the layout of records; see there and `formats.commit_log`."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t


cdef extern from "bytes.h" nogil:
    uint64_t word_at(const uint8_t *at)
    int64_t i64_at(const uint8_t *at)
    int64_t i32_at(const uint8_t *at)
    int64_t i16_at(const uint8_t *at)
    void put_i64(uint8_t *at, int64_t value)
    void put_i32(uint8_t *at, int64_t value)
    void put_i16(uint8_t *at, int64_t value)
    uint64_t first_word(const uint8_t *at, int64_t length, const uint8_t *limit)
    bint is_equal(
        const uint8_t *at, const uint8_t *limit, const uint8_t *other, const uint8_t *other_limit, int64_t length
    )
    cdef struct marks:
        uint64_t first
        uint64_t second
        uint64_t high
    marks marks_from(const uint8_t *at, const uint8_t *limit, uint8_t first, uint8_t second)
    int lowest_bit(uint64_t bits)
    void fetch_ahead(const void *at)
    void keep_order()
    uint32_t mqtool_crc32(const uint8_t *data, size_t size)


# A test compares these numbers with `formats`. They are constants here so that the compiler knows them.
cdef enum:
    MAGIC_V1 = -626843481
    MAGIC_V2 = -626843477
    MIN_RECORD = 91
    FRAME = 8
    MAGIC_AT = 4
    CRC_AT = 8
    QUEUE_AT = 12
    FLAG_AT = 16
    OFFSET_AT = 20
    PHYSICAL_AT = 28
    SYS_FLAG_AT = 36
    BORN_AT = 40
    BORN_HOST_AT = 48
    STORED_AT = 56
    STORE_HOST_AT = 64
    RETRIES_AT = 72
    PREPARED_AT = 76
    LENGTH_AT = 84
    BODY_AT = 88
    HOST = 8
    LONGER_V6 = 12
    PORTS = 65536
    CRC_MASK = 0x7FFFFFFF
    INT_MAX = 0x7FFFFFFF
    # bits of sys_flag
    COMPRESSED = 1
    PREPARED = 4
    ROLLBACK = 12  # the bits of a transaction, and their value if it is rolled back
    BORN_V6 = 16
    STORE_V6 = 32
    INNER_BATCH = 128
    # properties
    NAME_END = 1
    VALUE_END = 2
    # units of a ConsumeQueue, and index files
    UNIT = 20
    UNIT_SIZE_AT = 8
    UNIT_TAGS_AT = 12
    INDEX_HEADER = 40
    INDEX_SLOT = 4
    INDEX_ENTRY = 20
    ENTRY_PHYSICAL_AT = 4
    ENTRY_TIME_AT = 12
    ENTRY_PREVIOUS_AT = 16


cdef struct Parts:
    int64_t body_length
    int64_t topic
    int64_t topic_length
    int64_t properties
    int64_t properties_length


cdef inline uint32_t body_crc(const uint8_t *data, int64_t length) noexcept nogil:
    """Returns the CRC of a body as records store it."""
    return mqtool_crc32(data, length) & CRC_MASK


cdef inline bint parts_of(const uint8_t *data, int64_t body, int64_t end, bint is_v2, Parts *parts) noexcept nogil:
    """Finds the parts of a record whose last byte is in the buffer; the one place where its inner lengths are checked.

    Args:
        data: the buffer.
        body, end: positions of the body and after the record.
        is_v2: whether the topic's length takes two bytes.
        parts: output; only meaningful if the lengths add up.

    Returns:
        Whether the lengths add up to the record's size, so that every part is in it.
    """
    cdef int64_t wide = 2 if is_v2 else 1
    if body + wide + 2 > end:
        return False
    parts.body_length = max(i32_at(data + body - 4), 0)
    parts.topic = body + parts.body_length + wide
    if parts.topic + 2 > end:
        return False
    parts.topic_length = i16_at(data + parts.topic - 2) if is_v2 else <int64_t>(<signed char>data[parts.topic - 1])
    parts.properties = parts.topic + parts.topic_length + 2
    if parts.topic_length < 0 or parts.properties > end:
        return False
    parts.properties_length = max(i16_at(data + parts.properties - 2), 0)
    return parts.properties + parts.properties_length == end


cdef inline int64_t sequence(const uint8_t *data, int64_t left) noexcept nogil:
    """Returns the length of the UTF-8 sequence that begins with a byte above 0x7F; 0 if it is invalid."""
    cdef uint8_t first = data[0], low = 0x80, high = 0xBF
    cdef int64_t length = 0, further
    if 0xC2 <= first <= 0xDF:
        length = 2
    elif 0xE0 <= first <= 0xEF:
        length = 3
        low, high = 0xA0 if first == 0xE0 else 0x80, 0x9F if first == 0xED else 0xBF
    elif 0xF0 <= first <= 0xF4:
        length = 4
        low, high = 0x90 if first == 0xF0 else 0x80, 0x8F if first == 0xF4 else 0xBF
    if length > left or length == 0 or not low <= data[1] <= high:
        return 0
    for further in range(2, length):
        if not 0x80 <= data[further] <= 0xBF:
            return 0
    return length


cdef inline int64_t byte_from(
    const uint8_t *data, int64_t at, int64_t end, const uint8_t *limit, uint8_t byte
) noexcept nogil:
    """Returns the first position of a byte, `end` if it is not before there."""
    cdef uint64_t bits
    while at < end:
        bits = marks_from(data + at, limit, byte, byte).first
        if bits:
            return min(at + lowest_bit(bits), end)
        at += 64
    return end


cdef struct Properties:
    # how far the properties of a record were read: the next one, and the block of 64 bytes that was looked at
    int64_t at, block
    marks marked
    bint has_high  # perhaps not all bytes so far are ASCII


cdef struct Property:
    # the name is from start to split, the value from split + 1 to close
    int64_t start, split, close


cdef inline Properties properties_from(int64_t start) noexcept nogil:
    return Properties(start, start - 64, marks(0, 0, 0), False)


cdef inline bint next_property(
    const uint8_t *data, int64_t end, const uint8_t *limit, Properties *all, Property *next
) noexcept nogil:
    """Finds the next property; empty names and values are dropped as in the broker. The one compiled form of this rule.

    Args:
        data, end: position at which the properties end in a buffer.
        limit: end of the buffer, before which blocks of 64 bytes are read.
        all: how far they were read.
        next: output.

    Returns:
        False after the last one.
    """
    cdef int64_t at, passed, close, split
    while all.at < end:
        at = all.at
        passed = at - all.block
        if passed >= 64 or all.marked.second >> passed == 0:  # the property does not end in this block
            all.block, passed = at, 0
            all.marked = marks_from(data + at, limit, NAME_END, VALUE_END)
            all.has_high |= all.marked.high != 0  # perhaps after the end, which costs only time
        close = at + lowest_bit(all.marked.second >> passed)
        split = min(at + lowest_bit(all.marked.first >> passed), close)
        if all.marked.second == 0:  # longer than a block
            close = byte_from(data, at, end, limit, VALUE_END)
            split = byte_from(data, at, close, limit, NAME_END)
            all.has_high = True
        next.start, next.split, next.close = at, min(split, end), min(close, end)
        all.at = close + 1
        if at < next.split < next.close - 1:
            return True
    return False
