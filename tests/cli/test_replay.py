"""`mqtool replay` from the command line: its report, its options, its refusals."""

import pytest

from mqtool.server.testing import MqServer
from tests.cli.answers import problems
from tests.support import lake
from tests.support.stores import fixture, store_fixture

STORE = store_fixture("orders-5.5.0").directory
COMMITTED = lake.expected_rows("orders-5.5.0", every_class=False, broker="b")


def test_the_report_counts_what_was_stored(mqtool, tmp_path):
    result = mqtool("replay", STORE, "--into", tmp_path / "new", "--topic", "Orders", "--format", "json")
    orders = [row for row in COMMITTED if row["topic"] == "Orders"]
    assert result.code == 0
    assert result.document["replayed"] == len(orders)
    assert result.document["topics"] == [{"topic": "Orders", "messages": len(orders)}]
    assert problems("replay", result.document) == []


def test_what_dump_prints_is_replayed(mqtool, tmp_path):
    printed = mqtool("dump", STORE, "--topic", "Keyed", "--format", "jsonl")
    (tmp_path / "lines").write_bytes(printed.stdout)
    options = ("--keep-times", "--rate", "100000", "--flush", "sync", "--release", "4.9", "--ids", tmp_path / "ids")
    assert mqtool("replay", tmp_path / "lines", "--into", tmp_path / "new", *options).code == 0
    found = mqtool("dump", tmp_path / "new", "--format", "jsonl").lines
    keyed = [row for row in COMMITTED if row["topic"] == "Keyed"]
    assert [row["properties"].get("KEYS") for row in found] == [row["properties"].get("KEYS") for row in keyed]
    assert len((tmp_path / "ids").read_text().splitlines()) == len(keyed)


def test_an_address_is_a_name_server_whose_brokers_take_the_messages(mqtool, tmp_path):
    with MqServer() as server:
        options = ("--topic", "Orders", "--state", tmp_path / "state", "--rate", "100000", "--format", "json")
        result = mqtool("replay", STORE, "--namesrv", server.namesrv, *options)
        again = mqtool("replay", STORE, "--namesrv", server.namesrv, *options)
    orders = [row for row in COMMITTED if row["topic"] == "Orders"]
    assert (result.code, result.document["replayed"], result.document["target"]) == (0, len(orders), server.namesrv)
    assert (again.code, again.document["replayed"]) == (0, 0)
    assert problems("replay", result.document) == []


def test_a_refused_message_is_reported_with_the_words_of_the_broker(mqtool, tmp_path):
    (tmp_path / "lines").write_text('{"topic": "Bad topic", "body": "x"}\n')
    with MqServer() as server:
        result = mqtool("replay", tmp_path / "lines", "--namesrv", server.namesrv)
    assert (result.code, "rejected at 1: INVALID_PARAMETER: " in result.stderr) == (1, True)


def test_a_range_of_offsets_is_of_a_store(mqtool, tmp_path):
    mqtool("replay", STORE, "--into", tmp_path / "new", "--offset", "100001:200001")
    found = mqtool("dump", tmp_path / "new", "--format", "jsonl").lines
    expected = [row for row in COMMITTED if 100_001 <= row["physical_offset"] < 200_001]
    assert [row["properties"].get("UNIQ_KEY") for row in found] == [row["unique_key"] for row in expected]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["nowhere", "--into", "new"], 74, "nowhere: cannot be read"),
        ([STORE, "--into", STORE], 2, "is, contains or is inside the source"),
        ([STORE, "--into", "new", "--rate", "0"], 2, "expected a rate above 0"),
        ([STORE, "--into", "new", "--rate", "nan"], 2, "expected a rate above 0"),
        ([STORE, "--into", "new", "--rate", "1e999"], 2, "found inf"),
        ([STORE, "--into", "new", "--rate", "1e-300"], 2, "found 1e-300"),
        ([STORE, "--into", "new", "--grep", "("], 2, "is not a regular expression"),
        (["lines", "--namesrv", "127.0.0.1:1"], 6, "cannot connect to 127.0.0.1:1"),
        (["lines", "--namesrv", "127.0.0.1:1", "--flush", "sync"], 2, "--flush applies only to a store"),
        ([STORE, "--namesrv", "127.0.0.1:1", "--rate", "0"], 2, "expected a rate above 0"),
        ([STORE, "--namesrv", "127.0.0.1:1", "--ids", STORE / "ids"], 2, "is inside the source"),
        (["lines", "--into", "new", "--offset", "1:2"], 2, "--offset needs a store"),
        ([fixture("equeue-small/store"), "--into", "new"], 4, "a store of kind equeue"),
        ([STORE, "--into", "lines"], 4, "expected a directory, found a file"),
    ],
    ids=[
        "no source",
        "itself",
        "rate",
        "no rate",
        "infinite rate",
        "too small a rate",
        "regex",
        "nobody",
        "sync",
        "broker rate",
        "ids",
        "offset",
        "other kind",
        "file",
    ],
)
def test_what_makes_no_sense_is_said_in_one_line_and_writes_nothing(
    mqtool, tmp_path, monkeypatch, arguments, code, words
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lines").write_text('{"topic": "A", "body": "x"}\n')
    result = mqtool("replay", *arguments)
    assert (result.code, words in result.stderr, result.stderr.count("\n")) == (code, True, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["lines"]
