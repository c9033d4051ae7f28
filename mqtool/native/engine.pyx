"""The engine's puts, gets and queries of plain messages: what `engine.write` and `engine.read` do for all.

Each function returns None, changing nothing, for what is not plain, and the caller asks the form for all messages.

Threads: any thread may call anything. Puts take the append lock of the log, as those in Python do, and keep the
interpreter's lock while they write. Gets and queries only read. `encode` and the copies of records release the
interpreter's lock for what takes long.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItem
from cpython.object cimport PyObject, PyTypeObject
from cpython.memoryview cimport PyMemoryView_GET_BUFFER
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from libc.string cimport memcpy
from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec

from mqtool.native.bytes cimport *

cdef extern from "Python.h":
    object new_instance "PyType_GenericAlloc"(PyTypeObject *kind, Py_ssize_t items)
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL
    bint PyUnicode_IS_ASCII "PyUnicode_IS_COMPACT_ASCII"(object text)

cdef extern from "string.h" nogil:
    void *memmem(const void *data, size_t size, const void *part, size_t part_size)

cdef enum:
    LONGEST_PROPERTIES = 0x7FFF
    LENGTH_SIZE = 2
    BATCHED = 20  # a message in a client's batch: size, magic code, CRC, flag, size of the body
    BATCHED_FLAG_AT = 12
    BATCHED_LENGTH_AT = 16
    MOST_UNITS = 256  # that a plain get examines
    LINE = 64
    COPY_AHEAD = 8


cdef inline tuple named(object kind, Py_ssize_t count):
    """Returns a new named tuple whose fields are to be set."""
    return <tuple>new_instance(<PyTypeObject *>kind, count)


cdef int require_fields(object kind, tuple names) except -1:
    """Raises TypeError unless a named tuple, which is read or filled by position, has these fields."""
    if kind._fields != names:
        raise TypeError(f"expected the fields {names}, found {kind._fields}")
    return 0


cdef inline void fill(tuple fields, Py_ssize_t place, object value) noexcept:
    Py_INCREF(value)
    PyTuple_SET_ITEM(fields, place, value)


cdef inline bint is_int32(int64_t value) noexcept nogil:
    return -INT_MAX - 1 <= value <= INT_MAX


# -- puts --------------------------------------------------------------------------------------------------------------

cdef struct Fields:
    # of a record, beside those that depend on its queue and its place
    int64_t flag, sys_flag, born, now, reconsumed, prepared
    const uint8_t *born_host
    const uint8_t *store_host


cdef int64_t put_record(
    uint8_t *to,
    int64_t magic_code,
    int64_t queue_id,
    const uint8_t *topic,
    int64_t topic_size,
    const uint8_t *body,
    int64_t size,
    const uint8_t *properties,
    int64_t room,
    int64_t offset,
    int64_t physical,
    const Fields *fields,
) noexcept nogil:
    """Writes one record with IPv4 hosts and returns its size; there must be room. As `commit_log.join_record`.

    Variable parts first, then the fixed fields: a record cut short by a kill of the process has no magic code, or
    fails its other checks, and is not read as a record.
    """
    cdef uint8_t *end = to + BODY_AT + size
    memcpy(to + BODY_AT, body, size)
    memcpy(end, topic, topic_size)
    end += topic_size
    put_i16(end, room)
    memcpy(end + LENGTH_SIZE, properties, room)
    end += LENGTH_SIZE + room
    memcpy(to + BORN_HOST_AT, fields.born_host, HOST)
    memcpy(to + STORE_HOST_AT, fields.store_host, HOST)
    put_i32(to + LENGTH_AT, size)
    put_i64(to + PREPARED_AT, fields.prepared)
    put_i32(to + RETRIES_AT, fields.reconsumed)
    put_i64(to + STORED_AT, fields.now)
    put_i64(to + BORN_AT, fields.born)
    put_i32(to + SYS_FLAG_AT, fields.sys_flag)
    put_i64(to + PHYSICAL_AT, physical)
    put_i64(to + OFFSET_AT, offset)
    put_i32(to + FLAG_AT, fields.flag)
    put_i32(to + QUEUE_AT, queue_id)
    put_i32(to + CRC_AT, body_crc(body, size))
    keep_order()
    put_i32(to + MAGIC_AT, magic_code)
    put_i32(to, end - to)
    return end - to


cdef struct Piece:
    # body and properties of a message
    const uint8_t *body
    const uint8_t *properties
    int64_t size, room, flag


cdef struct Source:
    # of the messages of a put: how many, bytes of their bodies and properties, a client's batch
    int64_t rows, size
    const uint8_t *data
    int64_t end


cdef class Appender:
    """Appends plain messages to one log."""

    cdef object log, flags, lock_free, unlock, clock, result_kind, status, append_status, message_kind
    cdef dict states
    cdef object born_host, store_host
    cdef object buffer  # of the segment that was written last
    cdef uint8_t[::1] window
    cdef int64_t slow_bits

    def __init__(self, log, flags, clock, result_kind, status, append_status, message_kind, int64_t slow_bits):
        """Takes what a put reads and returns.

        Args:
            log: `engine.write.commit_log.CommitLog`.
            flags: `engine.statuses.RunningFlags`.
            clock: function that returns ms since epoch; None for the system's clock.
            result_kind, status, append_status: PutResult, and its statuses of a message that is stored.
            message_kind: BatchMessage.
            slow_bits: bits of a system flag that are not plain.
        """
        require_fields(
            result_kind,
            (
                "status",
                "append_status",
                "physical_offset",
                "size",
                "queue_offset",
                "store_timestamp",
                "store_host",
                "physical_offsets",
            ),
        )
        require_fields(message_kind, ("body", "properties", "flag"))
        self.log, self.flags, self.clock = log, flags, clock
        self.lock_free, self.unlock = log.lock.acquire, log.lock.release
        self.states = log.offsets.states
        self.born_host, self.store_host = log.born_host, log.store_host
        self.result_kind, self.status, self.append_status = result_kind, status, append_status
        self.message_kind, self.slow_bits = message_kind, slow_bits
        self.buffer = None

    cdef int64_t now(self) except -1:
        cdef timespec time
        if self.clock is not None:
            return self.clock()
        clock_gettime(CLOCK_REALTIME, &time)
        return time.tv_sec * 1000 + time.tv_nsec // 1000000

    cdef bint set_fields(
        self, Fields *fields, flag, sys_flag, born_timestamp, born_host, store_host, reconsume_times, prepared
    ) except -1:
        """Reads what the records of a put share; returns False if it is not plain."""
        try:
            fields.flag, fields.sys_flag = flag, sys_flag
            fields.reconsumed, fields.prepared = reconsume_times, prepared
            fields.born = 0 if born_timestamp is None else born_timestamp
        except (TypeError, OverflowError):
            return False
        if not (PyBytes_CheckExact(born_host) and PyBytes_CheckExact(store_host)):
            return False
        fields.born_host = <const uint8_t *>PyBytes_AS_STRING(born_host)
        fields.store_host = <const uint8_t *>PyBytes_AS_STRING(store_host)
        return (
            PyBytes_GET_SIZE(born_host) == HOST
            and PyBytes_GET_SIZE(store_host) == HOST
            and is_int32(fields.flag)
            and is_int32(fields.sys_flag)
            and is_int32(fields.reconsumed)
        )

    cdef object state_of(self, topic, queue_id):
        """Returns the QueueState of plain messages; None if there is none yet."""
        cdef tuple key = (topic, queue_id)
        cdef PyObject *state = PyDict_GetItem(self.states, key)
        if state == NULL or not (<object>state).is_plain:
            return None
        return <object>state

    cdef uint8_t *room_for(self, file, int64_t total, int64_t *wrote) except? NULL:
        """Returns the address of the next record of the segment, and its position; NULL without room."""
        if file is None:
            return NULL
        wrote[0] = file.wrote
        if wrote[0] + total > self.log.limit:
            return NULL
        buffer = self.log.buffer
        if buffer is not self.buffer:
            self.window, self.buffer = buffer, buffer
        if wrote[0] + total > len(self.window):
            return NULL
        return &self.window[wrote[0]]

    cdef tuple result(self, int64_t physical, int64_t size, int64_t offset, int64_t now, host, tuple offsets):
        cdef tuple fields = named(self.result_kind, 8)
        fill(fields, 0, self.status)
        fill(fields, 1, self.append_status)
        fill(fields, 2, physical)
        fill(fields, 3, size)
        fill(fields, 4, offset)
        fill(fields, 5, now)
        fill(fields, 6, host)
        fill(fields, 7, offsets)
        return fields

    def put(
        self,
        topic,
        queue_id,
        body,
        properties,
        flag,
        sys_flag,
        born_timestamp,
        born_host,
        store_host,
        reconsume_times,
        prepared_transaction_offset,
    ):
        """Appends one message; arguments and result are those of `MessageStore.put` without `wait`."""
        cdef Fields fields
        cdef Piece piece
        if not (PyBytes_CheckExact(body) and PyBytes_CheckExact(properties)):
            return None
        born_host = self.born_host if born_host is None else born_host
        host = self.store_host if store_host is None else store_host
        if not self.set_fields(
            &fields, flag, sys_flag, born_timestamp, born_host, host, reconsume_times, prepared_transaction_offset
        ):
            return None
        if fields.sys_flag & self.slow_bits:
            return None
        piece.flag = fields.flag
        piece.body, piece.size = <const uint8_t *>PyBytes_AS_STRING(body), PyBytes_GET_SIZE(body)
        piece.properties, piece.room = <const uint8_t *>PyBytes_AS_STRING(properties), PyBytes_GET_SIZE(properties)
        if not self.is_plain(&piece, self.log.longest_body):
            return None
        cdef Source source = Source(1, piece.size + piece.room, NULL, 0)
        return self.append(topic, queue_id, &fields, born_timestamp is None, host, source, &piece, None)

    cdef tuple append(
        self, topic, queue_id, Fields *fields, bint born_now, host, Source source, Piece *piece, list items
    ):
        """Writes the records of plain messages of one queue under the append lock; returns None without room.

        Args:
            topic, queue_id: of the queue.
            fields: what the records share.
            born_now: whether the store timestamp is also the born timestamp.
            host: the store host.
            source, items: the messages: one, which `piece` contains, a client's batch, or a list of `BatchMessage`.
            piece: memory for one message.
        """
        cdef int64_t wrote = 0, offset, base, at = 0, position, magic_code, queue, total, row
        cdef uint8_t *to
        cdef bytes topic_field
        cdef tuple offsets = ()
        cdef bint is_batch = items is not None or source.data != NULL
        self.lock_free()
        try:
            state = self.state_of(topic, queue_id)
            if state is None or self.flags.refuses:
                return None
            topic_field, file = state.topic_field, self.log.file
            total = source.size + source.rows * (BODY_AT + PyBytes_GET_SIZE(topic_field) + LENGTH_SIZE)
            if total > self.log.longest:
                return None
            to = self.room_for(file, total, &wrote)
            if to == NULL:
                return None
            fields.now = self.now()
            if born_now:
                fields.born = fields.now
            offset, base = state.next_offset, file.file_from_offset
            magic_code, queue, position = state.magic_code, state.queue_id, base + wrote
            if is_batch:
                offsets = PyTuple_New(source.rows)
            for row in range(source.rows):
                if source.data != NULL:
                    encoded(source.data, &at, source.end, piece)
                elif items is not None:
                    self.listed(items, row, piece)
                if is_batch:
                    fill(offsets, row, position)
                fields.flag = piece.flag
                position += put_record(
                    to + (position - base - wrote),
                    magic_code,
                    queue,
                    <const uint8_t *>PyBytes_AS_STRING(topic_field),
                    PyBytes_GET_SIZE(topic_field),
                    piece.body,
                    piece.size,
                    piece.properties,
                    piece.room,
                    offset + row,
                    position,
                    fields,
                )
            file.store_timestamp = fields.now
            file.wrote = wrote + total
            state.next_offset = offset + source.rows
        finally:
            self.unlock()
        return self.result(base + wrote, total, offset, fields.now, host, offsets)

    cdef bint listed(self, list messages, Py_ssize_t row, Piece *piece) except -1:
        """Reads a message of a list; returns False if it is not plain."""
        item = messages[row]
        if type(item) is not self.message_kind:
            return False
        body, properties, flag = (<tuple>item)[0], (<tuple>item)[1], (<tuple>item)[2]
        if not (PyBytes_CheckExact(body) and PyBytes_CheckExact(properties)):
            return False
        piece.body, piece.size = <const uint8_t *>PyBytes_AS_STRING(body), PyBytes_GET_SIZE(body)
        piece.properties, piece.room = <const uint8_t *>PyBytes_AS_STRING(properties), PyBytes_GET_SIZE(properties)
        try:
            piece.flag = flag
        except (TypeError, OverflowError):
            return False
        return is_int32(piece.flag)

    cdef bint is_plain(self, const Piece *piece, int64_t longest_body) noexcept:
        return (
            piece.size <= longest_body
            and piece.room <= LONGEST_PROPERTIES
            and not (piece.room and memmem(piece.properties, piece.room, b"INNER_", 6) != NULL)
        )

    def put_batch(
        self, topic, queue_id, messages, sys_flag, born_timestamp, born_host, store_host, reconsume_times
    ):
        """Appends a batch of plain messages for one queue.

        Args:
            topic, queue_id, sys_flag, born_timestamp, born_host, store_host, reconsume_times: as for `put`.
            messages: a list of `BatchMessage`, or a client's batch as bytes.

        Returns:
            As `MessageStore.put_batch`.
        """
        cdef Fields fields
        cdef Piece piece
        cdef Source source = Source(0, 0, NULL, 0)
        cdef int64_t at = 0, longest_body
        cdef list items = None
        born_host = self.born_host if born_host is None else born_host
        host = self.store_host if store_host is None else store_host
        if not self.set_fields(&fields, 0, sys_flag, born_timestamp, born_host, host, reconsume_times, 0):
            return None
        if fields.sys_flag & (ROLLBACK | INNER_BATCH):
            return None
        fields.sys_flag &= ~(BORN_V6 | STORE_V6)
        longest_body = self.log.longest_body
        if type(messages) is list:
            items = list(messages)  # the caller may change its own while another thread holds the lock
            while source.rows < len(items):
                if not self.listed(items, source.rows, &piece) or not self.is_plain(&piece, longest_body):
                    return None
                source.size += piece.size + piece.room
                source.rows += 1
        elif PyBytes_CheckExact(messages):
            source.data, source.end = <const uint8_t *>PyBytes_AS_STRING(messages), PyBytes_GET_SIZE(messages)
            while at < source.end:
                if not encoded(source.data, &at, source.end, &piece) or not self.is_plain(&piece, longest_body):
                    return None
                source.size += piece.size + piece.room
                source.rows += 1
        if source.rows == 0:
            return None
        return self.append(topic, queue_id, &fields, born_timestamp is None, host, source, &piece, items)


cdef bint encoded(const uint8_t *data, int64_t *at, int64_t end, Piece *piece) noexcept nogil:
    """Reads the message at a position of a client's batch and moves the position after it; False if it is none."""
    cdef int64_t start = at[0], body = start + BATCHED, properties
    if body + LENGTH_SIZE > end:
        return False
    piece.size = i32_at(data + start + BATCHED_LENGTH_AT)
    if piece.size < 0 or body + piece.size + LENGTH_SIZE > end:
        return False
    piece.room = i16_at(data + body + piece.size)
    properties = body + piece.size + LENGTH_SIZE
    if piece.room < 0 or properties + piece.room > end or i32_at(data + start) != properties + piece.room - start:
        return False
    piece.flag = i32_at(data + start + BATCHED_FLAG_AT)
    piece.body, piece.properties = data + body, data + properties
    at[0] = properties + piece.room
    return True


def find_bytes(tuple items not None, uint64_t[::1] addresses, int64_t[::1] sizes):
    """Finds the bytes of the objects in a tuple; they stay where they are as long as it lives.

    Args:
        items: the objects.
        addresses, sizes: outputs, of each.

    Returns:
        False if one is not a bytes object.
    """
    cdef Py_ssize_t row, count = len(items)
    if len(addresses) < count or len(sizes) < count:
        raise ValueError("find_bytes: outputs are too small")
    for row in range(count):
        item = items[row]
        if not isinstance(item, bytes):
            return False
        addresses[row], sizes[row] = <uint64_t>PyBytes_AS_STRING(item), PyBytes_GET_SIZE(item)
    return True


def encode(
    uint8_t[::1] target,
    int64_t at,
    int64_t base,
    int64_t now,
    bint born_now,
    int64_t first,
    int64_t count,
    const uint64_t[::1] body_at,
    const int64_t[::1] body_size,
    const uint64_t[::1] properties_at,
    const int64_t[::1] properties_size,
    const uint8_t[::1] heads,
    int64_t head_step,
    const int32_t[::1] queue_of,
    const uint8_t[::1] topics,
    const int64_t[::1] topic_starts,
    const int64_t[::1] length_sizes,
    const int64_t[::1] magic_codes,
    const int64_t[::1] queue_ids,
    int64_t[::1] next_offsets,
    int64_t[:, ::1] columns,
):
    """Writes the records of some messages contiguously; releases the interpreter's lock.

    Args:
        target: output.
        at: position of the first record.
        base: physical offset of the target's first byte.
        now, born_now: store timestamp, and whether it is also the born timestamp.
        first, count: the first message and the number of messages; the following columns contain all messages.
        body_at, body_size, properties_at, properties_size: address and size of each body, and of the properties.
        heads: the fixed fields of each message, or of one for all. Those that depend on queue, position and body are
            not read.
        head_step: bytes from one message's to the next; 0 if there is one for all.
        queue_of: the queue number of each message.
        topics, topic_starts: topic length and topic of each queue, concatenated; their starts, and the end of the last.
        length_sizes, magic_codes, queue_ids: of each queue: bytes of the topic length; magic code; queue id.
        next_offsets: queue offset of each queue's next message; updated.
        columns: output: for each record its position in the target, physical offset, queue offset, position and length
            of the topic, position of the properties.

    Raises:
        ValueError: there is no room for them.
    """
    cdef int64_t done, row, queue, size, room, topic_size, total, end = len(target), queues = len(next_offsets)
    cdef Fields fields
    cdef const uint8_t *head
    if first < 0 or count < 0 or columns.shape[0] != 6 or columns.shape[1] < count or at < 0:
        raise ValueError("encode: outputs are too small")
    if not (
        first + count <= len(body_at) == len(body_size) == len(properties_at) == len(properties_size) == len(queue_of)
        and len(topic_starts) == queues + 1
        and len(length_sizes) == len(magic_codes) == len(queue_ids) == queues
        and (count == 0 or head_step * (first + count - 1) + BODY_AT <= len(heads))
    ):
        raise ValueError("encode: columns of different lengths")
    with nogil:
        for done in range(count):
            row = first + done
            queue, size, room = queue_of[row], body_size[row], properties_size[row]
            topic_size = topic_starts[queue + 1] - topic_starts[queue]
            if BODY_AT + size + topic_size + LENGTH_SIZE + room > end - at:
                with gil:
                    raise ValueError("encode: no room")
            head = &heads[row * head_step]
            fields.flag, fields.sys_flag = i32_at(head + FLAG_AT), i32_at(head + SYS_FLAG_AT)
            fields.born, fields.now = now if born_now else i64_at(head + BORN_AT), now
            fields.reconsumed, fields.prepared = i32_at(head + RETRIES_AT), i64_at(head + PREPARED_AT)
            fields.born_host, fields.store_host = head + BORN_HOST_AT, head + STORE_HOST_AT
            total = put_record(
                &target[at],
                magic_codes[queue],
                queue_ids[queue],
                &topics[topic_starts[queue]],
                topic_size,
                <const uint8_t *>body_at[row],
                size,
                <const uint8_t *>properties_at[row],
                room,
                next_offsets[queue],
                base + at,
                &fields,
            )
            columns[0, done], columns[1, done], columns[2, done] = at, base + at, next_offsets[queue]
            columns[3, done] = at + BODY_AT + size + length_sizes[queue]
            columns[4, done], columns[5, done] = topic_size - length_sizes[queue], at + total - room
            next_offsets[queue] += 1
            at += total


# -- files -------------------------------------------------------------------------------------------------------------


cdef int64_t read_end(file) except -1:
    """Returns the offset up to which a MappedFile may be read."""
    return file.file_from_offset + file.read_position


cdef object file_at(tuple files, int64_t offset):
    """Returns the MappedFile that contains an offset; None if none does, or if one in between is missing."""
    cdef int64_t size, index, base
    if not files or offset < 0:
        return None
    first = files[0]
    size = first.size
    index = offset // size - <int64_t>first.file_from_offset // size
    if index < 0 or index >= len(files):
        return None
    file = files[index]
    base = file.file_from_offset
    return file if base <= offset < base + size else None


cdef inline const uint8_t *address_of(view) noexcept:
    """Returns the address of the first byte of a file's mapping (`File.pin`), which stays there as long as the view."""
    return <const uint8_t *>PyMemoryView_GET_BUFFER(view).buf


# -- gets --------------------------------------------------------------------------------------------------------------


cdef class Getter:
    """Gets messages of a ConsumeQueue that are in one segment, unfiltered, by the rules of `store.get_message`."""

    cdef dict queues
    cdef object queue_kind, limited, log, found, result_kind, views
    cdef int64_t shortest, longest

    def __init__(self, dict queues not None, queue_kind, limited, log, found, result_kind, views, shortest, longest):
        """Takes what a get reads and returns.

        Args:
            queues: ConsumeQueues and others by topic and queue id.
            queue_kind: ConsumeQueue.
            limited: whose `limits` are `store.queues.get_message.GetLimits`.
            log: MappedFileQueue of the log.
            found, result_kind: status and class of the result.
            views: RecordViews.
            shortest, longest: bytes between which a limit is moved.
        """
        require_fields(
            result_kind,
            (
                "status",
                "next_begin_offset",
                "min_offset",
                "max_offset",
                "records",
                "queue_offsets",
                "size",
                "suggest_slave",
            ),
        )
        require_fields(
            limited.limits,
            ("bytes_in_memory", "count_in_memory", "bytes_on_disk", "count_on_disk", "filter_bytes", "memory"),
        )
        self.queues, self.queue_kind, self.limited, self.log = queues, queue_kind, limited, log
        self.found, self.result_kind, self.views = found, result_kind, views
        self.shortest, self.longest = shortest, longest

    def get(self, topic, queue_id, queue_offset, max_number, max_bytes):
        """Returns `Found`, or None if the get is not plain."""
        cdef int64_t offset, limit, limit_bytes, lowest, highest, count, base, end, physical, size, in_memory_from
        cdef int64_t taken = 0, total = 0, last = 0, memory_bytes, memory_count, disk_bytes, disk_count
        cdef bint in_memory
        cdef const uint8_t *unit
        try:
            offset, limit, limit_bytes = queue_offset, max_number, max_bytes
        except (TypeError, OverflowError):
            return None
        limit_bytes = max(self.shortest, min(limit_bytes, self.longest))
        queue = self.queues.get((topic, queue_id))
        if type(queue) is not self.queue_kind:
            return None
        # The tuples of files never change, and a pin keeps a file's bytes where they are: nothing below depends on
        # what other threads do meanwhile.
        files = queue.files.files
        lowest, highest = queue.min_offset, read_end(files[len(files) - 1]) // UNIT if files else 0
        if offset < lowest or offset >= highest:
            return None
        file = file_at(files, offset * UNIT)
        if file is None:
            return None
        count = min(min(limit, MOST_UNITS), min(highest - offset, read_end(file) // UNIT - offset))
        unit_pin = file.file.pinned
        if unit_pin is None or count <= 0:
            return None
        unit = address_of(unit_pin) + (offset * UNIT - <int64_t>file.file_from_offset)
        units = PyBytes_FromStringAndSize(<const char *>unit, count * UNIT)
        unit = <const uint8_t *>PyBytes_AS_STRING(units)
        log_files = self.log.files
        segment = file_at(log_files, i64_at(unit))
        if segment is None or not segment.available:
            return None
        pin = segment.file.pinned
        if pin is None:
            return None
        memory_bytes, memory_count, disk_bytes, disk_count, _, memory = self.limited.limits
        in_memory_from = 0 if memory is None else read_end(log_files[len(log_files) - 1]) - <int64_t>memory
        base, end = segment.file_from_offset, read_end(segment)
        while taken < count:
            physical, size = i64_at(unit), i32_at(unit + UNIT_SIZE_AT)
            if taken > 0:
                in_memory = physical >= in_memory_from
                if taken >= min(limit, memory_count if in_memory else disk_count):
                    break
                if total + size > min(memory_bytes if in_memory else disk_bytes, limit_bytes):
                    break
            if size <= 0 or physical < base or physical + size > end:
                return None
            taken, total, last = taken + 1, total + size, physical
            unit += UNIT
        if taken == MOST_UNITS < limit:
            return None
        cdef tuple fields = named(self.result_kind, 8)
        fill(fields, 0, self.found)
        fill(fields, 1, offset + taken)
        fill(fields, 2, lowest)
        fill(fields, 3, highest)
        fill(fields, 4, self.views(pin, base, units[: taken * UNIT] if taken < count else units, taken, total))
        fill(fields, 5, range(offset, offset + taken))
        fill(fields, 6, total)
        fill(fields, 7, last < in_memory_from)
        return fields


cdef void copy_units(
    const uint8_t *units, int64_t count, const uint8_t *first_byte, int64_t base, uint8_t *to
) noexcept nogil:
    """Copies the records that units lead to one after the other; their first bytes are called for in advance."""
    cdef int64_t row, ahead, size
    cdef const uint8_t *record
    for row in range(-COPY_AHEAD, count):
        ahead = row + COPY_AHEAD
        if ahead < count:
            record = first_byte + (i64_at(units + ahead * UNIT) - base)
            size = min(i32_at(units + ahead * UNIT + UNIT_SIZE_AT), 4 * LINE)
            while size > 0:
                fetch_ahead(record)
                record += LINE
                size -= LINE
        if row >= 0:
            size = i32_at(units + row * UNIT + UNIT_SIZE_AT)
            memcpy(to, first_byte + (i64_at(units + row * UNIT) - base), size)
            to += size


def join_records(bytes units not None, int64_t count, memoryview pin not None, int64_t base, int64_t size):
    """Returns records as one bytes object.

    Args:
        units: that lead to them, as `Getter.get` returns them.
        count: how many.
        pin, base: `File.pin` of their segment, and its physical offset.
        size: sum of their sizes.
    """
    joined = PyBytes_FromStringAndSize(NULL, size)
    copy_units(
        <const uint8_t *>PyBytes_AS_STRING(units), count, address_of(pin), base, <uint8_t *>PyBytes_AS_STRING(joined)
    )
    return joined


def copy_records(bytes units not None, int64_t count, memoryview pin not None, int64_t base, int64_t size, bytearray target not None, int64_t at):
    """Copies records into a bytearray; returns the position after them.

    Args:
        units, count, pin, base, size: as for `join_records`.
        target, at: a bytearray, and a position with room for them.
    """
    if at < 0 or at + size > len(target):
        raise ValueError("copy_records: no room")
    copy_units(
        <const uint8_t *>PyBytes_AS_STRING(units), count, address_of(pin), base, <uint8_t *>(<char *>target) + at
    )
    return at + size


# -- queries -----------------------------------------------------------------------------------------------------------


cdef int64_t hash_of(text, uint32_t *value) except -1:
    """Continues a hash (`formats.java.string_hash`) over a text; returns 0 if it is not an ASCII string."""
    cdef Py_ssize_t size = 0, at
    cdef const char *data
    if type(text) is not str or not PyUnicode_IS_ASCII(text):
        return 0
    data = PyUnicode_AsUTF8AndSize(text, &size)
    for at in range(size):
        value[0] = value[0] * 31 + <uint8_t>data[at]
    return 1


cdef class Finder:
    """Finds messages by key, by the rules of `Searcher.query`."""

    cdef object index, log, result_kind

    def __init__(self, index, log, result_kind):
        """Takes what a query reads and returns: Index, MappedFileQueue of the log, QueryResult."""
        require_fields(
            result_kind,
            (
                "records",
                "physical_offsets",
                "index_last_update_timestamp",
                "index_last_update_physical_offset",
            ),
        )
        self.index, self.log, self.result_kind = index, log, result_kind

    def query(self, topic, key, max_number, begin_timestamp, end_timestamp):
        """Returns QueryResult, or None if the query is not plain.

        Args:
            topic, key: texts.
            max_number: maximum number of messages.
            begin_timestamp, end_timestamp: first and last store timestamp, ms.
        """
        cdef int64_t limit, begin, end, first, last, key_hash
        cdef uint32_t value = 0
        try:
            limit, begin, end = max_number, begin_timestamp, end_timestamp
        except (TypeError, OverflowError):
            return None
        if not hash_of(topic, &value) or not hash_of("#", &value) or not hash_of(key, &value):
            return None
        key_hash = <int32_t>value
        key_hash = 0 if key_hash == -INT_MAX - 1 else -key_hash if key_hash < 0 else key_hash
        cdef tuple files = self.index.files
        cdef list offsets = []
        if not files:
            return None
        for file in reversed(files):
            header, pin = file.header, file.file.pinned
            if pin is None:
                return None
            first, last = header.begin_timestamp, header.end_timestamp
            is_matched = (begin < first and end > last) or first <= begin <= last or first <= end <= last
            if is_matched and header.index_count > 1:
                add_entries(
                    offsets, address_of(pin), file.slots, first, min(header.index_count, file.entries - 1),
                    key_hash, begin, end, limit - len(offsets)
                )
            if first < begin or len(offsets) >= limit:
                break
        offsets.sort()
        cdef list records = []
        cdef list matches = []
        log_files = self.log.files
        for offset in offsets:
            record = record_at(log_files, offset)
            if record is None:
                return None
            if record is not False:
                records.append(record)
                matches.append(offset)
        newest = files[len(files) - 1].header if offsets else None
        cdef tuple fields = named(self.result_kind, 4)
        fill(fields, 0, records)
        fill(fields, 1, matches)
        fill(fields, 2, 0 if newest is None else newest.end_timestamp)
        fill(fields, 3, 0 if newest is None else newest.end_physical_offset)
        return fields


cdef int add_entries(
    list offsets,
    const uint8_t *file,
    int64_t slots,
    int64_t file_begin,
    int64_t highest,
    int64_t key_hash,
    int64_t begin,
    int64_t end,
    int64_t limit,
) except -1:
    """Appends the physical offsets of entries of a file, by the rules of `records.index_chains.offsets_in_chain`."""
    cdef const uint8_t *entries = file + INDEX_HEADER + slots * INDEX_SLOT
    cdef const uint8_t *entry
    cdef int64_t number = i32_at(file + INDEX_HEADER + key_hash % slots * INDEX_SLOT), count = 0, diff, previous, time
    while 0 < number <= highest and count < limit:
        entry = entries + number * INDEX_ENTRY
        diff, previous = i32_at(entry + ENTRY_TIME_AT), i32_at(entry + ENTRY_PREVIOUS_AT)
        time = file_begin + diff * 1000
        if diff < 0:
            break
        if i32_at(entry) == key_hash and begin <= time <= end:
            offsets.append(i64_at(entry + ENTRY_PHYSICAL_AT))
            count += 1
        if time < begin or previous >= number:
            break
        number = previous
    return 0


cdef object record_at(tuple files, int64_t offset):
    """Returns a view of the record at a physical offset; False if there is none; None if it is for `Searcher`."""
    cdef int64_t base, end, at, size, magic
    cdef const uint8_t *record
    segment = file_at(files, offset)
    if segment is None:
        return None
    if not segment.available:
        return False
    base, end = segment.file_from_offset, read_end(segment)
    at = offset - base
    if offset + FRAME > end:
        return False
    pin = segment.file.pinned
    if pin is None:
        return None
    record = address_of(pin) + at
    size, magic = i32_at(record), i32_at(record + MAGIC_AT)
    if (magic != MAGIC_V1 and magic != MAGIC_V2) or size < MIN_RECORD or size > end - offset:
        return False
    return pin[at : at + size]
