"""Commands to bytes and back: the frames are those that RemotingCommand of 5.5.0 wrote, and what clients are known to send."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from mqtool.errors import LocalProtocolError, RemoteProtocolError
from mqtool.protocol import Command, Framer, RequestCode, Serialization, encode
from mqtool.protocol.frames import read_binary, read_json

REAL: dict[str, dict[str, Any]] = {
    f"{row['label']}-{row['serialization']}": row
    for row in map(json.loads, (Path(__file__).parent / "commands-5.5.0.jsonl").read_text("utf-8").splitlines())
}


def frame(command: Command) -> bytes:
    return b"".join(encode(command))


def of_row(row: dict[str, Any]) -> Command:
    return Command(
        row["code"],
        row["flag"],
        row["opaque"],
        row["remark"],
        row["fields"],
        bytes.fromhex(row["body"]),
        row["language"],
        row["version"],
        Serialization[row["serialization"]],
    )


def json_frame(header: str | bytes, body: bytes = b"") -> bytes:
    data = header if isinstance(header, bytes) else header.encode()
    return struct.pack(">ii", 4 + len(data) + len(body), len(data)) + data + body


@pytest.mark.parametrize("label", list(REAL))
def test_a_frame_of_java_is_read_as_the_command_it_was_made_of(label):
    assert Framer().feed(bytes.fromhex(REAL[label]["frame"])) == [of_row(REAL[label])]


@pytest.mark.parametrize("label", list(REAL))
def test_a_command_is_written_as_java_writes_it(label):
    expected = bytes.fromhex(REAL[label]["frame"])
    (command,) = Framer().feed(expected)
    assert frame(command) == expected


@pytest.mark.parametrize("serialization", list(Serialization), ids=lambda value: value.name)
@pytest.mark.parametrize("size", [0, 1, 16384, 16385, 1 << 20])
def test_bodies_of_all_sizes_come_back(serialization, size):
    command = Command(
        10, 0, 7, None, {"k": "v"}, bytes(range(256)) * (size // 256) + bytes(size % 256), serialization=serialization
    )
    assert Framer().feed(frame(command)) == [command]


def test_a_long_body_is_not_copied():
    body = memoryview(bytes(1 << 20))
    assert encode(Command(0, body=body))[1] is body


def test_an_answer_keeps_opaque_and_serialization_of_its_request():
    request = Command(11, 0, 99, serialization=Serialization.ROCKETMQ)
    answer = request.reply(19, "none", {"a": "b"}, b"body")
    assert (answer.opaque, answer.serialization, answer.flag) == (99, Serialization.ROCKETMQ, 1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            '"queueId":0,"k":false,"t":true,"x":1.5,"s":"text"',
            {"queueId": "0", "k": "false", "t": "true", "x": "1.5", "s": "text"},
        ),
        ('"n":null,"a":"b"', {"a": "b"}),
        ('"big":12345678901234567890', {"big": "12345678901234567890"}),
        ('"o":{"a":[1]}', {"o": '{"a":[1]}'}),
        ('"c":"a\\u0001b\\u0002"', {"c": "a\x01b\x02"}),
    ],
    ids=["numbers", "null", "unsigned", "nested", "control"],
)
def test_values_that_are_no_text_become_it(text, expected):
    """C++ and JavaScript send bare numbers and booleans."""
    header = '{"code":10,"language":"CPP","version":63,"opaque":4,"flag":0,"extFields":{' + text + "}}\n"
    assert read_json(header.encode()).fields == expected


@pytest.mark.parametrize("fields", ["", ',"extFields":null', ',"extFields":{}'], ids=["absent", "null", "empty"])
def test_no_fields_are_written_in_three_ways(fields):
    header = '{"code":34,"language":"JAVA","version":407,"opaque":4,"flag":0' + fields + "}"
    assert read_json(header.encode()).fields == {}


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ('{"code":34,"opaque":1}', Command(34, 0, 1, language="OTHER", version=0)),
        (
            '{"code":"34","opaque":"1","flag":"0","version":null,"language":9}',
            Command(34, 0, 1, language="GO", version=0),
        ),
        (
            '{"code":34,"opaque":1,"flag":0,"version":1,"language":"KLINGON"}',
            Command(34, 0, 1, language="KLINGON", version=1),
        ),
        ('{"code":34,"opaque":1,"flag":0,"version":1,"language":"JAVA","remark":5}', Command(34, 0, 1, "5", version=1)),
        (
            b'{"code":34,"opaque":1,"flag":0,"version":1,"language":"JAVA","remark":"\xff\x01"}',
            Command(34, 0, 1, "\ufffd\x01", version=1),
        ),
        (
            '{"code":34,"opaque":1,"flag":0,"version":1,"language":"JAVA","extFields":{"k":"\\ud800x"}}',
            Command(34, 0, 1, fields={"k": "?x"}, version=1),
        ),
    ],
    ids=["missing", "texts", "unknown language", "remark", "broken UTF-8", "half a character"],
)
def test_what_fastjson_takes_is_taken(header, expected):
    assert Framer().feed(json_frame(header)) == [expected]


@pytest.mark.parametrize(
    "header",
    [
        "",
        "{",
        "[]",
        "null",
        "5",
        '{"code":1e999}',
        '{"code":4294967296}',
        '{"code":true,"opaque":[]}',
        '{"code":"x"}',
        '{"code":1,"extFields":[]}',
        '{"code":1,"extFields":"x"}',
        '{"code":1,"flag":0,"opaque":1,"version":1,"language":"JAVA","extFields":["x"]}',
        "[" * 5000,
        '{"code":1,"extFields":{"a":%s}}' % ("[" * 900 + "]" * 900),
        '{"code":' + "9" * 5000 + "}",
        '{"code":1,"opaque":2147483648}',
    ],
    ids=[
        "empty",
        "open",
        "list",
        "null",
        "number",
        "infinite",
        "wide",
        "list-opaque",
        "letter",
        "list-fields",
        "text-fields",
        "list-fields-of-a-usual-header",
        "deep",
        "deep-value",
        "digits",
        "opaque",
    ],
)
def test_a_header_that_is_none_is_a_violation(header):
    framer = Framer()
    assert framer.feed(json_frame(header)) == []
    assert isinstance(framer.error, RemoteProtocolError)


def test_every_shorter_binary_header_is_a_violation():
    whole = frame(Command(10, 0, 1, "remark", {"key": "value"}, serialization=Serialization.ROCKETMQ))[8:]
    assert read_binary(whole).fields == {"key": "value"}
    for size in range(len(whole)):
        with pytest.raises(RemoteProtocolError):
            read_binary(whole[:size])


@pytest.mark.parametrize(
    ("position", "value"),
    [(13, -1), (13, 1 << 30), (17, -1), (17, 1 << 30), (17, 3)],
    ids=["remark-negative", "remark-huge", "fields-negative", "fields-huge", "fields-cut"],
)
def test_lengths_in_a_binary_header_are_not_believed(position, value):
    header = bytearray(frame(Command(10, 0, 1, None, {"k": "v"}, serialization=Serialization.ROCKETMQ))[8:])
    struct.pack_into(">i", header, position, value)
    with pytest.raises(RemoteProtocolError):
        read_binary(bytes(header))


@pytest.mark.parametrize(
    "command",
    [
        Command(RequestCode.POP_MESSAGE, serialization=Serialization.ROCKETMQ),
        Command(1, opaque=1 << 31, serialization=Serialization.ROCKETMQ),
        Command(1, fields={"a": 5}),
        Command(1, fields={"a": None}),
        Command(1, fields={b"a": "x"}),
        Command(1, remark=b"x"),
        Command(1, fields={"k": 5}, serialization=Serialization.ROCKETMQ),  # type: ignore[dict-item]
    ],
    ids=["pop", "opaque", "number", "none", "name", "remark", "binary-number"],
)
def test_what_a_peer_would_misread_is_not_written(command):
    with pytest.raises(LocalProtocolError):
        encode(command)


@pytest.mark.parametrize("serialization", list(Serialization), ids=lambda value: value.name)
def test_half_a_character_is_written_as_java_writes_it(serialization):
    command = Command(1, 0, 5, "\ud800!", {"k": "a\udfff"}, serialization=serialization)
    (read,) = Framer().feed(frame(command))
    assert (read.remark, read.fields) == ("?!", {"k": "a?"})


def test_a_header_longer_than_three_bytes_can_say_is_not_written():
    with pytest.raises(LocalProtocolError, match="header of"):
        encode(Command(1, fields={"k": "x" * (1 << 24)}))
