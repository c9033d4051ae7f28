"""Answers and records of a master that are not what a copy needs: refused with what is wrong, nothing is stored."""

import asyncio
import json

import pytest

from mqtool.engine.options import StoreOptions
from mqtool.errors import RemoteProtocolError, StoreError
from mqtool.formats import config_files
from mqtool.formats.release import V5_5
from mqtool.protocol import Command, RequestCode
from mqtool.server import replication
from mqtool.server.mirror import open_replica
from mqtool.server.replication import Piece
from tests.support.builder import encode

CONFIG = b"brokerName=broker-a\nhaListenPort=10912\n"
RUNTIME = b'{"table":{"commitLogMinOffset":"0","commitLogMaxOffset":"77"}}'


class Broker:
    """A connection to a broker that gives prepared answers."""

    address = "127.0.0.1:10911"

    def __init__(self, **answers):
        self.answers = {RequestCode.GET_BROKER_CONFIG: [Command(0, body=CONFIG)]}
        self.answers[RequestCode.GET_BROKER_RUNTIME_INFO] = [Command(0, body=RUNTIME)]
        for name, given in answers.items():
            self.answers[RequestCode[name]] = list(given)

    async def call(self, command, timeout):
        given = self.answers[RequestCode(command.code)]
        return given.pop(0) if len(given) > 1 else given[0]


def facts(**answers):
    return asyncio.run(replication.fetch_facts(Broker(**answers)))


def test_a_broker_without_statistics_yet_is_asked_again(monkeypatch):
    monkeypatch.setattr(replication, "TRY_AGAIN_SECONDS", 0.0)
    found = facts(GET_BROKER_RUNTIME_INFO=[Command(1), Command(1), Command(0, body=RUNTIME)])
    assert (found.ha_address, found.max_offset) == ("127.0.0.1:10912", 77)
    with pytest.raises(RemoteProtocolError, match="answered GET_BROKER_RUNTIME_INFO with 1: no samples"):
        facts(GET_BROKER_RUNTIME_INFO=[Command(1, remark="no samples")])


@pytest.mark.parametrize(
    ("version", "release"),
    [
        (401, "4.9"),
        (407, "4.9"),
        (413, "5.3"),
        (479, "5.3"),
        (493, "5.4"),
        (513, "5.5"),
        (515, "5.5.1"),
        (600, "5.5.1"),
    ],
)
def test_a_copy_is_written_as_the_newest_known_release_that_is_not_newer_than_its_master(version, release):
    found = facts(GET_BROKER_CONFIG=[Command(0, body=CONFIG, version=version)])
    assert found.options.compat == release


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ({"GET_BROKER_CONFIG": [Command(16, remark="no right")]}, "answered GET_BROKER_CONFIG with 16: no right"),
        ({"GET_BROKER_CONFIG": [Command(0, body=b"brokerName=a\n")]}, "does not answer as a master does"),
        ({"GET_BROKER_CONFIG": [Command(0, body=CONFIG + b"brokerRole=SLAVE\n")]}, "is a slave itself"),
        (
            {"GET_BROKER_CONFIG": [Command(0, body=b"haListenPort=0\n")]},
            "does not send its log to slaves; .*haListenPort=10912",
        ),
        ({"GET_BROKER_RUNTIME_INFO": [Command(0, body=b'{"table":{"commitLogMinOffset":"x"}}')]}, "does not answer as"),
    ],
    ids=["refused", "no port", "slave", "no slaves", "no number"],
)
def test_what_does_not_answer_as_a_master_is_refused(answers, words):
    with pytest.raises(RemoteProtocolError, match=words):
        facts(**answers)


def test_tables_that_cannot_be_parsed_end_the_sync_and_empty_ones_are_left_out(tmp_path):
    codes = [code.name for code, _, _ in replication._TABLES.values()]
    empty = {name: [Command(0)] for name in codes}
    asyncio.run(replication.sync_tables(Broker(**empty), tmp_path, release=V5_5))
    assert not (tmp_path / "config").exists()
    broken = empty | {codes[-1]: [Command(0, body=b"[]")]}
    with pytest.raises(RemoteProtocolError, match=f"answer to {codes[-1]}: "):
        asyncio.run(replication.sync_tables(Broker(**broken), tmp_path, release=V5_5))


@pytest.mark.parametrize("mappings", [b"{}", b'{"S":{"bname":"b","epoch":7,"hostedQueues":{},"totalQueues":2}}'])
def test_mappings_of_static_topics_get_their_own_file(tmp_path, mappings):
    version = b'{"counter":3,"stateVersion":0,"timestamp":5}'
    body = b'{"topicConfigTable":{},"mappingDataVersion":%s,"topicQueueMappingDetailMap":%s}' % (version, mappings)
    answers = {code.name: [Command(0)] for code, _, _ in replication._TABLES.values()}
    answers["GET_ALL_TOPIC_CONFIG"] = [Command(0, body=body)]
    asyncio.run(replication.sync_tables(Broker(**answers), tmp_path, release=V5_5))
    files = {path.name: json.loads(path.read_bytes()) for path in (tmp_path / "config").iterdir()}
    expected = {"dataVersion": json.loads(version), "topicQueueMappingInfoMap": json.loads(mappings)}
    assert files["topicQueueMapping.json"] == expected
    assert "mappingDataVersion" not in files["topics.json"]


@pytest.mark.parametrize(
    ("table", "file"),
    [(b'{"lmqOffsetTable":{"%LMQ%a@g":7},', "lmqConsumerOffset.json"), (b"{", "consumerOffset.json")],
)
def test_positions_are_where_a_slave_reads_them(tmp_path, table, file):
    codes = [code.name for code, _, _ in replication._TABLES.values()]
    answers = {name: [Command(0)] for name in codes}
    answers["GET_ALL_CONSUMER_OFFSET"] = [Command(0, body=table + b'"offsetTable":{"T@g":{0:5}}}')]
    asyncio.run(replication.sync_tables(Broker(**answers), tmp_path, release=V5_5))
    assert [path.name for path in (tmp_path / "config").iterdir()] == [file]
    found = config_files.parse_consumer_offsets((tmp_path / "config" / file).read_bytes())
    assert found.offset_table == {"T@g": {0: 5}}
    assert (found.lmq_offset_table or {}).get("%LMQ%a@g") == (7 if file.startswith("lmq") else None)


def test_records_that_do_not_follow_or_are_none_are_not_stored(tmp_path):
    options = StoreOptions(commit_log_file_size=1 << 16)
    with open_replica(tmp_path / "copy", options) as copy:
        first = encode(0, b"body", topic=b"T")
        copy.append(Piece(0, first))
        with pytest.raises(StoreError, match=f"physical offset 5 does not follow {len(first)}"):
            copy.append(Piece(5, first))
        broken = bytearray(encode(len(first), b"body", topic=b"T"))
        broken[84:88] = b"\x7f\xff\xff\xff"
        with pytest.raises(StoreError, match="the master sent an invalid record"):
            copy.append(Piece(len(first), bytes(broken)))
        assert copy.end == len(first)


def test_a_record_that_the_copy_would_store_elsewhere_is_refused(tmp_path):
    with open_replica(tmp_path / "copy", StoreOptions(commit_log_file_size=1 << 16)) as copy:
        first = encode(0, b"body", topic=b"T")
        copy.append(Piece(0, first))
        too_long = encode(len(first), bytes((1 << 16) - 200), topic=b"T")
        with pytest.raises(StoreError, match=f"its record at {len(first)} would be at 65536"):
            copy.append(Piece(len(first), too_long))
