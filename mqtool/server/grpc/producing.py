"""RPCs of producers: SendMessage, EndTransaction, RecallMessage, and answers to transaction checks.

Source: SendMessageActivity, EndTransactionActivity, RecallMessageActivity, TransactionService (rocketmq-proxy 5.5.0).
"""

import random
from collections import OrderedDict
from collections.abc import Awaitable
from typing import NamedTuple

from mqtool.errors import FormatError
from mqtool.formats import java, properties
from mqtool.formats.commit_log import SysFlag
from mqtool.formats.topics import DEFAULT_TOPIC, RETRY_PREFIX
from mqtool.protocol.command import STORED_CODES, Command, RequestCode, ResponseCode
from mqtool.protocol.rocketmq_v2 import definition as d
from mqtool.protocol.rocketmq_v2 import service as s
from mqtool.server.broker.answers import RefusalError
from mqtool.server.broker.delay import parse_handle
from mqtool.server.broker.messages import ParsedRecord, parsed_record
from mqtool.server.broker.send.fast_path import SendNumbers
from mqtool.server.grpc.clients import Client, Clients
from mqtool.server.grpc.core import OK, Core, StatusError, refused, thrown
from mqtool.server.grpc.messages import Outgoing, fill_incoming, outgoing
from mqtool.server.net.http2 import Call
from mqtool.server.net.peer import Answer

MAX_TRANSACTIONS = 200_000
"""Maximum number of tracked half messages; a new one replaces the oldest, whose next check tracks it again."""
MAX_OF_ONE_ID = 15
"""Maximum number of tracked half messages of one topic and transaction id (ProxyConfig.transactionDataMaxNum)."""

_COMMIT = str(int(SysFlag.TRANSACTION_COMMIT))
_ROLLBACK = str(int(SysFlag.TRANSACTION_ROLLBACK))
_PLAIN = frozenset({int(d.NORMAL), int(d.FIFO)})
"""Message types that the fast path of sends handles."""
_RESOLUTIONS = {int(d.COMMIT): _COMMIT, int(d.ROLLBACK): _ROLLBACK}


class _Half(NamedTuple):
    """The position of a half message; each check stores the message at a new one."""

    first: int  # queue offset at which it was stored first, which identifies it
    # physical_offset, queue_offset: the position
    physical_offset: int
    queue_offset: int
    # number of undecided answers of the producer after which the entry is removed: one for the send, and one for each
    # check
    answers: int = 1


class _Halves:
    """The half messages that wait for their end, by topic and transaction id.

    A send that is repeated stores another half message of the same id; each is ended by one call, the last first
    (TransactionDataManager, 5.5.0).
    """

    def __init__(self) -> None:
        self._table: OrderedDict[tuple[str, str], dict[int, _Half]] = OrderedDict()
        self._count = 0

    def note(self, topic: str, transaction_id: str, half: _Half) -> None:
        """Adds a half message, or changes its position after a check."""
        halves = self._table.setdefault((topic, transaction_id), {})
        known = halves.pop(half.first, None)
        if known is not None:
            half = half._replace(answers=half.answers + known.answers)
        elif len(halves) >= MAX_OF_ONE_ID:
            del halves[next(iter(halves))]
        else:
            self._count += 1
        halves[half.first] = half
        while self._count > MAX_TRANSACTIONS:
            _, oldest = self._table.popitem(last=False)
            self._count -= len(oldest)

    def take(self, topic: str, transaction_id: str) -> _Half | None:
        """Removes and returns the newest half message; None if there is none."""
        halves = self._table.get((topic, transaction_id))
        if halves is None:
            return None
        _, half = halves.popitem()
        self._count -= 1
        if not halves:
            del self._table[topic, transaction_id]
        return half


class Producing:
    """Handles the RPCs of producers."""

    def __init__(self, core: Core) -> None:
        """Creates the handler; the gRPC service sets `clients` afterwards."""
        self._core = core
        self.clients: Clients
        self._halves = _Halves()
        self._answer = s.SendMessageResponse(status=OK, entries=[s.SendResultEntry(status=OK)])

    def send(self, call: Call, request: s.SendMessageRequest) -> Awaitable[bytes] | bytes:
        """Handles the RPC SendMessage."""
        if not request.messages:
            raise StatusError(d.MESSAGE_CORRUPTED, "no message to send")
        first = request.messages[0]
        topic = self._core.topic(first.topic)
        for other in request.messages[1:]:
            self._core.topic(other.topic)
            if other.topic.name != topic:
                raise StatusError(d.MESSAGE_CORRUPTED, "topic in message is not same")
        if len(request.messages) > 1:
            _check_batch(request, topic)
        messages = [outgoing(self._core, message, topic) for message in request.messages]
        if len(messages) == 1 and messages[0].kind in _PLAIN:
            sent = self._put_plain(call, topic, messages[0])
            if sent is not None:
                return sent
        answer = self._put(call, topic, messages)
        if isinstance(answer, Command):
            return self._sent(call, topic, messages, answer)
        return self._sent_later(call, topic, messages, answer)

    def _put_plain(self, call: Call, topic: str, message: Outgoing) -> bytes | None:
        """Stores a message by the fast path of sends and returns the answer; None if the message is unusual."""
        fast, message_id = self._core.fast_sends, message.message_id
        if fast is None or not message_id.isalnum() or message.born_ms < 0:
            return None
        numbers = SendNumbers(self._queue(topic, message.sharding_key), message.sys_flag, message.born_ms, 0, 0)
        try:
            result = fast.put(topic, numbers, message.properties, message.body, call.peer)
        except RefusalError as error:
            raise refused(error) from error
        if result is None:
            return None
        entry = self._answer.entries[0]  # reused; creating a new one takes three times as long
        entry.message_id = entry.transaction_id = message_id
        entry.offset = result.queue_offset
        return self._answer.SerializeToString()

    def _put(self, call: Call, topic: str, messages: list[Outgoing]) -> Awaitable[Answer] | Answer:
        first, code = messages[0], RequestCode.SEND_MESSAGE_V2
        fields = {
            "a": topic,
            "b": topic,
            "c": DEFAULT_TOPIC,
            "d": "4",
            "e": str(self._queue(topic, first.sharding_key if len(messages) == 1 else "")),
            "f": str(first.sys_flag),
            "g": str(first.born_ms),
            "h": "0",
            "i": first.properties,
            "j": "0",
            "k": "false",
            "m": "false",
        }
        body = first.body
        if len(messages) > 1:
            code, fields["m"] = RequestCode.SEND_BATCH_MESSAGE, "true"
            body = b"".join(message.batched() for message in messages)
            unique_key = ",".join(message.message_id for message in messages)
            fields["i"] = properties.encode_text([(properties.UNIQUE_KEY, unique_key), (properties.WAIT, "true")])
        return self._core.start(code, fields, call.peer, body)

    def _queue(self, topic: str, sharding_key: str) -> int:
        """Returns the queue id for a message: by the hash of its sharding key, or any queue without one.

        The broker checks no permission of the topic when a message arrives, so this is where it counts.
        """
        count = self._core.writable_queues(self._core.topic_config(topic))
        if count <= 0:
            raise thrown(d.FORBIDDEN, "no writable queue")
        if not sharding_key:
            return random.randrange(count)  # noqa: S311 - load balancing, not security
        return consistent_hash(java.string_hash(sharding_key), count)

    async def _sent_later(
        self, call: Call, topic: str, messages: list[Outgoing], answer: Awaitable[Answer] | None
    ) -> bytes:
        response = await answer if answer is not None else None
        assert response is not None
        return self._sent(call, topic, messages, response)

    def _sent(self, call: Call, topic: str, messages: list[Outgoing], answer: Command) -> bytes:
        if answer.code not in STORED_CODES:
            raise refused(answer)
        status = OK if answer.code == ResponseCode.SUCCESS else refused(answer).status
        fields = answer.fields
        entry = s.SendResultEntry(
            status=status,
            message_id=",".join(message.message_id for message in messages),
            transaction_id=fields.get("transactionId", "") if len(messages) == 1 else "",
            offset=int(fields.get("queueOffset", 0)),
            recall_handle=fields.get("recallHandle", ""),
        )
        if messages[0].kind == d.TRANSACTION:
            half = _Half(entry.offset, int(fields["msgId"][-16:], 16), entry.offset)
            self._halves.note(topic, entry.transaction_id, half)
            client = self.clients.of(call)
            if client is not None:
                self.clients.add_topic(client, topic)
        return s.SendMessageResponse(status=status, entries=[entry]).SerializeToString()

    async def end(self, call: Call, request: s.EndTransactionRequest) -> bytes:
        """Handles the RPC EndTransaction."""
        topic = self._core.topic(request.topic)
        if java.is_blank(request.transaction_id):
            raise StatusError(d.INVALID_TRANSACTION_ID, "transaction id cannot be empty")
        half = self._halves.take(topic, request.transaction_id)  # a half message can end only once
        if half is None:
            raise thrown(d.INTERNAL_SERVER_ERROR, "cannot found transaction data")
        decision = _RESOLUTIONS.get(request.resolution)
        if decision is None:  # unresolved: the broker checks again later
            if half.answers > 1:
                self._halves.note(topic, request.transaction_id, half._replace(answers=half.answers - 1))
            return s.EndTransactionResponse(status=OK).SerializeToString()
        fields = {
            "producerGroup": topic,
            "topic": topic,
            "tranStateTableOffset": str(half.queue_offset),
            "commitLogOffset": str(half.physical_offset),
            "commitOrRollback": decision,
            "fromTransactionCheck": str(request.source == d.SOURCE_SERVER_CHECK).lower(),
            "msgId": request.message_id,
            "transactionId": request.transaction_id,
        }
        answer = await self._core.ask(RequestCode.END_TRANSACTION, fields, call.peer)
        if answer.code != ResponseCode.SUCCESS:
            self._halves.note(topic, request.transaction_id, half)  # so that the client can retry
            raise refused(answer)
        return s.EndTransactionResponse(status=OK).SerializeToString()

    def deliver(self, client: Client, command: Command) -> None:
        """Passes requests of the broker on to a client: transaction checks and removed lite subscriptions.

        Other requests have no equivalent in this protocol and are dropped.
        """
        if client.stream is None:
            return
        if command.code == RequestCode.NOTIFY_UNSUBSCRIBE_LITE:
            lost = s.NotifyUnsubscribeLiteCommand(lite_topic=command.fields["liteTopic"])
            client.stream.send(s.TelemetryCommand(notify_unsubscribe_lite_command=lost))
            return
        if command.code != RequestCode.CHECK_TRANSACTION_STATE:
            return
        try:
            half = parsed_record(bytes(command.body))
            first = self._first_offset(half)
        except FormatError:
            return
        fields = command.fields
        transaction_id, topic = fields["transactionId"], fields["topic"]
        place = _Half(first, int(fields["commitLogOffset"]), int(fields["tranStateTableOffset"]))
        self._halves.note(topic, transaction_id, place)
        request = s.RecoverOrphanedTransactionCommand(transaction_id=transaction_id)
        fill_incoming(request.message, half, topic, None, 1)
        client.stream.send(s.TelemetryCommand(status=OK, recover_orphaned_transaction_command=request))

    def _first_offset(self, half: ParsedRecord) -> int:
        """Returns the queue offset at which a half message that is being checked was stored first.

        Raises FormatError if the message does not state it, and its record is invalid or has been deleted.
        """
        stated = half.properties.get(properties.TRANSACTION_PREPARED_QUEUE_OFFSET)
        if stated is not None:
            return java.parse_long(stated)
        # The first check: the message has the queue offset of its copy, but still its own physical offset.
        data = self._core.broker.messages.message_at(half.record.physical_offset)
        return parsed_record(data or b"").record.queue_offset

    async def recall(self, call: Call, request: s.RecallMessageRequest) -> bytes:
        """Handles the RPC RecallMessage."""
        topic = self._core.topic(request.topic)
        self._core.check_type(topic, d.DELAY)
        try:
            parse_handle(request.recall_handle)
        except RefusalError as error:
            raise thrown(d.INTERNAL_SERVER_ERROR, error.remark) from error
        fields = {"producerGroup": topic, "topic": topic, "recallHandle": request.recall_handle}
        answer = await self._core.call(RequestCode.RECALL_MESSAGE, fields, call.peer)
        return s.RecallMessageResponse(status=OK, message_id=answer.fields.get("msgId", "")).SerializeToString()


def consistent_hash(value: int, buckets: int) -> int:
    """Returns the bucket of a number, computed like Guava's Hashing.consistentHash (LinearCongruentialGenerator)."""
    state, candidate = value & 0xFFFF_FFFF_FFFF_FFFF, 0
    while True:
        state = (2_862_933_555_777_941_757 * state + 1) & 0xFFFF_FFFF_FFFF_FFFF
        following = int((candidate + 1) / (((state >> 33) + 1) / 2**31))
        if not 0 <= following < buckets:
            return candidate
        candidate = following


def _check_batch(request: s.SendMessageRequest, topic: str) -> None:
    """Raises StatusError for batches that clients of a broker do not send (MessageBatch.generateFromList).

    A broker stores the messages of a batch at once and ignores their delivery times.
    """
    if any(message.system_properties.HasField("delivery_timestamp") for message in request.messages):
        raise StatusError(d.INTERNAL_SERVER_ERROR, "Delayed messages are not supported for batching")
    if topic.startswith(RETRY_PREFIX):
        raise StatusError(d.INTERNAL_SERVER_ERROR, "Retry group topics are not supported for batching")
