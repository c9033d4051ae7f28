"""`mqtool dump` of messages, judged by the real broker's answers."""

import base64
import csv
import io
import json
import re
import shutil
from fnmatch import fnmatchcase

import pytest

from tests.cli.answers import body_of, problems, rows
from tests.support.damage import damage_case
from tests.support.stores import answered, answers, copy_store, fixture, tree_digest

ANSWERED = [store for store in answered("gets", "queries", "times", "messages", "queues") if store.directory]
ORDERS = "orders-5.5.0"
STORE = fixture(f"{ORDERS}/store")
ROWS = rows(ORDERS)


@pytest.fixture(params=ANSWERED, ids=str)
def answered_store(request):
    return request.param


def test_json_lines_are_the_broker_s_messages(mqtool, answered_store):
    result = mqtool("dump", answered_store.directory, "--format", "jsonl")
    assert result.lines == rows(answered_store.name)
    assert result.code == 0


def test_properties_keep_their_stored_order(mqtool):
    first = mqtool("dump", STORE, "--format", "jsonl", "--limit", 1).lines[0]
    stored = (STORE / "commitlog" / ("0" * 20)).read_bytes()[: first["store_size"]]
    at = [stored.index(f"{name}\x01".encode()) for name in first["properties"]]
    assert at == sorted(at)


def test_a_json_document_holds_the_same_rows(mqtool, answered_store):
    document = mqtool("dump", answered_store.directory, "--format", "json").document
    assert document["rows"] == rows(answered_store.name)
    assert (document["ok"], document["schema"], document["schema_version"]) == (True, "message", 1)


def test_csv_holds_the_same_values(mqtool):
    read = list(csv.DictReader(io.StringIO(mqtool("dump", STORE, "--format", "csv").text, newline="")))
    assert len(read) == len(ROWS)
    for found, expected in zip(read, ROWS, strict=True):
        assert json.loads(found["properties"]) == expected["properties"]
        simple = {name: value for name, value in expected.items() if name != "properties"}
        assert {name: found[name] for name in simple} == {
            name: value if isinstance(value, str) else json.dumps(value) for name, value in simple.items()
        }


@pytest.mark.parametrize("output_format", ["table", "wide"])
def test_a_table_has_a_line_a_message(mqtool, output_format):
    header, *lines = mqtool("dump", STORE, "--format", output_format).text.splitlines()
    assert header.split()[:3] == ["physical_offset", "store_size", "topic"]
    assert [line.split()[:3] for line in lines] == [
        [str(row["physical_offset"]), str(row["store_size"]), row["topic"]] for row in ROWS
    ]
    assert all(line.isprintable() for line in lines)


def test_a_table_prints_times_tags_and_keys(mqtool):
    line = mqtool("dump", STORE, "--limit", 1).text.splitlines()[1]
    assert line.split()[-3:] == ["2026-11-21T00:39:44.300Z", "TagA", "k0"]


def test_bodies_in_a_table_are_escaped(mqtool):
    text = mqtool("dump", STORE, "--format", "wide", "--body", "text").text
    assert text.count("\n") == len(ROWS) + 1
    assert all(line.isprintable() for line in text.splitlines())


@pytest.mark.parametrize("body", ["none", "text", "hex", "base64", "json"])
def test_output_is_valid_against_the_schema(mqtool, body):
    document = mqtool("dump", STORE, "--format", "json", "--body", body, "--limit", 200).document
    assert problems("dump", document) == []
    assert mqtool("dump", STORE, "--format", "jsonl", "--body", body, "--limit", 200).lines == document["rows"]


@pytest.mark.parametrize("body", ["none", "hex", "base64"])
def test_bodies_in_each_mode(mqtool, body):
    expected = {
        "none": lambda data: (None, "none"),
        "hex": lambda data: (data.hex(), "hex"),
        "base64": lambda data: (base64.b64encode(data).decode(), "base64"),
    }[body]
    found = mqtool("dump", STORE, "--format", "jsonl", "--body", body).lines
    bodies = [expected(body_of(answer)) for answer in answers(ORDERS, "messages")]
    assert [(row["body"], row["body_encoding"]) for row in found] == bodies


@pytest.mark.parametrize("name", ["orders-4.9.7", "orders-5.5.0"])
def test_raw_bodies_are_as_stored(mqtool, name):
    found = mqtool("dump", fixture(f"{name}/store"), "--format", "jsonl", "--body", "base64", "--raw").lines
    expected = [base64.b64encode(body_of(answer, raw=True)).decode() for answer in answers(name, "messages")]
    assert [row["body"] for row in found] == expected
    assert any(answer["decodedBody"] for answer in answers(name, "messages"))


def test_ready_lines_and_rows_made_one_by_one_are_the_same_text(mqtool, answered_store):
    fast = mqtool("dump", answered_store.directory, "--format", "jsonl").lines
    slow = mqtool("dump", answered_store.directory, "--format", "jsonl", "--max-bytes", "1G").lines
    assert fast == slow
    assert [list(row) for row in fast] == [list(row) for row in slow]


def test_long_bodies_are_cut_and_their_size_is_reported(mqtool):
    found = mqtool("dump", STORE, "--format", "jsonl", "--max-body", 10).lines
    for row, answer in zip(found, answers(ORDERS, "messages"), strict=True):
        body = body_of(answer)
        assert row["body_size"] == len(body)
        if row["body_encoding"] == "text":
            assert body.startswith(row["body"].encode())
            assert len(row["body"].encode()) in range(min(len(body), 10) - 3, 11)
        else:
            assert base64.b64decode(row["body"]) == body[:10]


SELECTIONS = [
    (["--topic", "Orders"], lambda row: row["topic"] == "Orders"),
    (["--topic", "Or*", "-t", "Pay?ents"], lambda row: fnmatchcase(row["topic"], "Or*") or row["topic"] == "Payments"),
    (["--topic", "Orders", "--queue", 1], lambda row: (row["topic"], row["queue_id"]) == ("Orders", 1)),
    (["--tag", "TagA"], lambda row: row["properties"].get("TAGS") == "TagA"),
    (["--tag", "TagA", "--tag", "TagB"], lambda row: row["properties"].get("TAGS") in ("TagA", "TagB")),
    (["--key", "k2"], lambda row: "k2" in row["properties"].get("KEYS", "").split()),
    (
        ["--unique-key", ROWS[9]["properties"]["UNIQ_KEY"]],
        lambda row: row["properties"].get("UNIQ_KEY") == ROWS[9]["properties"]["UNIQ_KEY"],
    ),
    (["--property", "region=naïve"], lambda row: row["properties"].get("region") == "naïve"),
    (
        ["-p", "region=naïve", "-p", "WAIT=true"],
        lambda row: (row["properties"].get("region"), row["properties"].get("WAIT")) == ("naïve", "true"),
    ),
    (["--offset", "1000:90000"], lambda row: 1000 <= row["physical_offset"] < 90000),
    (["--offset", "-5000"], lambda row: row["physical_offset"] >= 529502 - 5000),
    (["--offset", "+5000:end"], lambda row: row["physical_offset"] >= 5000),
    (
        ["--offset", f"@{ROWS[50]['store_timestamp']}"],
        lambda row: row["store_timestamp"] >= ROWS[50]["store_timestamp"],
    ),
    (
        ["--time", f"{ROWS[50]['store_timestamp']}..{ROWS[99]['store_timestamp']}"],
        lambda row: ROWS[50]["store_timestamp"] <= row["store_timestamp"] < ROWS[99]["store_timestamp"],
    ),
    (
        ["--time", "2026-11-21T00:39:46Z..2026-11-21T00:39:47Z", "--tag", "TagA"],
        lambda row: 1795221586000 <= row["store_timestamp"] < 1795221587000 and row["properties"].get("TAGS") == "TagA",
    ),
]


@pytest.mark.parametrize(("options", "matches"), SELECTIONS, ids=range(len(SELECTIONS)))
def test_a_selection_is_what_it_says(mqtool, options, matches):
    result = mqtool("dump", STORE, "--format", "jsonl", *options)
    expected = [row for row in ROWS if matches(row)]
    assert result.lines == expected
    assert 0 < len(expected) < len(ROWS)
    assert result.code == 0


def test_grep_searches_the_decoded_body(mqtool):
    pattern = re.compile(rb"commande \d+", re.DOTALL)
    found = mqtool("dump", STORE, "--format", "jsonl", "--grep", pattern.pattern.decode()).lines
    hits = [pattern.search(body_of(answer)) is not None for answer in answers(ORDERS, "messages")]
    assert found == [row for row, hit in zip(ROWS, hits, strict=True) if hit]
    assert any(answer["decodedBody"] for answer, hit in zip(answers(ORDERS, "messages"), hits, strict=True) if hit)


@pytest.mark.parametrize("limit", [0, 1, 7])
def test_a_limit_counts_rows(mqtool, limit):
    formats = ("table", "json", "jsonl", "csv")
    results = {name: mqtool("dump", STORE, "--format", name, "--limit", limit) for name in formats}
    assert {result.code for result in results.values()} == {0}
    assert len(results["json"].document["rows"]) == limit
    assert len(results["jsonl"].lines) == limit
    assert len(results["table"].text.splitlines()) == (limit and limit + 1)
    assert len(list(csv.DictReader(io.StringIO(results["csv"].text, newline="")))) == limit


def test_max_bytes_stops_before_the_records_exceed_it(mqtool):
    sizes = [row["store_size"] for row in ROWS]
    found = mqtool("dump", STORE, "--format", "jsonl", "--max-bytes", sum(sizes[:5])).lines
    assert found == ROWS[:5]
    assert mqtool("dump", STORE, "--format", "jsonl", "--max-bytes", sum(sizes[:5]) - 1).lines == ROWS[:4]


def test_redacted_output_has_nothing_that_users_wrote(mqtool):
    result = mqtool("dump", STORE, "--format", "jsonl", "--redact")
    for name in ("physical_offset", "store_size", "topic", "queue_id", "queue_offset", "store_timestamp", "body_crc"):
        assert [row[name] for row in result.lines] == [row[name] for row in ROWS]
    for row, found in zip(ROWS, result.lines, strict=True):
        assert set(found["properties"]) == set(row["properties"])
        hidden = [*found["properties"].values(), found["body"], found["born_host"], found["offset_message_id"]]
        assert all(re.fullmatch("redacted:[0-9a-f]{16}", value) for value in hidden)
    assert len({row["properties"]["UNIQ_KEY"] for row in result.lines if "UNIQ_KEY" in row["properties"]}) == len(
        {row["properties"]["UNIQ_KEY"] for row in ROWS if "UNIQ_KEY" in row["properties"]}
    )


def test_redaction_differs_from_run_to_run(mqtool):
    one, other = (mqtool("dump", STORE, "--redact", "--format", "csv", "--limit", 1).text for _ in range(2))
    assert one != other


def test_inner_batches_are_taken_apart(mqtool):
    store = fixture("bcq-5.5.0/store")
    whole = mqtool("dump", store, "--format", "jsonl", "--topic", "BatchTopic").lines
    parts = mqtool("dump", store, "--format", "jsonl", "--topic", "BatchTopic", "--explode").lines
    served = {
        (answer["queueId"], answer["queueOffset"]): answer
        for answer in answers("bcq-5.5.0", "messages")
        if answer["kind"] == "message"
    }
    assert {(row["queue_id"], row["queue_offset"]) for row in parts} == set(served)
    assert len(parts) == len(served) > len(whole)
    for row in parts:
        answer = served[row["queue_id"], row["queue_offset"]]
        assert row["body"].encode() == base64.b64decode(answer["body"])
        assert row.get("batch_index", 0) >= 0


def test_damage_is_reported_on_stderr_and_the_rest_is_printed(mqtool, tmp_path):
    store = damage_case("flip-body@5.5.0-clean", tmp_path)
    result = mqtool("dump", store, "--format", "jsonl")
    assert result.code == 1
    assert result.stderr.count("\n") == 1
    assert "damage: " in result.stderr
    assert all("damage" not in row for row in result.lines)


def test_damage_can_stand_among_the_rows(mqtool, tmp_path):
    store = damage_case("flip-body@5.5.0-clean", tmp_path)
    result = mqtool("dump", store, "--format", "jsonl", "--damage", "rows")
    found = [row["damage"] for row in result.lines if "damage" in row]
    assert (result.code, result.stderr, len(found)) == (1, "", 1)
    offsets = [row["damage"]["start"] if "damage" in row else row["physical_offset"] for row in result.lines]
    assert offsets == sorted(offsets)
    one_by_one = mqtool("dump", store, "--format", "jsonl", "--damage", "rows", "--max-bytes", "1G")
    assert (one_by_one.code, one_by_one.lines) == (1, result.lines)
    document = mqtool("dump", store, "--format", "json", "--damage", "rows").document
    assert document["rows"] == result.lines
    assert document["ok"] is False
    assert problems("dump", document) == []


@pytest.mark.parametrize(
    "options",
    [
        ["--damage", "rows"],
        ["--hex", "--follow"],
        ["--hex", "--redact"],
        ["--grep", "("],
        ["--offset", "5:1"],
        ["-p", "novalue"],
        ["--limit", -1],
        ["--body", "xml"],
        ["--time", "now"],
        ["--max-bytes", "many"],
        ["--max-body", "-1"],
        ["--kind", "tape"],
    ],
    ids=str,
)
def test_options_that_make_no_sense_are_usage_errors(mqtool, options):
    result = mqtool("dump", STORE, *options)
    assert (result.code, result.stdout) == (2, b"")
    assert result.stderr.count("\n") == 1


def test_hex_prints_every_byte_of_every_record_once(mqtool):
    found = mqtool("dump", STORE, "--hex", "--format", "jsonl", "--limit", 20).lines
    stored = (STORE / "commitlog" / ("0" * 20)).read_bytes()
    for field in found:
        data = bytes.fromhex(field["bytes"])
        assert stored[field["at"] : field["at"] + len(data)] == data
    by_record = {row["physical_offset"]: row["store_size"] for row in ROWS[:20]}
    sizes = {}
    for field in found:
        sizes[field["record"]] = sizes.get(field["record"], 0) + len(field["bytes"]) // 2
    assert sizes == by_record


def test_hex_names_fields_and_values(mqtool):
    fields = {field["field"]: field["value"] for field in mqtool("dump", STORE, "--hex", "-n", 1, "-f", "jsonl").lines}
    row = ROWS[0]
    assert fields["total_size"] == row["store_size"]
    assert fields["topic"] == row["topic"]
    assert fields["born_host"] == row["born_host"]
    assert fields["body"] == row["body"]


def test_a_part_of_a_store_is_dumped_like_the_store(mqtool):
    assert mqtool("dump", STORE / "commitlog", "--format", "jsonl").lines == ROWS


def test_each_segment_is_dumped_on_its_own_even_under_another_name(mqtool, tmp_path):
    found = []
    for segment in sorted((STORE / "commitlog").iterdir()):
        copied = tmp_path / f"{int(segment.name)}.bin"
        copied.write_bytes(segment.read_bytes())
        lines = mqtool("dump", segment, "--format", "jsonl").lines
        assert mqtool("dump", copied, "--format", "jsonl").lines == lines
        found.extend(lines)
    assert found == ROWS


def test_a_dledger_segment_under_another_name_keeps_its_physical_offsets(mqtool, tmp_path):
    segment = fixture("dledger3-5.5.0/store-n0/dledger-n0/data") / f"{65536:020}"
    (tmp_path / "copy.bin").write_bytes(segment.read_bytes())
    rows = mqtool("dump", tmp_path / "copy.bin", "--format", "jsonl").lines
    served = {line["phyOffset"] for line in answers("dledger3-5.5.0", "messages") if line["kind"] == "message"}
    assert rows
    assert {row["physical_offset"] for row in rows} == {offset for offset in served if offset >= 65536}


def test_damage_in_a_compacted_log_is_reported_and_its_gaps_are_not(mqtool, tmp_path):
    log = copy_store("compaction-5.5.0", tmp_path) / "compaction" / "compactionLog" / "Compact" / "0"
    healthy = mqtool("dump", log, "--format", "jsonl")
    assert (healthy.code, healthy.stderr) == (0, "")
    first = healthy.lines[0]
    path = log / f"{0:020}"
    data = bytearray(path.read_bytes())
    data[first["physical_offset"] + first["store_size"] - 1] ^= 1  # of the properties' trailer
    data[first["physical_offset"] + 8] ^= 1  # the body's CRC
    path.write_bytes(data)
    damaged = mqtool("dump", log, "--format", "jsonl")
    assert (damaged.code, damaged.stderr.count("\n")) == (1, 1)
    assert damaged.lines == healthy.lines[1:]


@pytest.mark.parametrize("options", [[], ["--max-bytes", "1g"], ["--hex"]], ids=str)
def test_each_compacted_queue_is_a_log_of_its_own(mqtool, tmp_path, options):
    logs = copy_store("compaction-5.5.0", tmp_path) / "compaction" / "compactionLog"
    one = mqtool("dump", logs, "--format", "jsonl", *options).lines
    shutil.copytree(logs / "Compact", logs / "Other")
    both = mqtool("dump", logs, "--format", "jsonl", *options)
    assert (both.code, both.stderr) == (0, "")
    assert (one != [], both.lines) == (True, one + one)
    for limit in () if options == ["--hex"] else (1, len(one), len(one) + 1):
        assert mqtool("dump", logs, "--format", "jsonl", *options, "--limit", limit).lines == (one + one)[:limit]


def test_copies_of_a_log_are_each_printed_and_parts_of_one_are_one_log(mqtool, tmp_path):
    rows = mqtool("dump", STORE, "--format", "jsonl").lines
    for name in ("a", "b"):
        shutil.copytree(STORE / "commitlog", tmp_path / "commitlog" / name)
    assert mqtool("dump", tmp_path / "commitlog", "--format", "jsonl").lines == rows + rows
    halves = tmp_path / "halves" / "commitlog"
    for number, path in enumerate(sorted((STORE / "commitlog").iterdir())):
        part = halves / "ba"[number % 2]
        part.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, part / path.name)
    assert mqtool("dump", halves, "--format", "jsonl").lines == rows


def test_a_log_over_several_directories_is_one_log(mqtool, tmp_path):
    store = copy_store("multipath-5.5.0", tmp_path)
    found = mqtool("dump", store, "--format", "jsonl").lines
    offsets = [row["physical_offset"] for row in found]
    assert offsets == sorted(offsets)
    served = {answer["phyOffset"] for answer in answers("multipath-5.5.0", "messages") if answer["kind"] == "message"}
    assert served <= set(offsets)


def test_progress_is_reported_on_stderr(mqtool):
    result = mqtool("dump", STORE, "--format", "jsonl", "--progress", "json")
    last = json.loads(result.stderr.splitlines()[-1])["progress"]
    assert result.lines == ROWS
    assert (last["finished"], last["total"]) == (True, 529502)
    assert last["done"] <= last["total"]


@pytest.mark.parametrize("options", [[], ["--format", "jsonl"], ["--hex"], ["--redact", "--explode"]], ids=str)
def test_nothing_below_the_store_changes(mqtool, tmp_path, options):
    store = copy_store(ORDERS, tmp_path)
    before = tree_digest(store)
    mqtool("dump", store, *options)
    mqtool("dump", store / "consumequeue", *options)
    assert tree_digest(store) == before
