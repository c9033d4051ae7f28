"""`info`, `dump`, `get` and `find` of stores of other kinds, and `formats`."""

import json

import jsonschema
import pytest

from mqtool.cli import sibling_rows, siblings
from mqtool.cli.commands import COMMANDS
from mqtool.siblings.registry import KINDS
from tests.support.chunks import damaged, equeue_store, lines, tfchunk_store
from tests.support.stores import fixture, tree_digest

SMALL, PLAIN = equeue_store("equeue-small"), tfchunk_store("plain")


def validate(result, schema, line=False):
    whole = schema.row_schema() if line else schema.document_schema()
    if not schema.single and not line:
        whole = {**whole, "$defs": {f"{schema.name}.row": schema.row_schema()}}
    jsonschema.validate(result, schema.row_schema() if schema.single else whole)


@pytest.mark.parametrize(("root", "kind"), [(SMALL, "equeue"), (PLAIN, "tfchunk")])
def test_info_says_what_a_store_is(mqtool, root, kind):
    before = tree_digest(root)
    result = mqtool("info", root, "--format", "json")
    assert result.code == 0
    assert result.document["kind"] == kind
    assert result.document["oddities"] == []
    assert "findings" not in result.document
    validate(result.document, sibling_rows.KIND_INFO)
    assert tree_digest(root) == before


def test_info_deep_lists_broken_invariants_and_ends_with_1(mqtool, tmp_path):
    result = mqtool("info", damaged("done-record-suffix", tmp_path / "store"), "--deep", "--format", "json")
    assert result.code == 1
    assert {finding["code"] for finding in result.document["findings"]} == {"equeue-frames", "equeue-frames-backward"}
    validate(result.document, sibling_rows.KIND_INFO)


def test_info_deep_of_a_healthy_store_finds_nothing(mqtool):
    result = mqtool("info", PLAIN, "--deep", "--format", "json")
    assert (result.code, result.document["findings"]) == (0, [])


def test_dump_prints_every_message(mqtool):
    result = mqtool("dump", SMALL, "--format", "jsonl")
    assert result.code == 0
    answers = lines("equeue-small", "messages")
    assert [(row["position"], row["topic"], row["tag"], row["queue_offset"]) for row in result.lines] == [
        (line["position"], line["topic"], line["tag"], line["queueOffset"]) for line in answers
    ]
    for row in result.lines:
        validate(row, siblings.TABLES["equeue-message"], line=True)


@pytest.mark.parametrize("select", [["--topic", "TYPO"], ["--queue", "99"]], ids=str)
def test_dump_of_a_topic_or_queue_that_does_not_exist_ends_with_1(mqtool, select):
    result = mqtool("dump", SMALL, "--format", "jsonl", *select)
    assert (result.code, result.lines, "nothing matches" in result.stderr) == (1, [], True)


def test_dump_prints_every_record_of_a_database(mqtool):
    result = mqtool("dump", PLAIN, "--format", "json")
    assert [row["position"] for row in result.document["rows"]] == [
        line["position"] for line in lines("tfchunk/plain", "records")
    ]
    validate(result.document, siblings.TABLES["tfchunk-record"])


@pytest.mark.parametrize("table", ["equeue-entry", "equeue-chunk"])
def test_dump_prints_another_table(mqtool, table):
    result = mqtool("dump", SMALL, "--table", table, "--format", "json")
    assert result.code == 0
    assert len(result.document["rows"]) == {"equeue-entry": 62, "equeue-chunk": 13}[table]
    validate(result.document, siblings.TABLES[table])


def test_dump_tells_of_damage_and_goes_on(mqtool, tmp_path):
    result = mqtool("dump", damaged("done-record-suffix", tmp_path / "store"), "--format", "jsonl")
    assert result.code == 1
    assert len(result.lines) == 61
    assert "damage: " in result.stderr
    assert "lengths-differ at physical offset 4949" in result.stderr


def test_a_range_from_the_end_counts_from_the_last_message_that_can_be_read(mqtool, tmp_path):
    store = damaged("done-record-suffix", tmp_path / "store")
    positions = [row["position"] for row in mqtool("dump", store, "--format", "jsonl").lines]
    found = mqtool("find", store, "--offset=-2000:end", "--format", "jsonl")
    assert [row["position"] for row in found.lines] == [one for one in positions if one >= positions[-1] + 1 - 2000]


def test_the_last_entries_are_those_of_each_queue(mqtool):
    entries = mqtool("dump", SMALL, "--table", "equeue-entry", "--format", "jsonl").lines
    ends = {(row["topic"], row["queue_id"]): row["queue_offset"] for row in entries}
    found = mqtool("dump", SMALL, "--table", "equeue-entry", "--offset=-2:end", "--format", "jsonl").lines
    expected = [row for row in entries if row["queue_offset"] > ends[row["topic"], row["queue_id"]] - 2]
    assert found == expected
    assert len(found) == 2 * len(ends)
    alone = mqtool("dump", SMALL, "--table", "equeue-entry", "--topic", "pay", "--offset=-2:end", "--format", "jsonl")
    assert alone.lines == [row for row in expected if row["topic"] == "pay"]


SELECTIONS = [
    (("--topic", "pa*"), lambda a: a["topic"] == "pay"),
    (("--queue", "1"), lambda a: a["queueId"] == 1),
    (("--tag", "TagA"), lambda a: a["tag"] == "TagA"),
    (("--offset", "1000:5000"), lambda a: 1000 <= a["position"] < 5000),
    (("--offset=-2000:end",), lambda a: a["position"] >= 10546 + 1 - 2000),
    (
        ("--topic", "orders", "--queue", "0", "--tag", "TagA"),
        lambda a: (a["topic"], a["queueId"], a["tag"]) == ("orders", 0, "TagA"),
    ),
]


@pytest.mark.parametrize(("options", "wanted"), SELECTIONS, ids=[" ".join(options) for options, _ in SELECTIONS])
def test_find_and_dump_select_alike(mqtool, options, wanted):
    expected = [line["position"] for line in lines("equeue-small", "messages") if wanted(line)]
    assert expected
    for command in ("find", "dump"):
        rows = mqtool(command, SMALL, *options, "--format", "jsonl").lines
        assert [row["position"] for row in rows] == expected


def test_find_looks_into_bodies(mqtool):
    bodies = {row["position"]: row["body"] for row in mqtool("dump", SMALL, "--format", "jsonl").lines}
    rows = mqtool("find", SMALL, "--grep", "^klm.*rstu$", "--format", "jsonl").lines
    expected = [position for position, body in bodies.items() if body.startswith("klm") and body.endswith("rstu")]
    assert [row["position"] for row in rows] == expected
    assert expected


def test_find_without_a_match_ends_with_1(mqtool):
    result = mqtool("find", SMALL, "--tag", "none")
    assert result.code == 1
    assert "nothing matches" in result.stderr


def test_get_takes_position_place_and_id(mqtool):
    line = lines("equeue-small", "messages")[5]
    place = f"{line['topic']}/{line['queueId']}@{line['queueOffset']}"
    result = mqtool("get", SMALL, line["position"], line["messageId"], place, "--format", "jsonl")
    assert result.code == 0
    assert [row["message_id"] for row in result.lines] == [line["messageId"]] * 3


def test_get_of_a_record_of_a_database(mqtool):
    line = lines("tfchunk/plain", "records")[1]
    rows = mqtool("get", PLAIN, line["position"], "--format", "jsonl").lines
    assert [(row["event_stream_id"], row["event_id"]) for row in rows] == [(line["eventStreamId"], line["eventId"])]


@pytest.mark.parametrize("address", ["1", "nowhere", "pay/9@0"])
def test_get_of_nothing_ends_with_1(mqtool, address):
    result = mqtool("get", SMALL, address)
    assert result.code == 1
    assert "nothing found" in result.stderr


@pytest.mark.parametrize(
    "options",
    [
        ("--key", "k"),
        ("--follow",),
        ("--hex",),
        ("--table", "none"),
        ("--grep", "("),
        ("--property", "a=b"),
        ("--table", "equeue-chunk", "--topic", "x"),
        ("--offset", "@2026-11-21T00:00:00Z:end"),
    ],
)
def test_options_that_do_not_apply_are_refused(mqtool, options):
    result = mqtool("dump", SMALL, *options)
    assert result.code == 2
    assert result.stdout == b""


def test_tables_are_of_other_kinds_only(mqtool):
    assert mqtool("dump", SMALL / "queue-chunks", "--table", "equeue-entry").code == 2


def test_formats_lists_every_kind_and_its_commands(mqtool):
    rows = {row["name"]: row for row in mqtool("help", "formats", "--format", "jsonl").lines}
    assert set(rows["rocketmq"]["commands"]) == set(COMMANDS) - {"help"}
    for kind in KINDS:
        assert sorted(rows[kind.name]["commands"] + rows[kind.name]["library"]) == sorted(kind.verbs)
    assert rows["consume-queue"]["commands"] == ["dump"]
    assert json.dumps(rows)


@pytest.mark.parametrize(
    ("case_id", "fail_on", "code"),
    [
        ("done-record-suffix", "error", 1),
        ("done-record-suffix", "never", 0),
        ("torn-untouched", "error", 0),
        ("torn-untouched", "warning", 3),
        ("killed-untouched", "warning", 0),
    ],
)
def test_verify_ends_with_the_code_of_its_worst_finding(mqtool, case_id, fail_on, code, tmp_path):
    result = mqtool("verify", damaged(case_id, tmp_path / "store"), "--fail-on", fail_on, "--format", "jsonl")
    assert result.code == code
    assert bool(result.lines) == (case_id != "killed-untouched")
    for row in result.lines:
        validate(row, sibling_rows.VERIFY_KIND, line=True)


@pytest.mark.parametrize(
    ("case_id", "verdict"),
    [
        ("killed-untouched", "clean: nothing is wrong"),
        ("torn-untouched", "dirty: 7 warnings"),
        ("done-record-suffix", "corrupt: 2 errors"),
    ],
)
def test_verify_gives_a_verdict_as_for_a_store_of_rocketmq(mqtool, case_id, verdict, tmp_path):
    root = damaged(case_id, tmp_path / "store")
    findings = mqtool("verify", root, "--format", "jsonl").lines
    text = mqtool("verify", root).text
    assert text.startswith(f"{root}: {verdict}\nnext start: starts and continues at position ")
    assert [line.split(": ")[1] for line in text.splitlines() if line.startswith(("error: ", "warning: "))] == [
        row["code"] for row in findings
    ]
    assert "code  severity" not in text


@pytest.mark.parametrize("options", [("--format", "junit"), ("--jobs", "2"), ("--topic", "x")])
def test_verify_refuses_what_it_does_not_do_here(mqtool, options):
    assert mqtool("verify", SMALL, *options).code == 2


@pytest.mark.parametrize(
    ("case_id", "code", "verdict"),
    [
        ("tail-middle-zeroed", 1, "starts and continues at position 9396; 7 valid message(s) after it are lost"),
        ("torn-untouched", 0, "starts and continues at position 10149; nothing is lost"),
        ("done-footer-zero", 1, "does not start (ChunkBadDataException"),
        ("messages-all-deleted", 1, "starts, and there are no message chunks: the broker DELETES everything"),
    ],
)
def test_explain_start_says_what_the_broker_would_do(mqtool, case_id, code, verdict, tmp_path):
    root = damaged(case_id, tmp_path / "store")
    before = tree_digest(root)
    result = mqtool("explain-start", root, "--format", "json")
    assert result.code == code
    assert result.document["verdict"].startswith(verdict)
    validate(result.document, sibling_rows.EXPLAIN_KIND)
    assert tree_digest(root) == before


def test_explain_start_of_a_kind_without_a_known_start_is_refused(mqtool):
    assert mqtool("explain-start", PLAIN).code == 4


def test_single_chunks_are_dumped_as_parts_of_their_store(mqtool):
    store = fixture("equeue-small/store")
    whole = mqtool("dump", store, "--format", "jsonl").lines
    parts = [mqtool("dump", path, "--format", "jsonl").lines for path in sorted((store / "message-chunks").iterdir())]
    assert [row for part in parts for row in part] == whole
    entries = mqtool("dump", store, "--table", "equeue-entry", "--format", "jsonl").lines
    chunks = [
        mqtool("dump", path, "--format", "jsonl").lines for path in sorted((store / "queue-chunks").rglob("*-chunk-*"))
    ]
    assert sorted(map(str, (row for part in chunks for row in part))) == sorted(map(str, entries))
    assert len(chunks) > 4
    database = fixture("tfchunk/plain/store")
    records = [mqtool("dump", path, "--format", "jsonl").lines for path in sorted(database.glob("chunk-*"))]
    assert [row for part in records for row in part] == mqtool("dump", database, "--format", "jsonl").lines


def test_a_table_of_a_single_chunk_is_asked_of_its_store(mqtool):
    chunk = fixture("equeue-small/store/message-chunks/message-chunk-000000000")
    result = mqtool("dump", chunk, "--table", "equeue-entry")
    assert (result.code, "give the root" in result.stderr) == (2, True)
