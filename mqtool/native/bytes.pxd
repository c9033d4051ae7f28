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
