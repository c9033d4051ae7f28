"""Passes over a log, its queues and its index: what `records` and `verify` do record by record in Python.

All release the interpreter's lock. Nobody may change their arrays meanwhile; each thread uses arrays of its own.
"""

from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy
from posix.types cimport off_t

from mqtool.native.bytes cimport *

cdef extern from "unistd.h" nogil:
    Py_ssize_t pread(int descriptor, void *to, size_t count, off_t position)

# Names of properties, as `first_word` returns them.
cdef enum:
    TAGS = 0x53474154
    KEYS = 0x5359454b
    UNIQUE_KEY = 0x59454b5f51494e55
    INNER = 0x5f52454e4e49
    DELAY = 0x59414c4544
    RECORD_CRC = 0x2332334352435f5f

cdef enum:
    RECORD_CRC_SIZE = 20
    INNER_MASK = 0xFFFFFFFFFFFF
    MAX_STEP_BACK = 1000
    COUNTED = 1
    BATCH = 2
    LOOK_AHEAD = 64
    INLINE = 12


cdef inline const uint8_t *start_of(const uint8_t[::1] data) noexcept nogil:
    if len(data) == 0:
        return NULL
    return &data[0]


cdef inline const int64_t *numbers_of(const int64_t[::1] numbers) noexcept nogil:
    if len(numbers) == 0:
        return NULL
    return &numbers[0]


# -- checksums ---------------------------------------------------------------------------------------------------------


def crc_of(const uint8_t[::1] body not None):
    """Returns the CRC of a body as records store it."""
    return body_crc(start_of(body), len(body))


def crcs_of(const uint8_t[::1] data, const int64_t[::1] starts, const int64_t[::1] ends, int32_t[::1] crcs):
    """Computes the CRCs of ranges of a buffer, half-open; releases the interpreter's lock.

    Args:
        data: the buffer.
        starts, ends: positions, inside the buffer.
        crcs: output.
    """
    cdef int64_t row, rows = len(starts), size = len(data)
    if len(ends) != rows or len(crcs) != rows:
        raise ValueError("crcs_of: arrays of different lengths")
    with nogil:
        for row in range(rows):
            if starts[row] < 0 or ends[row] > size:
                with gil:
                    raise ValueError(f"crcs_of: range {row} is not inside the buffer")
            crcs[row] = body_crc(start_of(data) + starts[row], max(ends[row] - starts[row], 0))


# -- topics -----------------------------------------------------------------------------------------------------------

cdef struct Topic:
    int64_t start
    int64_t length
    int64_t number
    uint32_t key_hash
    uint32_t tag_hash


cdef class TopicSlots:
    """Topics by their bytes, in an open-addressing hash table; several entries may have one number.

    The passes read it without the interpreter's lock: call `learn` only between them.
    """

    cdef uint8_t *names
    cdef Topic *topics
    cdef int32_t *slots
    cdef int64_t used, room, count, capacity, mask

    def __cinit__(self):
        self.mask = 63
        self.slots = <int32_t *>_grown(NULL, 64 * sizeof(int32_t))
        for slot in range(64):
            self.slots[slot] = -1

    def __dealloc__(self):
        free(self.names)
        free(self.topics)
        free(self.slots)

    def __reduce__(self):
        raise TypeError("a table of topics is not copied to another process; make a new one there")

    def learn(self, bytes raw not None, int64_t number, uint32_t key_hash, uint32_t tag_hash):
        """Adds a new topic.

        Args:
            raw: its bytes.
            number: of the topic.
            key_hash, tag_hash: Java's hashes of what precedes keys and tags of the topic in the index.
        """
        cdef int64_t entry = self.count, length = len(raw), slot
        if self.used + length >= self.room:  # also for an empty name: memcpy takes no NULL
            self.names = <uint8_t *>_grown(self.names, 2 * self.room + length)
            self.room = 2 * self.room + length
        if self.count == self.capacity:
            self.topics = <Topic *>_grown(self.topics, (2 * self.capacity + 16) * sizeof(Topic))
            self.capacity = 2 * self.capacity + 16
        memcpy(self.names + self.used, <const char *>raw, length)
        self.topics[entry] = Topic(self.used, length, number, key_hash, tag_hash)
        self.used += length
        self.count += 1
        if 2 * self.count <= self.mask + 1:
            self._place(entry)
            return
        self.slots = <int32_t *>_grown(self.slots, 2 * (self.mask + 1) * sizeof(int32_t))
        self.mask = 2 * self.mask + 1
        for slot in range(self.mask + 1):
            self.slots[slot] = -1
        for entry in range(self.count):
            self._place(entry)

    cdef void _place(self, int64_t entry) noexcept:
        cdef Topic topic = self.topics[entry]
        cdef const uint8_t *name = self.names + topic.start
        cdef int64_t slot = <int64_t>topic_hash(name, topic.length, name + topic.length) & self.mask
        while self.slots[slot] >= 0:
            slot = (slot + 1) & self.mask
        self.slots[slot] = entry

    cdef inline bint is_entry(self, int64_t entry, const uint8_t *at, int64_t length, const uint8_t *limit) noexcept nogil:
        return self.topics[entry].length == length and is_equal(
            at, limit, self.names + self.topics[entry].start, self.names + self.used, length
        )

    cdef inline int64_t entry_of(self, const uint8_t *at, int64_t length, const uint8_t *limit, int64_t before) noexcept nogil:
        """Returns the entry of a topic, mostly that of the record before; -1 if it is not known."""
        if before >= 0 and self.is_entry(before, at, length, limit):
            return before
        cdef int64_t slot = <int64_t>topic_hash(at, length, limit) & self.mask
        while self.slots[slot] >= 0:
            if self.is_entry(self.slots[slot], at, length, limit):
                return self.slots[slot]
            slot = (slot + 1) & self.mask
        return -1


cdef void *_grown(void *memory, size_t size) except NULL:
    memory = realloc(memory, size if size else 1)
    if memory == NULL:
        raise MemoryError
    return memory


cdef uint64_t topic_hash(const uint8_t *at, int64_t length, const uint8_t *limit) noexcept nogil:
    cdef uint64_t value = length
    cdef int64_t done = 0
    while done < length:
        value = (value ^ first_word(at + done, length - done, limit)) * <uint64_t>0xD6E8FEB86659FD93
        value ^= value >> 32
        done += 8
    return value


# -- trailers: topic and properties ------------------------------------------------------------------------------------

cdef struct Slices:
    # positions of values; tag_start is -1 if the record needs more than one pass
    int64_t tag_start, tag_end, key_start, key_end, unique_start, unique_end
    bint has_high  # perhaps not all of them are ASCII


cdef inline uint32_t word_hash(uint64_t word) noexcept nogil:
    """Returns what eight bytes add to Java's String.hashCode: by pairs, quads and halves."""
    word = (word & <uint64_t>0x00FF00FF00FF00FF) * 31 + ((word >> 8) & <uint64_t>0x00FF00FF00FF00FF)
    word = (word & <uint64_t>0x0000FFFF0000FFFF) * 961 + ((word >> 16) & <uint64_t>0x0000FFFF0000FFFF)
    return <uint32_t>((word & <uint64_t>0xFFFFFFFF) * 923521 + (word >> 32))


cdef inline uint32_t hash_on(
    const uint8_t *at, int64_t length, const uint8_t *limit, uint32_t value
) noexcept nogil:
    """Continues Java's String.hashCode over further bytes, all ASCII."""
    cdef uint32_t factor
    while length >= 8:
        value = value * <uint32_t>0x94446F01 + word_hash(word_at(at))  # 31 ** 8
        at += 8
        length -= 8
    if length > 0:
        # zeros before the last bytes add nothing to the hash, so one step does for all of them
        factor = 31 if length & 1 else 1
        factor = factor * 961 if length & 2 else factor
        factor = factor * 923521 if length & 4 else factor
        value = value * factor + word_hash(first_word(at, length, limit) << (64 - 8 * length))
    return value


cdef uint32_t hash_of_units(const uint8_t *at, int64_t length, uint32_t value) noexcept nogil:
    """Continues Java's String.hashCode over further text, which is UTF-8; Java counts UTF-16 units."""
    cdef int64_t done = 0, size, place
    cdef uint32_t point
    while done < length:
        if at[done] < 0x80:
            value = value * 31 + at[done]
            done += 1
            continue
        size = sequence(at + done, length - done)
        point = at[done] & (0xFF >> (size + 1))
        for place in range(1, size):
            point = point << 6 | (at[done + place] & 0x3F)
        if size == 4:
            point -= 0x10000
            value = value * 31 + (0xD800 + (point >> 10))
            point = 0xDC00 + (point & 0x3FF)
        value = value * 31 + point
        done += size
    return value


cdef bint is_utf8(const uint8_t *data, int64_t at, int64_t end) noexcept nogil:
    cdef int64_t size
    while at < end:
        size = 1 if data[at] < 0x80 else sequence(data + at, end - at)
        if size == 0:
            return False
        at += size
    return True


cdef inline uint32_t text_hash(
    const uint8_t *at, int64_t length, const uint8_t *limit, bint has_high, uint32_t value
) noexcept nogil:
    """Continues Java's String.hashCode over further text, which is UTF-8."""
    return hash_of_units(at, length, value) if has_high else hash_on(at, length, limit, value)


cdef inline Slices property_slices(
    const uint8_t *data, int64_t start, int64_t end, const uint8_t *limit, bint is_schedule
) noexcept nogil:
    """Finds the values of TAGS, KEYS and UNIQ_KEY."""
    cdef Slices found = Slices(0, 0, 0, 0, 0, 0, False)
    cdef Properties properties = properties_from(start)
    cdef Property one
    cdef int64_t size
    cdef uint64_t name
    while next_property(data, end, limit, &properties, &one):
        size = one.split - one.start
        name = first_word(data + one.start, size, limit)
        # as in the broker's map, a later value replaces an earlier one
        if name == TAGS and size == 4:
            found.tag_start, found.tag_end = one.split + 1, one.close
        elif name == KEYS and size == 4:
            found.key_start, found.key_end = one.split + 1, one.close
        elif name == UNIQUE_KEY and size == 8:
            found.unique_start, found.unique_end = one.split + 1, one.close
        elif (name & INNER_MASK) == INNER or (name == DELAY and is_schedule):
            found.tag_start = -1
            return found
    found.has_high = properties.has_high
    if found.has_high and not (
        is_utf8(data, found.tag_start, found.tag_end)
        and is_utf8(data, found.key_start, found.key_end)
        and is_utf8(data, found.unique_start, found.unique_end)
    ):
        found.tag_start = -1
    return found


cdef inline int64_t put_key(
    const uint8_t *data,
    int64_t start,
    int64_t end,
    const uint8_t *limit,
    bint has_high,
    uint32_t before,
    int32_t *hashes,
    int64_t count,
) noexcept nogil:
    """Adds the hash of a key that is not empty, as `java.index_hash` of it and what precedes it."""
    cdef int32_t value
    if end > start:
        value = <int32_t>text_hash(data + start, end - start, limit, has_high, before)
        # Math.abs, and 0 for the smallest int
        hashes[count] = 0 if value == -INT_MAX - 1 else -value if value < 0 else value
        count += 1
    return count


cdef int64_t put_keys(
    const uint8_t *data, const uint8_t *limit, Slices slices, Topic *topic, bint index_tags, int32_t *hashes
) noexcept nogil:
    """Writes the hashes of a record's index keys in the broker's order; returns how many.

    The most are one for two bytes of KEYS, and two more.
    """
    cdef int64_t count = 0, at = slices.key_start, split
    count = put_key(data, slices.unique_start, slices.unique_end, limit, slices.has_high, topic.key_hash, hashes, count)
    while at < slices.key_end:
        split = byte_from(data, at, slices.key_end, limit, 0x20)
        count = put_key(data, at, split, limit, slices.has_high, topic.key_hash, hashes, count)
        at = split + 1
    if index_tags:
        count = put_key(data, slices.tag_start, slices.tag_end, limit, slices.has_high, topic.tag_hash, hashes, count)
    return count


def dispatch(
    const uint8_t[::1] data,
    const int64_t[::1] topic_start,
    const int64_t[::1] topic_length,
    const int64_t[::1] properties_start,
    const int64_t[::1] properties_length,
    TopicSlots topics not None,
    int64_t schedule,
    bint with_keys,
    bint index_tags,
    int64_t row,
    int64_t keys,
    int64_t others,
    int32_t[::1] numbers,
    int64_t[::1] tags_codes,
    int64_t[::1] key_rows,
    int32_t[::1] key_hashes,
    int64_t[::1] other_rows,
):
    """Reads topic and properties of records until one has an unknown topic.

    Args:
        data: the buffer.
        topic_start, topic_length, properties_start, properties_length: of each record, inside the buffer.
        topics: the known ones.
        schedule: number of the schedule topic.
        with_keys: whether to compute keys.
        index_tags: whether tags are indexed as keys.
        row, keys, others: numbers of records, keys and other records of an earlier call.
        numbers, tags_codes: outputs: topic number and tags code of each record.
        key_rows, key_hashes: outputs: record and hash of each key, in the broker's order; with room for
            `properties_length` + 2 of each record.
        other_rows: output: records that need more: text that is not UTF-8, properties that change the queue.

    Returns:
        `row`, `keys` and `others`, including this call.
    """
    cdef int64_t entry = -1, start, length, end, size = len(data), added
    cdef int64_t rows = len(topic_start), room = len(key_hashes)
    cdef const uint8_t *bytes = start_of(data)
    cdef const uint8_t *limit = bytes + size
    cdef Slices slices
    if not (
        len(topic_length) == len(properties_start) == len(properties_length) == len(numbers) == len(tags_codes) == rows
        and len(other_rows) >= rows
        and len(key_rows) == room
    ):
        raise ValueError("dispatch: arrays of different lengths")
    with nogil:
        while row < rows:
            start, length = topic_start[row], topic_length[row]
            end = properties_start[row] + properties_length[row]
            if start < 0 or length < 0 or start + length > properties_start[row] or properties_length[row] < 0 or end > size:
                with gil:
                    raise ValueError(f"dispatch: record {row} is not inside the buffer")
            entry = topics.entry_of(bytes + start, length, limit, entry)
            if entry < 0:
                break
            numbers[row] = topics.topics[entry].number
            slices = property_slices(bytes, properties_start[row], end, limit, numbers[row] == schedule)
            if slices.tag_start < 0:
                other_rows[others] = row
                others += 1
                row += 1
                continue
            tags_codes[row] = <int32_t>text_hash(
                bytes + slices.tag_start, slices.tag_end - slices.tag_start, limit, slices.has_high, 0
            )
            if with_keys:
                if keys + properties_length[row] + 2 > room:
                    with gil:
                        raise ValueError("dispatch: no room for keys")
                added = put_keys(bytes, limit, slices, &topics.topics[entry], index_tags, &key_hashes[keys])
                while added > 0:
                    key_rows[keys] = row
                    keys += 1
                    added -= 1
            row += 1
    return row, keys, others


# -- frames ------------------------------------------------------------------------------------------------------------


cdef inline bint read_record(
    const uint8_t *data, int64_t at, int64_t size, int64_t row, int32_t[:, ::1] ints, int64_t[:, ::1] longs
) noexcept nogil:
    """Reads the record of a size, which is in the buffer, into a row of tables; zeros if its lengths do not add up."""
    cdef int64_t total = i32_at(data + at), magic = i32_at(data + at + MAGIC_AT)
    cdef int64_t flags = i32_at(data + at + SYS_FLAG_AT)
    cdef int64_t stored_at = at + STORED_AT + (LONGER_V6 if flags & BORN_V6 else 0)
    cdef int64_t body = stored_at + BODY_AT - STORED_AT + (LONGER_V6 if flags & STORE_V6 else 0), column
    cdef Parts parts
    if total != size or (magic != MAGIC_V1 and magic != MAGIC_V2) or (
        not parts_of(data, body, at + size, magic == MAGIC_V2, &parts)
    ):
        for column in range(5):
            ints[column, row] = 0
        for column in range(10):
            longs[column, row] = 0
        return False
    ints[0, row], ints[1, row], ints[2, row] = total, magic, i32_at(data + at + CRC_AT)
    ints[3, row], ints[4, row] = i32_at(data + at + QUEUE_AT), flags
    longs[0, row], longs[1, row] = i64_at(data + at + OFFSET_AT), i64_at(data + at + PHYSICAL_AT)
    longs[2, row], longs[3, row] = i64_at(data + at + BORN_AT), i64_at(data + stored_at)
    longs[4, row], longs[5, row], longs[6, row] = body, parts.body_length, parts.topic
    longs[7, row], longs[8, row], longs[9, row] = parts.topic_length, parts.properties, parts.properties_length
    return True


def scan(
    const uint8_t[::1] data,
    int64_t start,
    bint with_crc,
    int64_t[::1] positions,
    int32_t[:, ::1] ints,
    int64_t[:, ::1] longs,
    int32_t[::1] crcs,
):
    """Follows total_size from record to record, as `records.frame_scan` does, and reads each record in the same pass.

    Args:
        data: the bytes.
        start: position of the first frame.
        with_crc: whether to compute CRCs.
        positions: output: position of each frame.
        ints, longs: outputs: rows of `records.frames.INTS`, of `LONGS` and `PLACES`.
        crcs: output: CRC of each body, of the records whose lengths add up.

    Returns:
        The number of records.
    """
    cdef int64_t count = 0, at = start, size = len(data), room = len(positions), total, magic
    cdef const uint8_t *bytes = start_of(data)
    if start < 0 or ints.shape[0] != 5 or longs.shape[0] != 10 or ints.shape[1] < room or longs.shape[1] < room:
        raise ValueError("scan: outputs are too small")
    if with_crc and len(crcs) < room:
        raise ValueError("scan: outputs are too small")
    with nogil:
        while at + FRAME <= size and count < room:
            total, magic = i32_at(bytes + at), i32_at(bytes + at + MAGIC_AT)
            if (magic != MAGIC_V1 and magic != MAGIC_V2) or total < MIN_RECORD or total > size - at:
                break
            if read_record(bytes, at, total, count, ints, longs) and with_crc:
                crcs[count] = body_crc(bytes + longs[4, count], longs[5, count])
            positions[count] = at
            count += 1
            at += total
    return count


def read(
    const uint8_t[::1] data,
    const int64_t[::1] positions,
    const int64_t[::1] sizes,
    int32_t[:, ::1] ints,
    int64_t[:, ::1] longs,
):
    """Reads records at given positions.

    Args:
        data: the bytes.
        positions, sizes: of the records.
        ints, longs: outputs, as for `scan`; zeros where no record of that size is whose lengths add up.
    """
    cdef int64_t row, rows = len(positions), size = len(data)
    cdef const uint8_t *bytes = start_of(data)
    if len(sizes) != rows or ints.shape[0] != 5 or longs.shape[0] != 10 or ints.shape[1] < rows or longs.shape[1] < rows:
        raise ValueError("read: arrays of different lengths")
    with nogil:
        for row in range(rows):
            if positions[row] < 0 or sizes[row] < MIN_RECORD or sizes[row] > size - positions[row]:
                ints[:, row] = 0
                longs[:, row] = 0
            else:
                read_record(bytes, positions[row], sizes[row], row, ints, longs)


def properties(
    const uint8_t[::1] data, const int64_t[::1] starts, const int64_t[::1] lengths, int64_t[:, ::1] slices
):
    """Finds the names and values of all properties of some records, as `formats.properties.pairs` does.

    Args:
        data: the buffer.
        starts, lengths: of the records' properties, inside the buffer.
        slices: output: for each property the number of its record, start and length of its name, and of its value.

    Returns:
        The number of properties.
    """
    cdef int64_t row, rows = len(starts), size = len(data), count = 0, room = slices.shape[1]
    cdef const uint8_t *bytes = start_of(data)
    cdef Properties all
    cdef Property one
    if len(lengths) != rows or slices.shape[0] != 5:
        raise ValueError("properties: arrays of different lengths")
    with nogil:
        for row in range(rows):
            if starts[row] < 0 or lengths[row] < 0 or lengths[row] > size - starts[row]:
                with gil:
                    raise ValueError(f"properties: record {row} is not inside the buffer")
            all = properties_from(starts[row])
            while next_property(bytes, starts[row] + lengths[row], bytes + size, &all, &one):
                if count == room:
                    with gil:
                        raise ValueError("properties: no room")
                slices[0, count], slices[1, count], slices[2, count] = row, one.start, one.split - one.start
                slices[3, count], slices[4, count] = one.split + 1, one.close - one.split - 1
                count += 1
    return count


def views(const uint8_t[::1] data, const int64_t[::1] starts, const int64_t[::1] lengths, uint64_t[:, ::1] words):
    """Makes Arrow's views of ranges of a buffer, as `records.columns.binary_view` does.

    Args:
        data: the buffer.
        starts, lengths: of the ranges, inside the buffer; a negative length is that of an empty one.
        words: output: the 16 bytes of each view.
    """
    cdef int64_t row, length, rows = len(starts), size = len(data)
    cdef const uint8_t *bytes = start_of(data)
    cdef uint8_t *view
    if len(lengths) != rows or words.shape[0] != rows or words.shape[1] != 2:
        raise ValueError("views: arrays of different lengths")
    with nogil:
        for row in range(rows):
            length = lengths[row] if lengths[row] > 0 else 0
            if length and (starts[row] < 0 or length > size - starts[row]):
                with gil:
                    raise ValueError(f"views: range {row} is not inside the buffer")
            words[row, 0], words[row, 1] = <uint64_t>length, 0
            view = <uint8_t *>&words[row, 0]
            if length > INLINE:
                memcpy(view + 4, bytes + starts[row], 4)
                words[row, 1] = <uint64_t>starts[row] << 32
            elif length:
                memcpy(view + 4, bytes + starts[row], length)


def group(
    const uint8_t[::1] data, const int64_t[::1] starts, const int64_t[::1] lengths, int64_t[::1] firsts, int32_t[::1] codes
):
    """Numbers the distinct ranges of a buffer, such as topics, in the order in which they appear.

    Args:
        data: the buffer.
        starts, lengths: of the ranges, inside the buffer.
        firsts: output: number of the first range of each kind.
        codes: output: for each range the number of its kind.

    Returns:
        How many kinds there are; -1 if they are more than `firsts` has room for.
    """
    cdef int64_t known = 0, row, start, length, rows = len(starts), size = len(data), place, mask = 1
    cdef int32_t code = -1
    cdef const uint8_t *bytes = start_of(data)
    cdef const uint8_t *limit = bytes + size
    cdef int32_t *table
    if len(lengths) != rows or len(codes) != rows:
        raise ValueError("group: arrays of different lengths")
    while mask < 2 * len(firsts):
        mask *= 2
    table = <int32_t *>_grown(NULL, mask * sizeof(int32_t))
    for place in range(mask):
        table[place] = -1
    mask -= 1
    try:
        for row in range(rows):
            start, length = starts[row], lengths[row]
            if start < 0 or length < 0 or start + length > size:
                raise ValueError(f"group: range {row} is not inside the buffer")
            if code < 0 or lengths[firsts[code]] != length or memcmp(bytes + start, bytes + starts[firsts[code]], length):
                place = <int64_t>topic_hash(bytes + start, length, limit) & mask
                code = table[place]
                while code >= 0 and (
                    lengths[firsts[code]] != length or memcmp(bytes + start, bytes + starts[firsts[code]], length)
                ):
                    place = (place + 1) & mask
                    code = table[place]
                if code < 0:
                    if known == len(firsts):
                        return -1
                    code = known
                    table[place], firsts[known] = code, row
                    known += 1
            codes[row] = code
    finally:
        free(table)
    return known


# -- passes that read a file -------------------------------------------------------------------------------------------

cdef struct File:
    int descriptor
    int64_t base  # physical offset of the file's first byte
    int64_t end  # position after which no record may end
    int64_t stop  # position from which no window is read
    uint8_t *window
    int64_t room
    int64_t start  # position of the window's first byte
    int64_t filled  # bytes in the window


cdef struct Head:
    int64_t flags, queue_id, stored, body_length, topic, topic_length, properties, properties_length


cdef inline int64_t record_in(File *file, int64_t position) noexcept nogil:
    """Finds the record at a position in the window; reads a new window unless this one contains all of the record.

    Returns:
        total_size; 0 without a complete record, also after an error, as who reads on finds it again and reports it;
        -1 if no further window is to be read.
    """
    cdef int64_t at = position - file.start, total = 0, count
    cdef bint is_longer
    if at + MIN_RECORD <= file.filled:
        total = i32_at(file.window + at)
    if at + MIN_RECORD > file.filled or at + total > file.filled:
        if position >= file.stop:
            return -1
        is_longer = file.filled > 0 and at == 0  # than a window, or the file ends
        file.start, file.filled, total = position, 0, 0
        count = min(file.room, file.end - position)
        if not is_longer and count >= MIN_RECORD:
            file.filled = pread(file.descriptor, file.window, count, position)
            if file.filled < MIN_RECORD:
                file.filled = 0
        if file.filled > 0:
            total = i32_at(file.window)
            total = total if total <= file.filled else 0
    return max(total, 0)


cdef inline bint head_of(const uint8_t *record, int64_t total, int64_t physical, int64_t refused, Head *head) noexcept nogil:
    """Reads the fields of a record of version 1; returns whether they are plain.

    Args:
        record: all of it is in the buffer.
        total: its size.
        physical: its physical offset.
        refused: bits of sys_flag that are not plain; those of IPv6 hosts never are.
        head: output; positions are relative to the record.
    """
    cdef Parts parts
    head.flags = i32_at(record + SYS_FLAG_AT)
    head.queue_id, head.stored = i32_at(record + QUEUE_AT), i64_at(record + STORED_AT)
    cdef int64_t ports = i32_at(record + STORED_AT - 4) | i32_at(record + RETRIES_AT - 4)
    if not parts_of(record, BODY_AT, total, False, &parts):
        return False
    head.body_length, head.topic, head.topic_length = parts.body_length, parts.topic, parts.topic_length
    head.properties, head.properties_length = parts.properties, parts.properties_length
    return (
        head.flags & (BORN_V6 | STORE_V6 | refused) == 0
        and i64_at(record + PHYSICAL_AT) == physical
        and head.queue_id >= 0
        and head.stored > 0
        and i64_at(record + BORN_AT) >= 0
        and 0 <= ports < PORTS
    )


def field_records(
    int descriptor,
    int64_t base,
    int64_t position,
    int64_t end,
    int64_t stop,
    uint8_t[::1] window,
    int64_t[::1] last_window,
    TopicSlots topics not None,
    int64_t latest,
    bint with_crc,
    int64_t taken,
    int64_t[::1] positions,
    int32_t[:, ::1] ints,
    int64_t[:, ::1] longs,
    int32_t[::1] codes,
):
    """Reads fields of plain records, as many bytes as are asked for, or as many records as there is room for.

    Args:
        descriptor: of the file.
        base: physical offset of its first byte.
        position, end, stop: of the first record; after which no record may end; from which no window is read.
        window: memory for the bytes that are read at a time.
        last_window: position of the window's first byte, and how many bytes it holds; updated.
        topics: the known ones.
        latest: maximum of a timestamp in milliseconds.
        with_crc: whether a record with another CRC of the body than the stored one is not plain.
        taken: records that the outputs hold already.
        positions, ints, longs, codes: outputs: position in the file; rows of `tables.INTS` and `tables.LONGS`; number
            of the topic.

    Returns:
        How many records the outputs hold; the position after the last one; bytes read. If the topic of the record
        there is not known, its position in the window, and its length; otherwise -1 and 0.
    """
    cdef int64_t count = taken, room = len(codes), bytes_read = 0, entry = -1, total, at, born, crc, start_before, filled_before
    cdef int64_t unknown_at = -1, unknown_length = 0
    cdef Head head
    cdef const uint8_t *record
    cdef File file = File(descriptor, base, end, stop, &window[0], len(window), last_window[0], last_window[1])
    if file.start > position or file.filled > file.room:
        file.start, file.filled = position, 0
    if ints.shape[0] != 5 or longs.shape[0] != 4 or len(positions) < room or ints.shape[1] < room or longs.shape[1] < room:
        raise ValueError("field_records: outputs are too small")
    with nogil:
        while count < room:
            start_before, filled_before = file.start, file.filled
            total = record_in(&file, position)
            if file.start != start_before or file.filled != filled_before:
                bytes_read += file.filled
            at = position - file.start
            record = file.window + at
            if total < MIN_RECORD or i32_at(record + MAGIC_AT) != MAGIC_V1:
                break
            if not head_of(record, total, base + position, INNER_BATCH, &head):
                break
            born, crc = i64_at(record + BORN_AT), i32_at(record + CRC_AT)
            if head.stored > latest or born > latest:
                break
            if with_crc and head.body_length > 0 and body_crc(record + BODY_AT, head.body_length) != crc:
                break
            entry = topics.entry_of(record + head.topic, head.topic_length, file.window + file.filled, entry)
            if entry < 0:
                unknown_at, unknown_length = at + head.topic, head.topic_length
                break
            positions[count], codes[count] = position, topics.topics[entry].number
            ints[0, count], ints[1, count], ints[2, count] = total, MAGIC_V1, crc
            ints[3, count], ints[4, count] = head.queue_id, head.flags
            longs[0, count], longs[1, count] = i64_at(record + OFFSET_AT), base + position
            longs[2, count], longs[3, count] = born, head.stored
            count += 1
            position += total
    last_window[0], last_window[1] = file.start, file.filled
    return count, position, bytes_read, unknown_at, unknown_length


cdef inline uint64_t finished(uint64_t mixed) noexcept nogil:
    mixed ^= mixed >> 32
    mixed *= <uint64_t>0x94D049BB133111EB
    return mixed ^ (mixed >> 32)


cdef inline uint64_t mixed_unit(
    int64_t physical, int64_t offset, int64_t size, int64_t tags, uint64_t key
) noexcept nogil:
    """Returns `verify.checksums.mix_units` of one unit."""
    return finished(
        <uint64_t>physical * <uint64_t>0x9E3779B97F4A7C15
        + <uint64_t>offset * <uint64_t>0xC2B2AE3D27D4EB4F
        + <uint64_t>size * <uint64_t>0xFF51AFD7ED558CCD
        + <uint64_t>tags * <uint64_t>0xD6E8FEB86659FD93
        + key
    )


cdef inline uint64_t mixed_entry(int64_t physical, int64_t key_hash, int64_t seconds) noexcept nogil:
    """Returns `verify.checksums.mix_entries` of one entry or key."""
    return finished(
        <uint64_t>physical * <uint64_t>0x9E3779B97F4A7C15
        + <uint64_t>key_hash * <uint64_t>0xD6E8FEB86659FD93
        + <uint64_t>seconds * <uint64_t>0xE7037ED1A0B428DB
    )


def plain_records(
    int descriptor,
    int64_t base,
    int64_t position,
    int64_t end,
    int64_t stop,
    uint8_t[::1] window,
    TopicSlots topics not None,
    int64_t schedule,
    bint with_keys,
    bint index_tags,
    queue_table,
    const uint64_t[::1] queue_keys,
    const uint8_t[::1] known,
    int64_t[::1] first,
    int64_t[::1] first_at,
    int64_t[::1] following,
    int64_t[::1] last_at,
    int64_t[::1] messages,
    const int64_t[::1] index_starts,
    const int64_t[::1] index_begins,
    int64_t shift,
    uint64_t[::1] unit_total,
    int64_t[::1] unit_count,
    uint64_t[::1] key_total,
    int64_t[::1] key_count,
    int64_t[::1] first_record,
    int32_t[::1] hashes,
    int64_t[::1] state,
):
    """Reads records and makes all checks of `verify` at once, until one is not plain.

    What is not plain, and what follows it, is left to the rules over `Frames`; only these say what is wrong. Each
    window is copied out of the page cache into memory that stays in the processor's cache, and all questions about a
    record are asked while it is there.

    Args:
        descriptor, base, position, end, stop, window, topics: as for `field_records`.
        schedule, with_keys, index_tags: as for `dispatch`.
        queue_table: numbers of the queues by topic and queue id: values, numbers, shift (`records.number_sets.WordTable`).
        queue_keys, known: by number of the queue: `verify.checksums.queue_key`, and bits of `verify.segment.KnownQueues`.
        first, first_at, following, last_at, messages: columns of `verify.record_rules.QueueSpan`; updated.
        index_starts, index_begins: physical offset of each index file's first entry, ascending, and the begin
            timestamp in its header.
        shift: bits of a bucket.
        unit_total, unit_count, key_total, key_count, first_record: total and count of units, total and count of keys,
            and the physical offset of the first record, by bucket of the file; updated.
        hashes: room for the keys of one record, 2 ** 15.
        state: `verify.segment.State`, updated.

    Returns:
        Position after the last record that was read; whether what is there was not looked at.
    """
    cdef const uint64_t[::1] values = queue_table[0]
    cdef const int32_t[::1] numbers = queue_table[1]
    cdef int table_shift = queue_table[2]
    cdef uint64_t queue_value, slot, table_mask = len(values) - 1, key_sum
    cdef int64_t taken = 0, newest = state[1], seen = state[2], entry = -1, index_file = -1, files = len(index_starts)
    cdef int64_t time_before = state[7], before_at = state[8], time_last = state[9], record_at = state[10]
    cdef int64_t step_before = time_last - time_before if seen > 1 else 0, step
    cdef int64_t total, physical, bucket, buckets = len(unit_total), queue, offset, tags_code, begin, seconds, keys, key
    cdef bint is_plain = True
    cdef Head head
    cdef Slices slices
    cdef const uint8_t *record
    cdef const uint8_t *limit
    cdef File file = File(descriptor, base, end, stop, &window[0], len(window), position, 0)
    if not (buckets == len(unit_count) == len(key_total) == len(key_count) == len(first_record)) or (
        len(state) < 11 or len(hashes) < 1 << 15 or len(values) != len(numbers) or files != len(index_begins)
    ):
        raise ValueError("plain_records: arrays of different lengths")
    if not (len(queue_keys) <= len(known) and len(known) <= len(first)) or not (
        len(first) == len(first_at) == len(following) == len(last_at) == len(messages)
    ):
        raise ValueError("plain_records: arrays of different lengths")
    with nogil:
        while True:
            total = record_in(&file, position)
            if total < 0:
                break
            is_plain = False
            record, limit = file.window + (position - file.start), file.window + file.filled
            if total < MIN_RECORD or i32_at(record + MAGIC_AT) != MAGIC_V1:
                break
            physical = base + position
            if not head_of(record, total, physical, COMPRESSED, &head):
                break
            # of a spike one step leads back by more than the limit; it and the step after it are not plain
            step = head.stored - time_last if seen > 0 else 0
            if step < -MAX_STEP_BACK or (step_before < -MAX_STEP_BACK and step > MAX_STEP_BACK):
                break
            if head.body_length > 0 and body_crc(record + BODY_AT, head.body_length) != i32_at(record + CRC_AT):
                break
            entry = topics.entry_of(record + head.topic, head.topic_length, limit, entry)
            if entry < 0 or (
                head.properties_length >= RECORD_CRC_SIZE
                and word_at(record + head.properties + head.properties_length - RECORD_CRC_SIZE) == RECORD_CRC
            ):
                break
            slices = property_slices(
                record, head.properties, total, limit, topics.topics[entry].number == schedule
            )
            bucket = position >> shift
            if slices.tag_start < 0 or bucket >= buckets:
                break
            if head.flags & PREPARED == 0:
                queue_value = <uint64_t>topics.topics[entry].number << 32 | <uint64_t>head.queue_id
                slot = (queue_value * <uint64_t>0x9E3779B97F4A7C15) >> table_shift
                while numbers[slot] >= 0 and values[slot] != queue_value:
                    slot = (slot + 1) & table_mask
                queue, offset = numbers[slot], i64_at(record + OFFSET_AT)
                if queue < 0 or queue >= len(queue_keys) or known[queue] & BATCH:
                    break
                if messages[queue] and following[queue] != offset:
                    break
                if messages[queue] == 0:
                    first[queue], first_at[queue] = offset, physical
                following[queue], last_at[queue] = offset + 1, physical
                messages[queue] += 1
                if known[queue] & COUNTED:
                    tags_code = <int32_t>text_hash(
                        record + slices.tag_start, slices.tag_end - slices.tag_start, limit, slices.has_high, 0
                    )
                    unit_total[bucket] += mixed_unit(physical, offset, total, tags_code, queue_keys[queue])
                    unit_count[bucket] += 1
            # nothing ends the pass from here on: the record counts
            if with_keys and head.flags & ROLLBACK != ROLLBACK:
                while index_file + 1 < files and index_starts[index_file + 1] <= physical:
                    index_file += 1
                begin = index_begins[max(index_file, 0)] if files else 0
                seconds = min(max((head.stored - begin) // 1000, 0), INT_MAX) if begin > 0 else 0
                keys = put_keys(record, limit, slices, &topics.topics[entry], index_tags, &hashes[0])
                key_sum = 0
                for key in range(keys):
                    key_sum += mixed_entry(physical, hashes[key], seconds)
                key_total[bucket] += key_sum
                key_count[bucket] += keys
            if first_record[bucket] < 0:
                first_record[bucket] = physical
            if taken < 2:
                state[3 + 2 * taken], state[4 + 2 * taken] = head.stored, physical
            time_before, before_at, time_last, record_at = time_last, record_at, head.stored, physical
            step_before = step
            seen += 1
            newest = max(newest, head.stored)
            taken += 1
            position += total
            is_plain = True
    state[0], state[1], state[2] = taken, newest, min(seen, 2)
    state[7], state[8], state[9], state[10] = time_before, before_at, time_last, record_at
    return position, is_plain


# -- units and entries -------------------------------------------------------------------------------------------------

cdef struct Buckets:
    const int64_t *bases
    const int64_t *ends
    const int64_t *first_buckets
    int64_t segments
    int64_t end
    int shift
    int64_t segment
    # the bucket that was found last, and the physical offsets in it
    int64_t bucket
    int64_t low
    int64_t high


cdef bint find_bucket(Buckets *where, int64_t physical) noexcept nogil:
    """Finds the bucket of a physical offset; returns False if it is not in the log. Offsets mostly ascend."""
    where.low = where.high = 0
    if where.segments == 0:
        return False
    if physical < where.bases[where.segment]:
        where.segment = 0
    while where.segment < where.segments - 1 and physical >= where.ends[where.segment]:
        where.segment += 1
    cdef int64_t base = where.bases[where.segment], limit = min(where.ends[where.segment], where.end), number
    if base <= physical < limit:
        number = (physical - base) >> where.shift
        where.bucket, where.low = where.first_buckets[where.segment] + number, base + (number << where.shift)
        where.high = min(where.low + (<int64_t>1 << where.shift), limit)
    return where.low < where.high


cdef Buckets buckets_of(const int64_t[::1] bases, const int64_t[::1] ends, const int64_t[::1] first_buckets, int64_t end, int shift, int64_t size) except *:
    cdef int64_t segments = len(bases)
    if len(ends) != segments or len(first_buckets) <= segments or first_buckets[segments] > size:
        raise ValueError("sums: arrays of different lengths")
    return Buckets(
        numbers_of(bases),
        numbers_of(ends),
        &first_buckets[0],
        segments,
        end,
        shift,
        0,
        0,
        0,
        0,
    )


cdef int64_t add_units(
    const uint8_t *data, int64_t units, int64_t start, uint64_t key, Buckets where, uint64_t[::1] total, int64_t[::1] count, int64_t *seen, int64_t sign
) noexcept nogil:
    """Adds units to the sums until one is not plain, or takes them away again; returns how many."""
    cdef int64_t taken = 0, summed = 0, physical, size, tags
    cdef uint64_t mixed = 0
    cdef const uint8_t *unit = data
    seen[0], seen[1], seen[2] = 0x7FFFFFFFFFFFFFFF, -1, -1
    while taken < units:
        physical, size, tags = i64_at(unit), i32_at(unit + UNIT_SIZE_AT), i64_at(unit + UNIT_TAGS_AT)
        if size < MIN_RECORD or size >= 1 << 28 or tags <= <int64_t>-2147483649:  # an address in an extension
            break
        if physical < where.low or physical >= where.high:
            if taken > summed:
                total[where.bucket] += mixed * <uint64_t>sign
                count[where.bucket] += (taken - summed) * sign
            mixed, summed = 0, taken
            if not find_bucket(&where, physical):
                break
        mixed += mixed_unit(physical, start + taken, size, tags, key)
        seen[0], seen[1], seen[2] = min(seen[0], physical), max(seen[1], physical), max(seen[2], physical + size)
        taken += 1
        unit += UNIT
    if taken > summed:
        total[where.bucket] += mixed * <uint64_t>sign
        count[where.bucket] += (taken - summed) * sign
    return taken


def plain_units(
    const uint8_t[::1] data,
    int64_t start,
    uint64_t key,
    int64_t end,
    const int64_t[::1] bases,
    const int64_t[::1] ends,
    const int64_t[::1] first_buckets,
    int shift,
    uint64_t[::1] total,
    int64_t[::1] count,
):
    """Adds units of a ConsumeQueue to the sums if each refers to a record of the log; otherwise changes nothing.

    Args:
        data: the units' bytes.
        start: queue offset of the first.
        key: `verify.checksums.queue_key` of the queue.
        end: of the log, physical offset.
        bases, ends, first_buckets: of the segments: physical offsets, number of the first bucket.
        shift: bits of a bucket.
        total, count: sums by bucket.

    Returns:
        Minimum and maximum physical offset, and the maximum end of a record; None if nothing was added.
    """
    cdef int64_t units = len(data) // UNIT, taken
    cdef int64_t seen[3]
    cdef int64_t unused[3]
    cdef Buckets where = buckets_of(bases, ends, first_buckets, end, shift, min(len(total), len(count)))
    cdef const uint8_t *bytes = start_of(data)
    with nogil:
        taken = add_units(bytes, units, start, key, where, total, count, seen, 1)
        if taken < units:
            add_units(bytes, taken, start, key, where, total, count, unused, -1)
    return (seen[0], seen[1], seen[2]) if taken == units else None


cdef inline int64_t remainder(int64_t value, int64_t divisor, double inverse) noexcept nogil:
    """Returns value % divisor for numbers of 31 bits, from 1 / divisor: a division takes the time of ten additions."""
    cdef int64_t rest = value - <int64_t>(<double>value * inverse) * divisor  # the quotient is one off at most
    rest = rest + divisor if rest < 0 else rest
    return rest - divisor if rest >= divisor else rest


def plain_entries(
    const uint8_t[::1] data,
    int64_t first,
    int32_t[::1] heads,
    int64_t end,
    const int64_t[::1] bases,
    const int64_t[::1] ends,
    const int64_t[::1] first_buckets,
    int shift,
    uint64_t[::1] total,
    int64_t[::1] count,
):
    """Follows chains and adds index entries to the sums until one contradicts its slot or refers to no record.

    The heads lie all over some 20 MB. Each is requested 64 entries before it is needed: without that every entry waits
    for memory, and 16 entries before, which takes half as long again, some still do.

    Args:
        data: the entries' bytes.
        first: number of the first.
        heads: number of the newest entry of each slot; updated.
        end, bases, ends, first_buckets, shift, total, count: as for `plain_units`.

    Returns:
        How many were taken, and their minimum and maximum physical offset.
    """
    cdef int64_t entries = len(data) // INDEX_ENTRY, slots = len(heads), taken = 0, summed = 0
    cdef int64_t lowest = 0x7FFFFFFFFFFFFFFF, highest = -1, key_hash, physical, slot
    cdef double inverse = 1.0 / slots if slots else 0.0
    cdef uint64_t mixed = 0
    cdef const uint8_t *entry
    cdef Buckets where = buckets_of(bases, ends, first_buckets, end, shift, min(len(total), len(count)))
    with nogil:
        while taken < entries and slots > 0:
            if taken + LOOK_AHEAD < entries:
                key_hash = i32_at(&data[(taken + LOOK_AHEAD) * INDEX_ENTRY]) & INT_MAX
                fetch_ahead(&heads[remainder(key_hash, slots, inverse)])
            entry = &data[taken * INDEX_ENTRY]
            key_hash, physical = i32_at(entry), i64_at(entry + ENTRY_PHYSICAL_AT)
            if key_hash < 0:
                break
            slot = remainder(key_hash, slots, inverse)
            if heads[slot] != i32_at(entry + ENTRY_PREVIOUS_AT):
                break
            if physical < where.low or physical >= where.high:
                if taken > summed:
                    total[where.bucket] += mixed
                    count[where.bucket] += taken - summed
                mixed, summed = 0, taken
                if not find_bucket(&where, physical):
                    break
            heads[slot] = first + taken
            mixed += mixed_entry(physical, key_hash, i32_at(entry + ENTRY_TIME_AT))
            lowest, highest = min(lowest, physical), max(highest, physical)
            taken += 1
        if taken > summed:
            total[where.bucket] += mixed
            count[where.bucket] += taken - summed
    return taken, lowest, highest
