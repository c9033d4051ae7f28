"""Requests of a slave other than for the log: file sizes, bounds of the log, and tables.

Source: SlaveSynchronize (4.9.7, 5.5.0), AdminBrokerProcessor.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import Struct

from mqtool.choices import Compat
from mqtool.engine.config_files import ConfigFiles
from mqtool.engine.disk.files import Files
from mqtool.engine.options import StoreOptions, options_from_config
from mqtool.errors import FormatError, RemoteProtocolError
from mqtool.formats import config_files, config_json, file_names, java
from mqtool.formats.codec import Buffer
from mqtool.formats.config_files import ConsumerOffsets, Topics
from mqtool.formats.config_json import JsonStyle
from mqtool.formats.release import Release
from mqtool.protocol.codes import RequestCode, ResponseCode
from mqtool.protocol.command import Command
from mqtool.protocol.registration_body import FIRST_WITH_MAPPINGS, document_in
from mqtool.server.net.addresses import parse_address
from mqtool.server.net.client import Connection
from mqtool.store.config.broker_config import BrokerConfig

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
    file_names.MESSAGE_REQUEST_MODE: (
        RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,
        config_json.parse,
        config_json.build,
    ),
}
"""By configuration file: the request for its table, the parser of the answer, and the function that builds the file."""

_TRIES = 6
_TRY_AGAIN_SECONDS = 0.5

_MAPPINGS, _MAPPINGS_VERSION = "topicQueueMappingDetailMap", "mappingDataVersion"
"""Members of the answer with the topics that a 5.x broker stores in topicQueueMapping.json."""
_FOR_NAME_SERVERS = "topicQueueMappingInfoMap"
"""A member that is stored nowhere, although it has the name of the table in that file."""


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

    Raises:
        RemoteProtocolError: the server is not a broker, or not a master.
        ConnectionError, TimeoutError: the server does not answer.
    """
    answer = await _ask(connection, RequestCode.GET_BROKER_CONFIG)
    values = java.parse_properties(bytes(answer.body))
    if values.get("brokerRole", "ASYNC_MASTER") == "SLAVE":
        raise RemoteProtocolError(f"{connection.address} is a slave itself; name its master")
    runtime = await _ask(connection, RequestCode.GET_BROKER_RUNTIME_INFO)
    table = document_in(runtime.body).get("table") or {}
    compat = Compat.V4_9 if answer.version < FIRST_WITH_MAPPINGS else Compat.V5_5
    shape = BrokerConfig({key: value for key, value in values.items() if key in SHAPING}, source=connection.address)
    if values.get("haListenPort") == "0":
        raise RemoteProtocolError(
            f"{connection.address} sends its log to no slave; start mqtool serve with --set haListenPort=10912"
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

    Raises:
        RemoteProtocolError: an answer cannot be parsed; files before it have been written.
        ConnectionError, TimeoutError: the master does not answer.
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
        await asyncio.sleep(_TRY_AGAIN_SECONDS)
    if answer.code != ResponseCode.SUCCESS and not (
        optional and answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    ):
        raise RemoteProtocolError(f"{connection.address} answered {code.name} with {answer.code}: {answer.remark}")
    return answer
