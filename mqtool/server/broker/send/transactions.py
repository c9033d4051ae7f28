"""Transactions: half messages, commit and rollback, and checks of half messages that are neither.

A half message is stored in the half topic until its producer commits it or rolls it back. On a commit the message is
stored in its own topic; in either case an op message marks the half message as settled. The broker asks the producer
about half messages that stay unsettled. Positions in both system topics are consumer offsets, so that a real broker can
continue. Source: EndTransactionProcessor, TransactionalMessageServiceImpl, TransactionalMessageBridge (5.5.0).
"""

import logging
from collections import deque

from mqtool.engine import GetStatus
from mqtool.engine.retention.rules import HOUR_MS
from mqtool.engine.write.messages import OutgoingMessage
from mqtool.errors import FormatError
from mqtool.formats import hosts, properties, service_records
from mqtool.formats.commit_log import TRANSACTION_MASK, SysFlag
from mqtool.formats.service_records import TRANSACTION_GROUP
from mqtool.formats.topics import CHECKED_TOO_OFTEN_TOPIC, HALF_TOPIC, OP_TOPIC
from mqtool.protocol.command import Command, RequestCode, ResponseCode
from mqtool.server.broker.answers import RefusalError, flag, number, ok, refusal, text
from mqtool.server.broker.broker import Broker, RequestProcessor, handles
from mqtool.server.broker.messages import ParsedRecord, parsed_record, requeued, with_place
from mqtool.server.net.peer import Peer

_LOG = logging.getLogger(__name__)

_COMMIT = int(SysFlag.TRANSACTION_COMMIT)
_ROLLBACK = int(SysFlag.TRANSACTION_ROLLBACK)
_OP_TAG = "d"


def half_message(message: OutgoingMessage) -> OutgoingMessage:
    """Returns a message in the form stored in the half topic (TransactionalMessageBridge.parseHalfMessageInner)."""
    values = properties.decode(message.properties)
    values[properties.REAL_TOPIC] = message.topic
    values[properties.REAL_QUEUE_ID] = str(message.queue_id)
    if properties.UNIQUE_KEY in values:
        values[properties.TRANSACTION_ID] = values[properties.UNIQUE_KEY]
    return message._replace(
        topic=HALF_TOPIC,
        queue_id=0,
        properties=properties.encode(values.items()),
        sys_flag=message.sys_flag & ~TRANSACTION_MASK,
    )


class Transactions(RequestProcessor):
    """Handles END_TRANSACTION, and checks unsettled half messages."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self._done: set[int] = set()
        self._ops: deque[tuple[int, int]] = deque()
        self._op_read = 0

    @handles(RequestCode.END_TRANSACTION)
    async def end(self, command: Command, _peer: Peer) -> Command | None:
        """Commits a half message or rolls it back; returns None (no answer) if the producer has not decided.

        Raises RefusalError if it is not the half message that the request describes, or the request comes too late.
        """
        self._broker.check_open()
        decision = number(command, "commitOrRollback")
        if decision not in (_COMMIT, _ROLLBACK):
            return None
        half = self._half_of(command)
        if decision == _COMMIT:
            place = service_records.destination(half.properties)
            result = await self._broker.writer.store(self._committed(half, place, number(command, "commitLogOffset")))
            if not result.ok:
                raise refusal(result)
            self._broker.stats.put(place.topic, 0, 1, result.size)
        await self._note_done(half.record.queue_offset)
        return ok(command)

    def _half_of(self, command: Command) -> ParsedRecord:
        try:
            half = parsed_record(self._broker.messages.message_at(number(command, "commitLogOffset")) or b"")
        except FormatError as error:
            raise RefusalError(ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed") from error
        if half.topic != HALF_TOPIC:
            raise RefusalError(ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")
        if self._is_late(command, half):
            raise RefusalError(ResponseCode.ILLEGAL_OPERATION, "the immunity time has passed; answer the next check")
        if half.properties.get(properties.PRODUCER_GROUP) != text(command, "producerGroup"):
            raise RefusalError(ResponseCode.SYSTEM_ERROR, "The producer group wrong")
        if half.record.queue_offset != number(command, "tranStateTableOffset"):
            raise RefusalError(ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong")
        return half

    def _is_late(self, command: Command, half: ParsedRecord) -> bool:
        """Whether only the answer to a check may still end a half message, whose own immunity time is over.

        Source: EndTransactionProcessor.rejectCommitOrRollback, TransactionalMessageUtil.getImmunityTime (5.5.0; 4.9.7
        accepts an end at any time).
        """
        own = half.properties.get(service_records.IMMUNITY)
        if not own or self._broker.release < (5, 0) or flag(command, "fromTransactionCheck"):
            return False
        immunity = max(service_records.lenient_number(own) * 1000, self._broker.settings.number("transactionTimeOut"))
        return self._age(half, self._broker.clock.now()) > immunity

    def _age(self, half: ParsedRecord, now: int) -> int:
        """Returns how long ago a half message was sent, in ms; its producer's clock is not advanced by a test."""
        return now - self._broker.clock.moved(half.record.born_timestamp)

    def _committed(self, half: ParsedRecord, place: service_records.Destination, half_offset: int) -> OutgoingMessage:
        """Returns the message of a commit (endMessageTransaction); only 4.9.7 keeps its destination's properties."""
        removed = (properties.REAL_TOPIC, properties.REAL_QUEUE_ID) if self._broker.release >= (5, 0) else ()
        kept = {name: value for name, value in half.properties.items() if name not in removed}
        message = requeued(half, *place, kept, self._broker.store_host)
        return message._replace(sys_flag=half.record.sys_flag | _COMMIT, prepared_transaction_offset=half_offset)

    async def _note_done(self, half_queue_offset: int) -> None:
        """Writes the op message that marks a half message as settled.

        5.5.0 ends each queue offset in its body with a comma. 4.9.7 parses the body as one number.
        """
        self._done.add(half_queue_offset)
        end = "," if self._broker.release >= (5, 0) else ""
        encoded = properties.encode({properties.TAGS: _OP_TAG}.items())
        message = OutgoingMessage(
            OP_TOPIC,
            0,
            f"{half_queue_offset}{end}".encode(),
            encoded,
            born_host=self._broker.store_host,
            store_host=self._broker.store_host,
        )
        result = await self._broker.writer.store(message)
        if not result.ok:
            raise RefusalError(ResponseCode.SYSTEM_ERROR, f"the end could not be stored: {result.status.value}")

    async def check(self) -> None:
        """Runs one round of checks: skips settled half messages, asks about others, and advances both positions."""
        half_at = self._position(HALF_TOPIC)
        self._op_read = max(self._op_read, self._position(OP_TOPIC))
        self._read_ops(half_at)
        started = self._broker.clock.now()
        while True:
            if half_at in self._done:
                half_at += 1
                continue
            data = self._half_at(half_at)
            if data is None:
                half_at = self._after_hole(half_at)
                if self._half_at(half_at) is None:
                    break
                continue
            is_done = True
            with self._broker.skipped.guard("transaction", HALF_TOPIC, 0, half_at):
                half = parsed_record(data)
                is_done = half.record.store_timestamp < started and await self._settle(half, started)
            if not is_done:
                break
            half_at += 1
        self._commit(half_at)

    async def _settle(self, half: ParsedRecord, now: int) -> bool:
        """Asks the producer about a half message, or gives up on it.

        Returns False if it and later ones are too new, or if the store refuses it: the next round looks at it again.
        """
        settings, values = self._broker.settings, half.properties
        try:
            place = service_records.destination(values)
        except FormatError:
            await self._give_up(half)  # it cannot be committed; kept in the topic of abandoned messages
            raise
        age = self._age(half, now)
        checked = service_records.check_times(values)
        if age > settings.number("fileReservedTime") * HOUR_MS or checked >= settings.number("transactionCheckMax"):
            await self._give_up(half)
            return True
        immunity = settings.number("transactionTimeOut")
        own = service_records.lenient_number(values.get(service_records.IMMUNITY))
        if age < own * 1000:  # within its own immunity time; must not delay later ones
            return await self._put_back(half, checked) is not None
        if age < immunity:
            return False
        put = await self._put_back(half, checked + 1)
        if put is None:
            return False
        self._ask(half, place, *put)
        return True

    async def _put_back(self, half: ParsedRecord, times: int) -> tuple[int, int] | None:
        """Stores a half message again at its queue's end; returns its (physical, queue) offset, None if refused."""
        changed = {**half.properties, service_records.CHECK_TIMES: str(times)} if times else dict(half.properties)
        changed.setdefault(properties.TRANSACTION_PREPARED_QUEUE_OFFSET, str(half.record.queue_offset))
        result = await self._broker.writer.store(requeued(half, HALF_TOPIC, 0, changed, self._broker.store_host))
        return (result.physical_offset, result.queue_offset) if result.ok else None

    def _ask(
        self, half: ParsedRecord, place: service_records.Destination, physical_offset: int, queue_offset: int
    ) -> None:
        """Sends CHECK_TRANSACTION_STATE to one producer of the producer group."""
        broker, values = self._broker, half.properties
        peer = broker.clients.producer_of(values.get(properties.PRODUCER_GROUP, ""))
        if peer is None:
            _LOG.warning("no producer online to check group=%s", values.get(properties.PRODUCER_GROUP))
            return
        topic, queue_id = place
        key = half.unique_key
        fields = {
            "topic": topic,
            "commitLogOffset": str(physical_offset),
            "tranStateTableOffset": str(queue_offset),
            "msgId": key,
            "transactionId": key,
            "offsetMsgId": hosts.format_offset_id(half.record.store_host, physical_offset),
            "bname": broker.settings.text("brokerName"),
        }
        data = with_place(half, topic, queue_id, queue_offset, half.record.properties)
        broker.notify(peer, RequestCode.CHECK_TRANSACTION_STATE, fields, data)

    async def _give_up(self, half: ParsedRecord) -> None:
        self._broker.topics.create_for_send_back(CHECKED_TOO_OFTEN_TOPIC, 1)
        await self._broker.writer.store(
            requeued(half, CHECKED_TOO_OFTEN_TOPIC, 0, half.properties, self._broker.store_host)
        )

    def _position(self, topic: str) -> int:
        lowest, highest = self._broker.messages.queue_bounds(topic, 0)
        known = self._broker.offsets.get(TRANSACTION_GROUP, topic, 0)
        return min(max(lowest, 0 if known is None else known), highest)

    def _half_at(self, queue_offset: int) -> "memoryview | bytes | None":
        """Returns the record at a queue offset of the half topic; None if it is missing."""
        result = self._broker.messages.get_message(HALF_TOPIC, 0, queue_offset, 1)
        return result.records[0] if result.records else None

    def _after_hole(self, queue_offset: int) -> int:
        """Returns the next queue offset of the half topic after one whose message is missing."""
        result = self._broker.messages.get_message(HALF_TOPIC, 0, queue_offset, 1)
        is_deleted = result.status in (
            GetStatus.MESSAGE_WAS_REMOVING,
            GetStatus.OFFSET_TOO_SMALL,
            GetStatus.OFFSET_FOUND_NULL,
        )
        return max(queue_offset, result.next_begin_offset) if is_deleted else queue_offset

    def _read_ops(self, half_at: int) -> None:
        """Reads new op messages, and records which half messages they settle.

        An op message can only settle half messages stored before it, so larger queue offsets are ignored.
        """
        end = self._broker.messages.queue_bounds(HALF_TOPIC, 0)[1]
        while True:
            result = self._broker.messages.get_message(OP_TOPIC, 0, self._op_read, 32)
            for number_, data in zip(result.queue_offsets, result.records, strict=True):
                offsets: list[int] = []
                with self._broker.skipped.guard("transaction", OP_TOPIC, 0, number_):
                    offsets = [
                        position
                        for position in service_records.op_offsets(parsed_record(data).record.body)
                        if position < end
                    ]
                self._done.update(offset for offset in offsets if offset >= half_at)
                self._ops.append((number_, max(offsets, default=-1)))
            if not result.records:
                break
            self._op_read = result.next_begin_offset

    def _commit(self, half_at: int) -> None:
        """Advances both positions.

        Op messages are passed once all their half messages are before the half topic's position.
        """
        self._done = {offset for offset in self._done if offset >= half_at}
        op_at = self._position(OP_TOPIC)
        while self._ops and self._ops[0][1] < half_at:
            op_at = self._ops.popleft()[0] + 1
        self._broker.offsets.commit(TRANSACTION_GROUP, HALF_TOPIC, 0, half_at)
        self._broker.offsets.commit(TRANSACTION_GROUP, OP_TOPIC, 0, op_at)
