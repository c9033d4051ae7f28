"""Queries a running broker about consumer offsets and queues over the admin protocol, with the methods of a store."""

import asyncio
from collections.abc import Iterator
from functools import cached_property
from types import TracebackType
from typing import Any, Self

from mqtool.errors import FormatError, RemoteProtocolError
from mqtool.formats import commit_log, config_files, java, java_properties
from mqtool.formats.commit_log import Record
from mqtool.formats.config_files import ConsumerOffsets
from mqtool.formats.release import Release
from mqtool.protocol.codes import RequestCode, ResponseCode
from mqtool.protocol.command import Command
from mqtool.protocol.registration_body import document_in
from mqtool.server.net.addresses import parse_address
from mqtool.server.net.client import Connection
from mqtool.server.net.credentials import own_signing
from mqtool.server.net.loop import loop_factory
from mqtool.store.message import from_record
from mqtool.store.queue_messages import QueueMessage

_ANSWER_SECONDS = 15.0
_GROUP = "TOOLS_CONSUMER"
"""Consumer group of mqadmin, which every broker has."""
_HAS_SUBSCRIPTION = 4
"""Bit of a pull's sysFlag: the request contains its subscription (PullSysFlag)."""
_AT_ONCE = 32
_FIRST_5 = (5, 0)


class BrokerPositions:
    """Queries and changes consumer offsets of a broker; a context manager, and `QueueMessages`.

    Must not be used where an event loop is running.

    Attributes:
        address: "host:port" of the broker.
    """

    def __init__(self, address: str) -> None:
        """Creates a client for the broker at "host:port"; requests are signed as `own_signing` determines.

        Raises:
            UsageError: the address is invalid.
        """
        parse_address(address)
        self._sign = own_signing()
        self.address = address
        self._runner = asyncio.Runner(loop_factory=loop_factory())
        self._connection: Connection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._runner.run(self._close())
        self._runner.close()

    async def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def call(self, code: RequestCode, **fields: object) -> Command:
        """Sends a request and returns the answer, whatever its code.

        Raises:
            ConnectionError: the broker does not answer.
        """
        texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in fields.items()}
        return self._runner.run(self._call(Command(code, fields=texts)))

    async def _call(self, command: Command) -> Command:
        try:
            if self._connection is None or self._connection.closed:
                self._connection = await Connection.open(self.address, sign=self._sign)
            return await self._connection.call(command, _ANSWER_SECONDS)
        except TimeoutError as error:
            raise ConnectionError(f"broker {self.address}: no answer in {_ANSWER_SECONDS:g} s") from error

    def call_ok(self, code: RequestCode, **fields: object) -> Command:
        """Sends a request that must succeed and returns the answer.

        Raises:
            RemoteProtocolError: the answer's code is not SUCCESS.
            ConnectionError: the broker does not answer.
        """
        answer = self.call(code, **fields)
        if answer.code != ResponseCode.SUCCESS:
            raise RemoteProtocolError(f"broker {self.address}: {code.name}: {answer.outcome}")
        return answer

    # -- the broker ----------------------------------------------------------------------------------------------

    @cached_property
    def settings(self) -> dict[str, str]:
        """Configuration of the broker."""
        return dict(self._parsed(self.call_ok(RequestCode.GET_BROKER_CONFIG).body, java_properties.parse))

    @property
    def name(self) -> str:
        """The broker's brokerName."""
        return self.settings.get("brokerName", "")

    @cached_property
    def release(self) -> Release:
        """Release of the broker, from the version that it states."""
        table = document_in(self.call_ok(RequestCode.GET_BROKER_RUNTIME_INFO).body).get("table")
        version = str((table if isinstance(table, dict) else {}).get("brokerVersionDesc", ""))
        numbers = [int(part) for part in version.lstrip("Vv").split("_")[:2] if part.isdigit()]
        return Release(*numbers) if len(numbers) == 2 else Release(4, 0)

    @property
    def resets_by_itself(self) -> bool:
        """Whether the broker itself resets offsets of running consumers by queue (useServerSideResetOffset, 5.0)."""
        return self.release >= _FIRST_5 and self.settings.get("useServerSideResetOffset") == "true"

    def groups(self) -> set[str]:
        """Returns the consumer groups that have a configuration."""
        body = self.call_ok(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).body
        return set(self._parsed(body, config_files.parse_groups).subscription_group_table)

    def members(self, group: str) -> list[str]:
        """Returns the client ids of a consumer group's running members."""
        answer = self.call(RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup=group)
        if answer.code != ResponseCode.SUCCESS:  # CONSUMER_NOT_ONLINE
            return []
        members = document_in(answer.body).get("connectionSet")
        return sorted(str(member.get("clientId")) for member in members or () if isinstance(member, dict))

    def _parsed(self, data: Any, parse: Any) -> Any:
        try:
            return parse(bytes(data))
        except FormatError as error:
            raise RemoteProtocolError(f"broker {self.address}: {error}") from error

    # -- positions -----------------------------------------------------------------------------------------------

    def committed(self) -> dict[str, dict[str, dict[int, int]]]:
        """Returns consumer offsets by group, topic and queue id; for the broker, a negative one means none."""
        answer = self.call_ok(RequestCode.GET_ALL_CONSUMER_OFFSET)
        offsets: ConsumerOffsets = self._parsed(answer.body, config_files.parse_consumer_offsets)
        return {
            group: {
                topic: {queue: offset for queue, offset in own.items() if offset >= 0}
                for topic, own in by_topic.items()
            }
            for group, by_topic in offsets.by_group().items()
        }

    # -- queues --------------------------------------------------------------------------------------------------

    def topics(self) -> dict[str, tuple[int, ...]]:
        """Returns the queue ids of each topic that has a configuration."""
        answer = self.call_ok(RequestCode.GET_ALL_TOPIC_CONFIG)
        table = self._parsed(answer.body, config_files.parse_topics).topic_config_table
        return {
            name: tuple(range(max(config.read_queue_nums, config.write_queue_nums))) for name, config in table.items()
        }

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int] | None:
        """Returns (min offset, max offset) of a queue; None if the queue does not exist."""
        codes = (RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET)
        low, high = (self._number(self.call_ok(code, topic=topic, queueId=queue_id), "offset") for code in codes)
        return max(0, low), max(0, high)

    def at_time(self, topic: str, queue_id: int, time: int) -> int:
        """Returns the queue offset for a store timestamp in ms."""
        code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
        return max(0, self._number(self.call_ok(code, topic=topic, queueId=queue_id, timestamp=time), "offset"))

    def messages(self, topic: str, queue_id: int, start: int, end: int) -> Iterator[QueueMessage]:
        """Yields the messages with queue offsets in [start, end), in order."""
        at = start
        while at < end:
            answer = self._pull(topic, queue_id, at, min(_AT_ONCE, end - at))
            for record in self._records(answer.body):
                if start <= record.queue_offset < end:
                    yield QueueMessage.of(from_record(record))
            following = self._number(answer, "nextBeginOffset")
            if following <= at:
                return
            at = following

    def message(self, topic: str, queue_id: int, queue_offset: int) -> QueueMessage | None:
        """Returns one message; None if the broker does not return it."""
        return next(self.messages(topic, queue_id, queue_offset, queue_offset + 1), None)

    def _pull(self, topic: str, queue_id: int, start: int, count: int) -> Command:
        """Sends a pull that commits no offset and returns the answer."""
        return self.call(
            RequestCode.PULL_MESSAGE,
            consumerGroup=_GROUP,
            topic=topic,
            queueId=queue_id,
            queueOffset=start,
            maxMsgNums=count,
            sysFlag=_HAS_SUBSCRIPTION,
            commitOffset=0,
            suspendTimeoutMillis=0,
            subscription="*",
            subVersion=0,
            expressionType="TAG",
        )

    def _records(self, data: Any) -> Iterator[Record]:
        view, at = memoryview(bytes(data)), 0
        try:
            while at < len(view):
                record = commit_log.parse_record(view, at)
                yield record
                at += record.total_size
        except FormatError as error:
            raise RemoteProtocolError(f"broker {self.address}: answer to a pull: {error}") from error

    def _number(self, answer: Command, name: str) -> int:
        try:
            return java.parse_long(answer.fields[name])
        except (KeyError, FormatError) as error:
            raise RemoteProtocolError(f"broker {self.address}: expected {name} in {answer.outcome}") from error
