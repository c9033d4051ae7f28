"""Records as lines of JSON, as `store.log.json_rows.row_of` and orjson make them."""

from libc.string cimport memcmp, memcpy

from mqtool.native.bytes cimport *

cdef enum:
    ESCAPED = 6  # bytes of a control character in JSON, of all characters the most
    FIXED = 1024  # bytes of a line without its strings, at most
    MAX_NAMES = 64  # properties of a record, whose names are compared with one another
    # body modes, in the order of `store.json_rows`
    NONE = 0
    TEXT = 1
    HEX = 2

cdef const char *UPPER = "0123456789ABCDEF"
cdef const char *LOWER = "0123456789abcdef"
cdef const char *BASE64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


cdef inline uint8_t *put_text(uint8_t *to, const char *text, size_t size) noexcept nogil:
    memcpy(to, text, size)
    return to + size


cdef uint8_t *put_number(uint8_t *to, int64_t value) noexcept nogil:
    cdef uint64_t number = value
    cdef char digits[20]
    cdef int at = 20
    if value < 0:
        to[0] = c"-"
        to += 1
        number = 0 - number
    while True:
        at -= 1
        digits[at] = c"0" + <char>(number % 10)
        number //= 10
        if number == 0:
            break
    memcpy(to, digits + at, 20 - at)
    return to + 20 - at


cdef bint is_plain(const uint8_t *data, int64_t length) noexcept nogil:
    """Whether a string of JSON holds these bytes as they are, and all are ASCII."""
    cdef uint8_t odd = 0, byte
    cdef int64_t at
    for at in range(length):
        byte = data[at]
        odd |= (byte < 0x20) | (byte == c'"') | (byte == c"\\") | (byte > 0x7F)
    return odd == 0


cdef inline uint8_t *put_ascii(uint8_t *to, uint8_t byte) noexcept nogil:
    """Writes one ASCII character of a string, escaped as orjson does."""
    cdef uint8_t short = 0
    if byte == c'"' or byte == c"\\":
        short = byte
    elif byte == 0x08:
        short = c"b"
    elif byte == 0x09:
        short = c"t"
    elif byte == 0x0A:
        short = c"n"
    elif byte == 0x0C:
        short = c"f"
    elif byte == 0x0D:
        short = c"r"
    if short:
        to[0], to[1] = c"\\", short
        return to + 2
    if byte >= 0x20:
        to[0] = byte
        return to + 1
    to = put_text(to, "\\u00", 4)
    to[0], to[1] = LOWER[byte >> 4], LOWER[byte & 15]
    return to + 2


cdef uint8_t *put_string(uint8_t *to, const uint8_t *data, int64_t length) noexcept nogil:
    """Writes the inside of a string of JSON; returns NULL if the bytes are no UTF-8."""
    cdef int64_t done = 0, size, end
    if is_plain(data, length):
        return put_text(to, <const char *>data, length)
    while done < length:
        size = min(64, length - done)
        if is_plain(data + done, size):
            to = put_text(to, <const char *>data + done, size)
            done += size
            continue
        end = done + size
        while done < end:
            if data[done] < 0x80:
                to = put_ascii(to, data[done])
                done += 1
                continue
            size = sequence(data + done, length - done)
            if size == 0:
                return NULL
            to = put_text(to, <const char *>data + done, size)
            done += size
    return to


cdef uint8_t *put_host(uint8_t *to, const uint8_t *host) noexcept nogil:
    """Writes an IPv4 host."""
    cdef int part
    for part in range(4):
        to = put_number(to, host[part])
        to[0] = c"." if part < 3 else c":"
        to += 1
    return put_number(to, i32_at(host + 4))


cdef uint8_t *put_hexadecimal(uint8_t *to, const uint8_t *data, int64_t length, const char *digits) noexcept nogil:
    cdef int64_t place
    for place in range(length):
        to[2 * place], to[2 * place + 1] = digits[data[place] >> 4], digits[data[place] & 15]
    return to + 2 * length


cdef uint8_t *put_base64(uint8_t *to, const uint8_t *data, int64_t length) noexcept nogil:
    cdef int64_t at = 0, left
    cdef uint32_t bits
    while at < length:
        left = length - at
        bits = data[at] << 16
        if left > 1:
            bits |= data[at + 1] << 8
        if left > 2:
            bits |= data[at + 2]
        to[0], to[1] = BASE64[bits >> 18], BASE64[bits >> 12 & 63]
        to[2], to[3] = BASE64[bits >> 6 & 63], BASE64[bits & 63]
        if left < 3:
            to[3] = c"="
        if left < 2:
            to[2] = c"="
        to += 4
        at += 3
    return to


cdef uint8_t *put_body(uint8_t *to, const uint8_t *body, int64_t length, int mode) noexcept nogil:
    """Writes the values of `body` and `body_encoding`; as text only what is UTF-8."""
    cdef uint8_t *end
    if mode == NONE:
        return put_text(to, ',"body":null,"body_encoding":"none"', 35)
    to = put_text(to, ',"body":"', 9)
    if mode == TEXT:
        end = put_string(to, body, length)
        if end != NULL:
            return put_text(end, '","body_encoding":"text"', 24)
    if mode == HEX:
        return put_text(put_hexadecimal(to, body, length, LOWER), '","body_encoding":"hex"', 23)
    return put_text(put_base64(to, body, length), '","body_encoding":"base64"', 26)


cdef uint8_t *put_properties(
    uint8_t *to, const uint8_t *data, int64_t size, const uint8_t *limit
) noexcept nogil:
    """Writes the inside of the object of properties; returns NULL for repeated names and what is no UTF-8."""
    cdef int64_t length, count = 0, number
    cdef const uint8_t *names[MAX_NAMES]
    cdef int64_t lengths[MAX_NAMES]
    cdef Properties all = properties_from(0)
    cdef Property one
    while next_property(data, size, limit, &all, &one):
        length = one.split - one.start
        if count == MAX_NAMES:
            return NULL
        for number in range(count):
            if lengths[number] == length and memcmp(names[number], data + one.start, length) == 0:
                return NULL
        names[count], lengths[count] = data + one.start, length
        if count:
            to = put_text(to, ",", 1)
        count += 1
        to = put_string(put_text(to, '"', 1), data + one.start, length)
        if to == NULL:
            return NULL
        to = put_string(put_text(to, '":"', 3), data + one.split + 1, one.close - one.split - 1)
        if to == NULL:
            return NULL
        to = put_text(to, '"', 1)
    return to


cdef uint8_t *put_line(
    uint8_t *to, const uint8_t *record, int64_t total, const uint8_t *limit, int mode
) noexcept nogil:
    """Writes the line of one record with IPv4 hosts; returns NULL if it takes more than that."""
    cdef Parts parts
    if not parts_of(record, BODY_AT, total, i32_at(record + MAGIC_AT) == MAGIC_V2, &parts):
        return NULL
    to = put_number(put_text(to, '{"physical_offset":', 19), i64_at(record + PHYSICAL_AT))
    to = put_number(put_text(to, ',"store_size":', 14), total)
    to = put_string(put_text(to, ',"topic":"', 10), record + parts.topic, parts.topic_length)
    if to == NULL:
        return NULL
    to = put_number(put_text(to, '","queue_id":', 13), i32_at(record + QUEUE_AT))
    to = put_number(put_text(to, ',"queue_offset":', 16), i64_at(record + OFFSET_AT))
    to = put_number(put_text(to, ',"flag":', 8), i32_at(record + FLAG_AT))
    to = put_number(put_text(to, ',"sys_flag":', 12), i32_at(record + SYS_FLAG_AT))
    to = put_number(put_text(to, ',"born_timestamp":', 18), i64_at(record + BORN_AT))
    to = put_number(put_text(to, ',"store_timestamp":', 19), i64_at(record + STORED_AT))
    to = put_host(put_text(to, ',"born_host":"', 14), record + BORN_HOST_AT)
    to = put_host(put_text(to, '","store_host":"', 16), record + STORE_HOST_AT)
    to = put_number(put_text(to, '","reconsume_times":', 20), i32_at(record + RETRIES_AT))
    to = put_number(put_text(to, ',"prepared_transaction_offset":', 31), i64_at(record + PREPARED_AT))
    to = put_text(to, ',"properties":{', 15)
    to = put_properties(to, record + parts.properties, parts.properties_length, limit)
    if to == NULL:
        return NULL
    to = put_number(put_text(to, '},"body_crc":', 13), i32_at(record + CRC_AT))
    to = put_body(to, record + BODY_AT, parts.body_length, mode)
    to = put_hexadecimal(put_text(to, ',"offset_message_id":"', 22), record + STORE_HOST_AT, 8, UPPER)
    return put_text(put_hexadecimal(to, record + PHYSICAL_AT, 8, UPPER), '"}\n', 3)


def room_for(int64_t sizes, int64_t largest, int64_t count):
    """Returns the bytes that a target has for most records: lines that need more are left out.

    Args:
        sizes, largest: bytes of all records, and of the largest.
        count: number of records.
    """
    return 2 * sizes + count * FIXED + ESCAPED * largest


def json_lines(
    const uint8_t[::1] data, const int64_t[::1] positions, int mode, bint is_raw, uint8_t[::1] target, int64_t[::1] ends
):
    """Writes the lines of valid records; leaves out those that take more than one pass.

    These are IPv6 hosts, compressed bodies, topics and properties that are no UTF-8, repeated names of properties. Releases the
    interpreter's lock.

    Args:
        data: the buffer.
        positions: of the records in it.
        mode: of the bodies: 0 to leave them out, 1 text, 2 hexadecimal, 3 base64.
        is_raw: whether they are written as stored though they are compressed.
        target: output; see `room_for`.
        ends: output: position in the target after the line of each record, the one before if it has none.

    Returns:
        How many bytes were written.
    """
    cdef int64_t row, rows = len(positions), size = len(data), bits, total, ports, room = len(target), at = 0
    cdef const uint8_t *record
    cdef uint8_t *end
    if len(ends) != rows:
        raise ValueError("json_lines: arrays of different lengths")
    with nogil:
        for row in range(rows):
            if positions[row] < 0 or positions[row] + MIN_RECORD > size:
                with gil:
                    raise ValueError(f"json_lines: record {row} is not inside the buffer")
            record = &data[positions[row]]
            total, bits = i32_at(record), i32_at(record + SYS_FLAG_AT)
            ports = i32_at(record + BORN_HOST_AT + 4) | i32_at(record + STORE_HOST_AT + 4)
            if (
                total <= size - positions[row]
                and bits & (BORN_V6 | STORE_V6) == 0
                and 0 <= ports < PORTS
                and (is_raw or mode == NONE or bits & COMPRESSED == 0)
                and room - at >= FIXED + ESCAPED * total
            ):
                end = put_line(&target[at], record, total, &data[0] + size, mode)
                if end != NULL:
                    at = end - &target[0]
            ends[row] = at
    return at
