"""Bodies that cannot be decompressed, and inner batches that cannot be taken apart: reported, and given as stored."""

import json

import pytest

from mqtool.cli.exits import ExitCode
from mqtool.formats import message_batch
from mqtool.formats.commit_log import SysFlag
from tests.cli.answers import problems
from tests.support.builder import StoreBuilder

STORED = b"never compressed"


@pytest.fixture
def built(tmp_path):
    """A store with a sound body and two that the flag of a compressed one is wrong of."""
    builder = StoreBuilder()
    builder.put(b"sound", unique_key="U0", keys="k")
    for number in (1, 2):
        builder.put(STORED, unique_key=f"U{number}", keys="k", sys_flag=SysFlag.COMPRESSED)
    return builder, builder.write(tmp_path / "store")


@pytest.mark.parametrize(
    "words",
    [["dump"], ["dump", "--explode"], ["dump", "--body", "base64"], ["find", "--key", "k"]],
    ids=["lines", "one by one", "base64", "found"],
)
def test_a_body_that_cannot_be_decompressed_is_reported_and_given_as_stored(mqtool, built, words):
    builder, root = built
    result = mqtool(words[0], root, *words[1:], "--format", "jsonl")
    assert result.code == ExitCode.NO
    for put in builder.puts[1:]:
        assert f"damage: body of the message at physical offset {put.physical_offset}: " in result.stderr
    assert f"physical offset {builder.puts[0].physical_offset}: " not in result.stderr
    assert [row["physical_offset"] for row in result.lines] == [put.physical_offset for put in builder.puts]
    if "base64" not in words:
        assert [row["body"] for row in result.lines] == ["sound", STORED.decode(), STORED.decode()]


def test_a_table_and_one_message_report_it_too(mqtool, built):
    builder, root = built
    at = builder.puts[1].physical_offset
    table = mqtool("dump", root)
    assert (table.code, f"physical offset {at}: " in table.stderr) == (ExitCode.NO, True)
    one = mqtool("get", root, at)
    assert (one.code, f"damage: body of the message at {at}: " in one.stderr) == (ExitCode.NO, True)


def test_as_stored_nothing_is_wrong_with_it(mqtool, built):
    _, root = built
    result = mqtool("dump", root, "--raw", "--format", "jsonl")
    assert (result.code, result.stderr, result.lines[1]["body"]) == (ExitCode.OK, "", STORED.decode())


@pytest.mark.parametrize("words", [[], ["--explode"]], ids=["lines", "one by one"])
def test_it_can_stand_among_the_rows(mqtool, built, words):
    builder, root = built
    document = mqtool("dump", root, *words, "--format", "json", "--damage", "rows").document
    damage = [row["damage"] for row in document["rows"] if "damage" in row]
    assert [(one["start"], one["kind"]) for one in damage] == [
        (put.physical_offset, "undecodable-body") for put in builder.puts[1:]
    ]
    assert (len(document["rows"]), document["ok"]) == (5, False)
    assert problems("dump", document) == []


def test_of_very_much_damage_the_rest_is_counted(mqtool, built, monkeypatch):
    _, root = built
    monkeypatch.setattr("mqtool.cli.damage.MAX_LINES", 1)
    result = mqtool("dump", root, "--format", "jsonl")
    assert result.stderr.splitlines()[-1].endswith("damage: 1 more; `mqtool info --deep` sums them up")
    assert result.stderr.count("\n") == 2


@pytest.fixture
def batch(tmp_path):
    """A store with an inner batch whose second message is cut off."""
    data = b"".join(message_batch.build(message_batch.make(body, b"")) for body in (b"one", b"two"))
    builder = StoreBuilder()
    properties = b"UNIQ_KEY\1U0\2INNER_NUM\x012\2INNER_BASE\x010\2"
    put = builder.put(data[:-3], sys_flag=SysFlag.INNER_BATCH, properties=properties)
    return put, builder.write(tmp_path / "store")


def test_an_inner_batch_that_is_broken_is_given_whole(mqtool, batch):
    put, root = batch
    result = mqtool("dump", root, "--explode", "--format", "jsonl")
    assert result.code == ExitCode.NO
    assert f"damage: inner batch at physical offset {put.physical_offset}: " in result.stderr
    assert [row["physical_offset"] for row in result.lines] == [put.physical_offset]


def test_an_inner_batch_that_is_broken_is_not_replayed_and_named(mqtool, batch, tmp_path):
    _, root = batch
    result = mqtool("replay", root, "--into", tmp_path / "new", "--format", "json")
    assert (result.code, result.document["replayed"], result.document["refused"]) == (ExitCode.NO, 0, 1)
    assert "the inner batch cannot be decoded: " in result.stderr


def test_an_inner_batch_that_is_broken_is_a_rejected_value_of_an_export(mqtool, batch, tmp_path):
    put, root = batch
    result = mqtool("export", root, "--output", tmp_path / "lake", "--jobs", 1, "--format", "json")
    import pyarrow.parquet as pq

    rejected = [
        row
        for path in (tmp_path / "lake").rglob("*.parquet")
        for row in pq.read_table(path).to_pylist()
        if "the inner batch cannot be decoded" in json.dumps(row, default=str)
    ]
    assert len(rejected) == 1, result.stderr
    assert rejected[0]["physical_offset"] == put.physical_offset
