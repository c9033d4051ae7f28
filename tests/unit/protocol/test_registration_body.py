"""The body of a registration, plain and compressed."""

import zlib

import pytest

from mqtool.errors import RemoteProtocolError
from mqtool.formats.config_files import DataVersion, TopicConfig
from mqtool.protocol.registration_body import RegisterBody, build, parse

TOPICS = {"T": TopicConfig("T", 4, 8, 6, attributes={"queue.type": "BatchCQ"}), "Ünï": TopicConfig("Ünï", 1, 1, 2)}
BODY = RegisterBody(
    TOPICS, DataVersion(3, 1_700_000_000_000, 5), ["10.0.0.1:1"], {"T": {"topic": "T", "totalQueues": 4}}
)


@pytest.mark.parametrize("compressed", [False, True], ids=["plain", "compressed"])
def test_what_was_built_is_read_again(compressed):
    found = parse(build(BODY, compressed=compressed), compressed=compressed, version=513)
    assert found.data_version == BODY.data_version
    assert {
        name: (one.read_queue_nums, one.write_queue_nums, one.perm, one.attributes or None)
        for name, one in found.topics.items()
    } == {"T": (4, 8, 6, {"queue.type": "BatchCQ"}), "Ünï": (1, 1, 2, None)}
    assert (found.filter_servers, found.mappings) == (BODY.filter_servers, BODY.mappings)


def test_a_body_of_4_9_has_no_mappings():
    assert parse(build(BODY, compressed=True), compressed=True, version=407).mappings == {}


def test_a_compressed_body_is_known_by_its_first_byte():
    assert parse(build(BODY, compressed=True), compressed=False, version=513).topics.keys() == TOPICS.keys()


def test_an_empty_body_says_nothing():
    assert parse(b"", compressed=False, version=513) == RegisterBody()


def test_every_shorter_compressed_body_is_refused():
    plain = zlib.decompress(build(RegisterBody(TOPICS), compressed=True))
    for size in range(len(plain) - 4):
        with pytest.raises(RemoteProtocolError):
            parse(zlib.compress(plain[:size]), compressed=True, version=513)


@pytest.mark.parametrize(
    "body",
    [
        b"x",
        b"[]",
        b"{",
        b'{"topicConfigSerializeWrapper":5}',
        b'{"topicConfigSerializeWrapper":{"topicConfigTable":[1]}}',
        b"\x78\x9cjunk",
    ],
    ids=["letter", "list", "open", "number", "list-table", "junk"],
)
def test_a_body_that_is_none_is_refused(body):
    with pytest.raises(RemoteProtocolError):
        parse(body, compressed=False, version=513)


def test_a_bomb_is_refused():
    bomb = zlib.compress(bytes(65 << 20), 9)
    with pytest.raises(RemoteProtocolError, match="more than"):
        parse(bomb, compressed=True, version=513)
