"""The body with which a broker registers at a name server: its topics and their data version.

It is JSON, or a compressed format of RocketMQ's own (`compressedRegister`). Docs page: docs/protocol.md. Source:
RegisterBrokerBody, TopicConfig.encode (4.9.7, 5.5.0).
"""

import json
import zlib
from typing import Any

import orjson
from msgspec import Struct, field
from msgspec.structs import replace

from mqtool.errors import FormatError, RemoteProtocolError
from mqtool.formats import config_json
from mqtool.formats.config_files import DataVersion, TopicConfig
from mqtool.formats.config_json import Document, bean_of, document_of, expect
from mqtool.protocol.frames import TEXT_LENGTH

MAX_SIZE = 64 << 20
"""Maximum size of a compressed body after decompression, in bytes."""

FIRST_WITH_MAPPINGS = 413
"""V5_0_0: from this version on, the compressed form ends with the queue mappings of static topics."""

_SEPARATOR = " "
_ZLIB = 0x78  # first byte of zlib data; JSON never begins with it


class RegisterBody(Struct, frozen=True):
    """The content of a registration."""

    topics: dict[str, TopicConfig] = field(default_factory=dict)  # topic configurations by name
    # version of the topics; the name server compares it to detect changes
    data_version: DataVersion = field(default_factory=lambda: DataVersion(0, 0, 0))
    filter_servers: list[str] = field(default_factory=list)  # addresses of filter servers, an obsolete part of RocketMQ
    mappings: dict[str, Document] = field(default_factory=dict)  # queue mappings of static topics, by topic


def document_in(body: bytes | memoryview) -> Document:
    """Parses a JSON object, also with numbers without quotes as keys; raises RemoteProtocolError for anything else."""
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        try:
            document = config_json.parse(body)
        except FormatError as error:
            raise RemoteProtocolError(str(error)) from error
    if not isinstance(document, dict):
        raise RemoteProtocolError(f"expected a JSON object, found a {type(document).__name__}")
    return document


def parse(body: bytes | memoryview, *, compressed: bool, version: int) -> RegisterBody:
    """Parses the body of a registration by a broker of a version; an empty body has no topics.

    Brokers of 5.5.0 with `compressedRegister` compress but send `compressed` as false, so the first byte is checked
    too. Raises RemoteProtocolError if the body cannot be parsed.
    """
    if not len(body):
        return RegisterBody()
    try:
        if compressed or body[0] == _ZLIB:
            return _parse_compressed(bytes(body), version)
        return _parse_json(document_in(body))
    except (FormatError, ValueError, UnicodeDecodeError) as error:
        raise RemoteProtocolError(f"body of a registration: {error}") from error


def build(body: RegisterBody, *, compressed: bool = False) -> bytes:
    """Returns the body as a 5.5.0 broker sends it; 4.9 name servers can read it too."""
    if compressed:
        return _build_compressed(body)
    wrapper = {
        "dataVersion": document_of(body.data_version),
        "mappingDataVersion": document_of(DataVersion(0, 0, 0)),
        "topicConfigTable": {name: _plain(config) for name, config in body.topics.items()},
        "topicQueueMappingDetailMap": {},
        "topicQueueMappingInfoMap": body.mappings,
    }
    return orjson.dumps({"filterServerList": body.filter_servers, "topicConfigSerializeWrapper": wrapper})


def _plain(config: TopicConfig) -> Document:
    return document_of(config if config.attributes is not None else replace(config, attributes={}))


def _parse_json(document: Document) -> RegisterBody:
    wrapper = expect(dict, document.get("topicConfigSerializeWrapper") or {}, "topicConfigSerializeWrapper")
    table = expect(dict, wrapper.get("topicConfigTable") or {}, "topicConfigTable")
    topics = {str(name): bean_of(TopicConfig, config, f"topicConfigTable.{name}") for name, config in table.items()}
    version = bean_of(DataVersion, wrapper.get("dataVersion") or {}, "dataVersion")
    servers = expect(list, document.get("filterServerList") or [], "filterServerList")
    mappings = expect(dict, wrapper.get("topicQueueMappingInfoMap") or {}, "topicQueueMappingInfoMap")
    return RegisterBody(topics, version, [str(server) for server in servers], mappings)


def _parse_compressed(data: bytes, version: int) -> RegisterBody:
    inflater = zlib.decompressobj()
    try:
        plain = inflater.decompress(data, MAX_SIZE)
    except zlib.error as error:
        raise RemoteProtocolError(f"compressed data cannot be read: {error}") from error
    if inflater.unconsumed_tail:
        raise RemoteProtocolError(f"more than {MAX_SIZE} bytes inside")
    reader = _Reader(plain)
    data_version = bean_of(DataVersion, _object(reader.text()), "dataVersion")
    topics = {}
    for _ in range(reader.number()):
        config = _topic_of(reader.text())
        topics[config.topic_name] = config
    servers = json.loads(reader.text() or "[]") or []
    mappings = {}
    if version >= FIRST_WITH_MAPPINGS and not reader.at_end:
        for _ in range(reader.number()):
            mapping = _object(reader.text())
            mappings[str(mapping.get("topic"))] = mapping
    return RegisterBody(
        topics, data_version, [str(server) for server in expect(list, servers, "filterServerList")], mappings
    )


def _build_compressed(body: RegisterBody) -> bytes:
    pieces: list[bytes] = []

    def number(value: int) -> None:
        pieces.append(TEXT_LENGTH.struct.pack(value))

    def text(value: str) -> None:
        encoded = value.encode()
        number(len(encoded))
        pieces.append(encoded)

    text(_compact(document_of(body.data_version)))
    number(len(body.topics))
    for config in body.topics.values():
        words = [
            config.topic_name,
            config.read_queue_nums,
            config.write_queue_nums,
            config.perm,
            config.topic_filter_type,
        ]
        text(_SEPARATOR.join(map(str, words)) + (_SEPARATOR + _compact(config.attributes) if config.attributes else ""))
    text(_compact(body.filter_servers))
    number(len(body.mappings))
    for mapping in body.mappings.values():
        text(_compact(mapping))
    return zlib.compress(b"".join(pieces), 9)


def _topic_of(text: str) -> TopicConfig:
    name, reads, writes, perm, kind, *rest = text.split(_SEPARATOR, 5)
    attributes = _object(rest[0]) if rest else None
    return TopicConfig(
        topic_name=name,
        read_queue_nums=int(reads),
        write_queue_nums=int(writes),
        perm=int(perm),
        topic_filter_type=kind,
        attributes=attributes,
    )


def _object(text: str) -> Document:
    return document_in(text.encode())


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


class _Reader:
    """Reads numbers and length-prefixed texts from a buffer."""

    def __init__(self, data: bytes) -> None:
        self._data, self._position = data, 0

    @property
    def at_end(self) -> bool:
        return self._position >= len(self._data)

    def number(self) -> int:
        return int(TEXT_LENGTH.parse(self._take(TEXT_LENGTH.size)).text_length)

    def text(self) -> str:
        return self._take(self.number()).decode()

    def _take(self, size: int) -> bytes:
        end = self._position + size
        if size < 0 or end > len(self._data):
            raise RemoteProtocolError(f"{size} bytes at position {self._position} of {len(self._data)}")
        piece, self._position = self._data[self._position : end], end
        return piece
