"""`mqtool find`: index and scan give the same messages, and stderr says which way was taken."""

import base64
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from tests.cli.answers import rows
from tests.support.stores import answered, answers, copy_store, fixture, tree_digest
from tests.support.tiers import NIGHT

ORDERS = "orders-5.5.0"
STORE = fixture(f"{ORDERS}/store")
ROWS = rows(ORDERS)
ANSWERED = [store for store in answered("queries", "messages") if store.directory]

ASKED = 100 if NIGHT else 10
"""Keys of each store."""


def has_key(row, key):
    return key in row["properties"].get("KEYS", "").split(" ") or row["properties"].get("UNIQ_KEY") == key


@pytest.mark.long
@pytest.mark.parametrize("store", ANSWERED, ids=str)
@pytest.mark.parametrize("way", ["auto", "scan"])
def test_a_key_leads_to_every_message_that_has_it(mqtool, store, way):
    every = rows(store.name)
    # a rolled-back record is in no index, and the broker answers no query for it
    asked = sorted({answer["key"] for answer in answers(store.name, "queries")})[:ASKED]
    for key in asked:
        expected = [row for row in every if key and has_key(row, key) and (way == "scan" or row["sys_flag"] & 12 != 12)]
        result = mqtool("find", store.directory, "--key", key, "--by", way, "--format", "jsonl")
        assert [row for row in result.lines if way == "scan" or row["sys_flag"] & 12 != 12] == expected
        assert result.code == (0 if result.lines else 1)


@pytest.mark.long
@pytest.mark.parametrize("store", ANSWERED, ids=str)
def test_what_a_broker_s_query_finds_with_the_very_key_is_found(mqtool, store):
    by_offset = {row["physical_offset"]: row for row in rows(store.name)}
    for answer in answers(store.name, "queries")[:ASKED]:
        found = mqtool("find", store.directory, "--topic", answer["topic"], "--key", answer["key"], "-f", "jsonl").lines
        exact = [o for o in answer["physicalOffsets"] if o in by_offset and has_key(by_offset[o], answer["key"])]
        assert set(exact) <= {row["physical_offset"] for row in found if "error" not in row}


def test_stderr_says_which_way_was_taken(mqtool):
    assert "searching by index: 9 files" in mqtool("find", STORE, "--key", "k0").stderr
    assert "searching by scan of 517.1 KiB" in mqtool("find", STORE, "--key", "k0", "--by", "scan").stderr
    assert "searching by scan of 517.1 KiB; no key was given" in mqtool("find", STORE, "--tag", "TagA").stderr


def test_what_the_index_does_not_cover_is_scanned(mqtool, tmp_path):
    store = copy_store(ORDERS, tmp_path)
    files = sorted((store / "index").iterdir())
    for path in files[:2] + files[-3:]:
        path.unlink()
    keys = sorted({row["properties"]["KEYS"] for row in ROWS if row["properties"].get("KEYS", " ").count(" ") == 0})
    for key in keys[::20]:
        result = mqtool("find", store, "--key", key, "--format", "jsonl")
        assert result.lines == [row for row in ROWS if has_key(row, key)]
        assert "that the index does not cover" in result.stderr


def test_the_index_alone_is_taken_where_that_is_asked_for(mqtool):
    result = mqtool("find", STORE, "--key", "k0", "--by", "index", "--format", "jsonl")
    assert result.lines == [row for row in ROWS if has_key(row, "k0")]
    assert "scan" not in result.stderr


@pytest.mark.parametrize("options", [["--tag", "TagA"], ["--topic", "Orders"]], ids=str)
def test_the_index_cannot_be_asked_for_anything_but_keys(mqtool, options):
    result = mqtool("find", STORE, *options, "--by", "index")
    assert (result.code, result.stdout) == (2, b"")


@pytest.mark.parametrize(
    ("options", "matches"),
    [
        (["--key", "no such key", "--topic", "Orders"], lambda row: False),
        (
            ["--unique-key", ROWS[5]["properties"]["UNIQ_KEY"]],
            lambda row: row["properties"].get("UNIQ_KEY") == ROWS[5]["properties"]["UNIQ_KEY"],
        ),
        (
            ["--tag", "TagA", "--topic", "Payments"],
            lambda row: (row["properties"].get("TAGS"), row["topic"]) == ("TagA", "Payments"),
        ),
        (["--property", "region=naïve"], lambda row: row["properties"].get("region") == "naïve"),
        (["--time", "2026-11-21T00:39:46Z.."], lambda row: row["store_timestamp"] >= 1795221586000),
        (
            ["--key", "k1", "--time", "..2026-11-21T00:39:46Z"],
            lambda row: has_key(row, "k1") and row["store_timestamp"] < 1795221586000,
        ),
        (["--key", "k1", "--offset", "1000:"], lambda row: has_key(row, "k1") and row["physical_offset"] >= 1000),
        (["--key", "k1", "--queue", 7], lambda row: has_key(row, "k1") and row["queue_id"] == 7),
        (["--grep", "Straße 2[0-9]+"], None),
    ],
    ids=range(9),
)
def test_conditions_must_all_hold(mqtool, options, matches):
    result = mqtool("find", STORE, *options, "--format", "jsonl")
    if matches is None:
        assert result.lines == mqtool("dump", STORE, *options, "--format", "jsonl").lines != []
    else:
        assert result.lines == [row for row in ROWS if matches(row)]
    assert result.code == (0 if result.lines else 1)


def test_a_limit_ends_the_search(mqtool):
    assert (
        mqtool("find", STORE, "--tag", "TagA", "--limit", 2, "--format", "jsonl").lines
        == [row for row in ROWS if row["properties"].get("TAGS") == "TagA"][:2]
    )


def test_no_condition_is_a_usage_error(mqtool):
    result = mqtool("find", STORE)
    assert (result.code, result.stdout) == (2, b"")
    assert "mqtool dump" in result.stderr


def test_a_limit_that_is_no_size_is_refused_before_the_search(mqtool):
    result = mqtool("find", STORE, "--key", "k0", "--max-bytes", "many")
    assert (result.code, result.stdout) == (2, b"")
    assert (result.stderr.count("\n"), "searching" in result.stderr) == (1, False)


def test_nothing_found_is_exit_code_1(mqtool):
    result = mqtool("find", STORE, "--key", "nothing of the kind", "--format", "json")
    assert (result.code, result.document["rows"], result.document["ok"]) == (1, [], False)
    assert "no message matches" in result.stderr


def test_bodies_are_printed_as_asked(mqtool):
    (row,) = mqtool("find", STORE, "--key", "k0", "--format", "jsonl", "--body", "base64").lines
    assert base64.b64decode(row["body"]).decode() == ROWS[0]["body"]


def test_nothing_below_the_store_changes(mqtool, tmp_path):
    store = copy_store(ORDERS, tmp_path)
    before = tree_digest(store)
    mqtool("find", store, "--key", "k0")
    mqtool("find", store, "--grep", "x")
    assert tree_digest(store) == before


def test_times_are_read_and_printed_in_the_zone_that_tz_names(mqtool):
    store = fixture("orders-5.5.0/store")
    first, *_ = mqtool("dump", store, "--limit", "1", "-f", "jsonl").lines
    at = datetime.fromtimestamp(first["store_timestamp"] / 1000, ZoneInfo("Asia/Tokyo"))
    begin, end = (f"{at + timedelta(milliseconds=more):%Y-%m-%d#%H:%M:%S}:000" for more in (-1000, 1000))
    words = ("find", store, "--time", f"{begin}..{end}", "--limit", "1", "--tz", "Asia/Tokyo")
    assert mqtool(*words, "-f", "jsonl").lines[0]["store_timestamp"] == first["store_timestamp"]
    assert at.isoformat(timespec="milliseconds") in mqtool(*words, "-f", "wide").text
    assert mqtool(*words[:-2]).code == 1
    refused = mqtool(*words[:-1], "Asia/Tokio")
    assert refused.code == 2
    assert "--tz Asia/Tokio: no such time zone" in refused.stderr
