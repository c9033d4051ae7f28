"""Replication over RocketMQ's HA protocol: its frames, the listener for slaves, and what a slave asks its master for.

The HA stream has unchanged bytes of the CommitLog in transfers. A slave reports the max physical offset of its log; the
master sends bytes from there. A transfer may end anywhere in a record, but never spans two segments. Replication is
asynchronous: producers are answered without waiting for a slave. File sizes, bounds of the log, and tables are
requests of the remoting protocol. `mirror` follows a master. Docs page: docs/protocol.md. Source: DefaultHAService,
DefaultHAConnection, DefaultHAClient, SlaveSynchronize (4.9.7, 5.5.0), AdminBrokerProcessor, and wire captures.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct

from mqtool.choices import Compat
from mqtool.engine.config_files import ConfigFiles
from mqtool.engine.disk.files import Files
from mqtool.engine.options import StoreOptions, options_from_config
from mqtool.engine.store import MessageStore
from mqtool.errors import FormatError, RemoteProtocolError
from mqtool.formats import config_files, config_json, file_names, java
from mqtool.formats.codec import Buffer, Unit, i32, i64
from mqtool.formats.commit_log import BLANK_SIZE, FRAME, frame_size
from mqtool.formats.config_files import ConsumerOffsets, Topics
from mqtool.formats.config_json import JsonStyle
from mqtool.formats.release import ON_THE_WIRE, V4_9, V5_3, Release
from mqtool.protocol.command import Command, RequestCode, ResponseCode
from mqtool.protocol.registration_body import FIRST_WITH_MAPPINGS, document_in
from mqtool.server.net.connections import Connection, listening_on, parse_address
from mqtool.store.config.broker_config import BrokerConfig

log = logging.getLogger(__name__)

MAX_TRANSFER = 16 << 20
"""Maximum size of a transfer that is accepted, in bytes; a master sends 32 KiB (haTransferBatchSize)."""

BATCH_SIZE = 32 << 10
"""Maximum size of one transfer in bytes (haTransferBatchSize)."""

HEARTBEAT_SECONDS = 5.0
SILENCE_SECONDS = 20.0
POLL_SECONDS = 0.01
"""Interval in seconds at which an idle connection checks for new records; only while there is a slave."""

SHAPING = frozenset(
    {
        "mappedFileSizeCommitLog",
        "mappedFileSizeConsumeQueue",
        "enableConsumeQueueExt",
        "mappedFileSizeConsumeQueueExt",
        "mapperFileSizeBatchConsumeQueue",
        "bitMapLengthConsumeQueueExt",
        "messageIndexEnable",
        "maxHashSlotNum",
        "maxIndexNum",
        "messageDelayLevel",
        "maxMessageSize",
        "enableLmq",
        "enableMultiDispatch",
    }
)
"""Broker properties that determine the layout of its files, and therefore that of the copy."""

_TABLES: dict[str, tuple[RequestCode, Callable[[Buffer], Any], Callable[[Any, JsonStyle], bytes]]] = {
    file_names.TOPICS: (RequestCode.GET_ALL_TOPIC_CONFIG, config_files.parse_topics, config_files.build_topics),
    file_names.CONSUMER_OFFSETS: (
        RequestCode.GET_ALL_CONSUMER_OFFSET,
        config_files.parse_consumer_offsets,
        config_files.build_consumer_offsets,
    ),
    file_names.DELAY_OFFSETS: (
        RequestCode.GET_ALL_DELAY_OFFSET,
        config_files.parse_delay_offsets,
        config_files.build_delay_offsets,
    ),
    file_names.SUBSCRIPTION_GROUPS: (
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        config_files.parse_groups,
        config_files.build_groups,
    ),
    file_names.MESSAGE_REQUEST_MODE: (RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, config_json.parse, config_json.build),
}
"""By configuration file: the request for its table, the parser of the answer, and the function that builds the file."""

_TRIES = 6
TRY_AGAIN_SECONDS = 0.5

_MAPPINGS, _MAPPINGS_VERSION = "topicQueueMappingDetailMap", "mappingDataVersion"
"""Members of the answer with the topics that a 5.x broker stores in topicQueueMapping.json."""
_FOR_NAME_SERVERS = "topicQueueMappingInfoMap"
"""A member that is stored nowhere, although it has the name of the table in that file."""


class Transfer(Struct, frozen=True):
    """The header of a transfer; an empty transfer is a heartbeat."""

    physical_offset: int
    body_size: int


TRANSFER = Unit(
    "HA transfer",
    Transfer,
    i64("physical_offset", "physical offset of the bytes that follow"),
    i32("body_size", "number of bytes that follow; 0 for a heartbeat"),
)


class Report(Struct, frozen=True):
    """What a slave sends whenever its log has grown, and every 5 s."""

    physical_offset: int


REPORT = Unit(
    "HA report", Report, i64("physical_offset", "physical offset at which the slave's log ends; 0 if it is empty")
)


class Piece(NamedTuple):
    """Bytes of the CommitLog. A heartbeat has no bytes; its offset is the next one that the master will send."""

    physical_offset: int
    data: bytes


class TransferReader:
    """Splits the bytes that a master sends into transfers, independently of how they were received."""

    def __init__(self) -> None:
        self._kept = bytearray()

    def feed(self, data: bytes) -> Iterator[Piece]:
        """Adds received bytes; yields the transfers that are now complete.

        Raises RemoteProtocolError if one states an offset below 0 or a size outside 0 to `MAX_TRANSFER`.
        """
        self._kept += data
        while len(self._kept) >= TRANSFER.size:
            offset, size = TRANSFER.struct.unpack_from(self._kept)
            if offset < 0 or not 0 <= size <= MAX_TRANSFER:
                raise RemoteProtocolError(
                    f"{size} bytes at physical offset {offset}: no master sends a piece of this size"
                )
            end = TRANSFER.size + size
            if len(self._kept) < end:
                return
            piece = Piece(offset, bytes(self._kept[TRANSFER.size : end]))
            del self._kept[:end]
            yield piece


class RecordAssembler:
    """Joins transfers, from a physical offset on, to complete frames: records, and BLANKs at the end of segments."""

    def __init__(self, physical_offset: int, segment_size: int) -> None:
        self._offset, self._segment_size = physical_offset, segment_size
        self._kept = bytearray()

    @property
    def expected(self) -> int:
        """The physical offset of the next byte."""
        return self._offset + len(self._kept)

    def feed(self, piece: Piece) -> Iterator[Piece]:
        """Adds a transfer; yields the frames that are now complete.

        Raises RemoteProtocolError if it does not start where the previous one ended, or its bytes are not a record.
        """
        if piece.physical_offset != self.expected:
            raise RemoteProtocolError(f"the master sends physical offset {piece.physical_offset}, not {self.expected}")
        self._kept += piece.data
        start = 0
        while len(self._kept) - start >= BLANK_SIZE:
            offset = self._offset + start
            size = frame_size(self._kept, start, self._segment_size - offset % self._segment_size)
            if not size:
                stated, magic_code = FRAME.unpack_from(self._kept, start)
                raise RemoteProtocolError(
                    f"the master's log holds no record at physical offset {offset}: size {stated}, "
                    f"magic code {magic_code}; verify its store"
                )
            if len(self._kept) - start < size:
                break
            yield Piece(offset, bytes(self._kept[start : start + size]))
            start += size
        del self._kept[:start]
        self._offset += start


class HaListener:
    """Accepts slaves on one address; "" is all addresses, port 0 a free one, see `port` after `start`.

    `acknowledged` is the physical offset up to which a slave has the log, by address of the slave.
    """

    def __init__(self, store: MessageStore, host: str, port: int) -> None:
        self._store = store
        self._log = store._components.log  # raw bytes are not part of the engine's façade
        self._host, self.port = host, port
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.acknowledged: dict[str, int] = {}

    async def start(self) -> None:
        """Starts listening; raises UsageError if the address cannot be bound."""
        with listening_on(self._host, self.port, " for slaves"):
            self._server = await asyncio.start_server(self._serve, self._host or None, self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Closes all connections."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        host, port = writer.get_extra_info("peername")[:2]
        slave = f"{host}:{port}"
        sending: asyncio.Task[None] | None = None
        try:
            start = await self._report(reader)
            log.info("slave follows address=%s offset=%d", slave, start)
            sending = asyncio.ensure_future(self._send(writer, start or self._last_segment()))
            while True:
                self.acknowledged[slave] = await self._report(reader)
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            log.info("slave disconnected address=%s reason=%s", slave, error)
        finally:
            self.acknowledged.pop(slave, None)
            self._tasks.discard(task)
            if sending is not None:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _report(self, reader: asyncio.StreamReader) -> int:
        async with asyncio.timeout(SILENCE_SECONDS):
            return int(REPORT.parse(await reader.readexactly(REPORT.size)).physical_offset)

    def _last_segment(self) -> int:
        """Returns the physical offset of the last segment, at which an empty slave begins."""
        end = self._log.queue.wrote_offset
        return max(0, self._log.queue.min_offset, end - end % self._store.options.commit_log_file_size)

    async def _send(self, writer: asyncio.StreamWriter, position: int) -> None:
        clock = asyncio.get_running_loop().time
        spoken = -HEARTBEAT_SECONDS
        while not writer.is_closing():
            data = self._read(position)
            if data is None:
                log.warning("the log has no physical offset %d; the slave is disconnected", position)
                writer.close()
                return
            if len(data) or clock() - spoken >= HEARTBEAT_SECONDS:
                writer.write(TRANSFER.build(Transfer(position, len(data))))
                writer.write(data)
                position += len(data)
                spoken = clock()
                await writer.drain()
            else:
                await asyncio.sleep(POLL_SECONDS)

    def _read(self, position: int) -> memoryview | None:
        """Returns the bytes from a physical offset to the end of its segment or the log; None if it is in neither."""
        queue = self._log.queue
        if not max(0, queue.min_offset) <= position <= queue.wrote_offset:
            return None
        file = queue.find(position)
        if position == queue.wrote_offset or file is None:
            return memoryview(b"")
        left = file.read_position - (position - file.file_from_offset)
        return self._log.read(position, min(left, BATCH_SIZE)) or memoryview(b"")


class MasterFacts(Struct, frozen=True):
    """Properties of a master."""

    options: StoreOptions  # options with which the copy is opened
    ha_address: str  # "host:port" from which the log is sent
    # min_offset, max_offset: physical offsets of its log
    min_offset: int
    max_offset: int
    name: str  # name of the broker


async def fetch_facts(connection: Connection) -> MasterFacts:
    """Queries the properties of a master that a copy needs.

    Raises RemoteProtocolError if the server is not a master; ConnectionError or TimeoutError without an answer.
    """
    answer = await _ask(connection, RequestCode.GET_BROKER_CONFIG)
    values = java.parse_properties(bytes(answer.body))
    if values.get("brokerRole", "ASYNC_MASTER") == "SLAVE":
        raise RemoteProtocolError(f"{connection.address} is a slave itself; name its master")
    runtime = await _ask(connection, RequestCode.GET_BROKER_RUNTIME_INFO)
    table = document_in(runtime.body).get("table") or {}
    older = (release for release, number in ON_THE_WIRE.items() if number <= answer.version)
    compat = Compat(str(max([V4_9 if answer.version < FIRST_WITH_MAPPINGS else V5_3, *older])))
    shape = BrokerConfig({key: value for key, value in values.items() if key in SHAPING}, source=connection.address)
    if values.get("haListenPort") == "0":
        raise RemoteProtocolError(
            f"{connection.address} does not send its log to slaves; start mqtool serve with --set haListenPort=10912"
        )
    try:
        return MasterFacts(
            options_from_config(shape, StoreOptions(compat=compat)),
            f"{parse_address(connection.address)[0]}:{int(values['haListenPort'])}",
            int(table["commitLogMinOffset"]),
            int(table["commitLogMaxOffset"]),
            values.get("brokerName", ""),
        )
    except (KeyError, ValueError) as error:
        raise RemoteProtocolError(f"{connection.address} does not answer as a master does: {error!r}") from error


async def sync_tables(connection: Connection, root: Path, *, release: Release) -> None:
    """Copies topics, mappings of static topics, groups, offsets, and how groups get messages, into files of the copy.

    Source: SlaveSynchronize, LmqConsumerOffsetManager.encode (5.5.0); a real slave leaves out the offsets of LMQs.
    Raises RemoteProtocolError if an answer cannot be parsed, after writing the files before it; ConnectionError or
    TimeoutError if the master does not answer.
    """
    files = ConfigFiles(root, Files(), release=release)
    for name, (code, parse, build) in _TABLES.items():
        answer = await _ask(connection, code, optional=name == file_names.MESSAGE_REQUEST_MODE)
        if not len(answer.body):
            continue
        try:
            table = parse(bytes(answer.body))
        except FormatError as error:
            raise RemoteProtocolError(f"answer to {code.name}: {error}") from error
        if isinstance(table, Topics):
            _save_mappings(files, table)
        files.save(_file_of(name, table), build(table, files.style))


def _save_mappings(files: ConfigFiles, topics: Topics) -> None:
    """Moves the mappings of static topics from an answer into their own file, if the master knows such topics."""
    mappings, version = topics.extra.pop(_MAPPINGS, None), topics.extra.pop(_MAPPINGS_VERSION, None)
    topics.extra.pop(_FOR_NAME_SERVERS, None)
    if version is not None:
        table = {"dataVersion": version, "topicQueueMappingInfoMap": mappings or {}}
        files.save(file_names.TOPIC_QUEUE_MAPPING, config_json.build(table, files.style))


def _file_of(name: str, table: Any) -> str:
    """Returns the file for a table: a master with enableLmq, and a slave, have positions in lmqConsumerOffset.json."""
    has_lmq = isinstance(table, ConsumerOffsets) and table.lmq_offset_table is not None
    return file_names.LMQ_CONSUMER_OFFSETS if has_lmq else name


async def _ask(connection: Connection, code: RequestCode, *, optional: bool = False) -> Command:
    """Sends a request and returns the answer; retries while a 4.9 broker has no statistics.

    A 4.9 broker that has just started fails at statistics until it has taken a sample. Earlier releases do not know an
    optional request; their answer has no body.
    """
    for _ in range(_TRIES):
        answer = await connection.call(Command(code), timeout=10)
        if answer.code != ResponseCode.SYSTEM_ERROR:
            break
        await asyncio.sleep(TRY_AGAIN_SECONDS)
    if answer.code != ResponseCode.SUCCESS and not (
        optional and answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    ):
        raise RemoteProtocolError(f"{connection.address} answered {code.name} with {answer.code}: {answer.remark}")
    return answer
