"""`mqtool get`: every message of a real store is found at each of its addresses."""

import shutil

import pytest

from tests.cli.answers import problems, rows
from tests.support.damage import damage_case
from tests.support.stores import answered, answers, copy_store, fixture, tree_digest

ORDERS = "orders-5.5.0"
STORE = fixture(f"{ORDERS}/store")
ROWS = rows(ORDERS)
ANSWERED = [store for store in answered("gets", "messages", "queues") if store.directory]


def found(mqtool, store, *addresses):
    return mqtool("get", store, *addresses, "--format", "jsonl").lines


@pytest.mark.parametrize("store", ANSWERED, ids=str)
def test_every_message_is_at_its_physical_offset(mqtool, store):
    expected = rows(store.name)
    assert found(mqtool, store.directory, *(row["physical_offset"] for row in expected)) == expected


@pytest.mark.parametrize("store", ANSWERED, ids=str)
def test_every_message_is_found_by_its_offset_message_id(mqtool, store):
    expected = rows(store.name)[:200]
    assert found(mqtool, store.directory, *(row["offset_message_id"] for row in expected)) == expected


@pytest.mark.parametrize("store", ANSWERED, ids=str)
def test_every_unit_leads_to_its_message(mqtool, store):
    by_offset = {row["physical_offset"]: row for row in rows(store.name)}
    units = [
        (f"{queue['topic']}/{queue['queueId']}@{unit[0]}", unit[1])
        for queue in answers(store.name, "queues")
        if queue["type"] == "SimpleCQ"
        for unit in queue["units"][:5]
    ]
    if store.clean_stop:
        assert found(mqtool, store.directory, *(address for address, _ in units)) == [by_offset[o] for _, o in units]
    assert units


def test_messages_are_found_by_unique_key_through_the_index(mqtool):
    keys = [row["properties"]["UNIQ_KEY"] for row in ROWS if "UNIQ_KEY" in row["properties"]][:30]
    for key in keys:
        result = mqtool("get", STORE, key, "--format", "jsonl")
        assert result.lines == [row for row in ROWS if row["properties"].get("UNIQ_KEY") == key]
        assert f"{key}: unique key, by index" in result.stderr


def test_messages_are_found_by_unique_key_without_an_index(mqtool, tmp_path):
    store = copy_store(ORDERS, tmp_path)
    for path in (store / "index").iterdir():
        path.unlink()
    key = ROWS[3]["properties"]["UNIQ_KEY"]
    result = mqtool("get", store, key, "--format", "jsonl")
    assert result.lines == [row for row in ROWS if row["properties"].get("UNIQ_KEY") == key]
    assert "there is no index" in result.stderr


def test_stderr_says_as_what_an_id_was_taken(mqtool):
    result = mqtool("get", STORE, ROWS[1]["offset_message_id"].lower(), "--format", "jsonl")
    assert result.lines == [ROWS[1]]
    assert ": offset message id" in result.stderr


def test_an_id_of_another_broker_address_is_taken_by_its_offset_and_said(mqtool):
    moved = "01020304" + ROWS[1]["offset_message_id"][8:]
    result = mqtool("get", STORE, moved, "--format", "jsonl")
    assert result.lines == [ROWS[1]]
    assert ROWS[1]["offset_message_id"] in result.stderr


def test_a_message_of_an_inner_batch_is_at_its_own_queue_offset(mqtool):
    whole = mqtool("dump", fixture("bcq-5.5.0/store"), "--format", "jsonl", "--topic", "BatchTopic", "--explode").lines
    picked = [row for row in whole if row.get("batch_index") == 2]
    addresses = [f"BatchTopic/{row['queue_id']}@{row['queue_offset']}" for row in picked]
    assert found(mqtool, fixture("bcq-5.5.0/store"), *addresses) == picked
    assert picked


@pytest.mark.parametrize(
    "address",
    ["17", "529502", "99999999999", "Orders/0@9999", "Orders/99@0", "Nothing/0@0", "F" * 32, "no such key"],
)
def test_nothing_there_is_an_answer_on_stderr_and_exit_code_1(mqtool, address):
    result = mqtool("get", STORE, address, "--format", "jsonl")
    assert (result.code, result.stdout) == (1, b"")
    assert result.stderr.startswith(f"mqtool: {address}: nothing found: ")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["get", "story"])
@pytest.mark.parametrize("address", ["Orders/0@0", "0", ROWS[0]["properties"]["UNIQ_KEY"]])
def test_a_record_without_a_unit_is_in_the_log_and_not_in_its_queue(mqtool, tmp_path, command, address):
    root = copy_store("orders-5.5.0", tmp_path)
    shutil.rmtree(root / "consumequeue/Orders/0")
    words = "its record is in the log at physical offset 0, but not in its queue Orders/0, so no consumer gets it"
    stderr = mqtool(command, root, address).stderr
    assert f"{words}: `mqtool verify {root}` shows what to do\n" in stderr
    assert "no record has this" not in stderr
    other = mqtool(command, root, "Orders/0@99")
    assert (other.code, "in the log" in other.stderr) == (1, False)


@pytest.mark.parametrize("command", ["get", "story"])
@pytest.mark.parametrize("address", ["Orders/0@0", "0", ROWS[0]["properties"]["UNIQ_KEY"]])
@pytest.mark.parametrize("position", [5, 95], ids=["header", "body"])
def test_a_damaged_record_is_said_to_be_damaged_and_where(mqtool, tmp_path, command, address, position):
    root = copy_store("orders-5.5.0", tmp_path)
    path = root / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[position] ^= 0xFF
    path.write_bytes(data)
    result = mqtool(command, root, address)
    assert " at physical offset 0, 318 bytes: " in result.stderr
    assert result.stderr.endswith(f"mqtool: `mqtool verify {root}` shows what to do\n")
    assert "no record has this" not in result.stderr


@pytest.mark.parametrize("command", ["get", "story"])
def test_the_position_of_a_damaged_record_is_that_in_its_segment(mqtool, tmp_path, command):
    """A page of zeros is over the record, which its unit in the queue names."""
    root = damage_case("old-zero-page@5.5.0-clean", tmp_path)
    place = f"{root / 'commitlog' / f'{32768:020d}'} position {37411 - 32768}: bad-header at physical offset 37411"
    assert place in mqtool(command, root, "Orders/0@22").stderr


def test_a_long_log_is_not_scanned_for_a_message_that_its_queue_lacks(mqtool, tmp_path, monkeypatch):
    root = copy_store("orders-5.5.0", tmp_path)
    shutil.rmtree(root / "consumequeue/Orders/0")
    monkeypatch.setattr("mqtool.store.find.SMALL_LOG", 1000)
    stderr = mqtool("get", root, "Orders/0@0").stderr
    assert f"`mqtool find {root} --topic Orders --queue 0` searches the log for it" in stderr
    rows = mqtool("find", root, "--topic", "Orders", "--queue", "0", "--json").document["rows"]
    assert [row["physical_offset"] for row in rows if row["queue_offset"] == 0] == [0]


def test_what_is_there_is_printed_beside_what_is_not(mqtool):
    result = mqtool("get", STORE, "0", "17", "318", "--format", "json")
    assert (result.code, result.document["ok"]) == (1, False)
    assert result.document["rows"] == ROWS[:2]


def test_a_message_for_people_stands_upright_with_its_body(mqtool):
    text = mqtool("get", STORE, "0").text
    values = dict(line.split(None, 1) for line in text.splitlines() if " " in line)
    assert values["topic"] == "Orders"
    assert values["body"] == ROWS[0]["body"]
    assert values["store_timestamp"] == "2026-11-21T00:39:44.300Z"


def test_a_body_with_a_wrong_crc_is_printed_and_reported(mqtool, tmp_path):
    store = damage_case("flip-body@5.5.0-clean", tmp_path)
    dumped = mqtool("dump", store, "--format", "jsonl", "--damage", "rows").lines
    (damage,) = [row["damage"] for row in dumped if "damage" in row]
    result = mqtool("get", store, damage["start"], "--format", "jsonl")
    assert result.code == 1
    assert len(result.lines) == 1
    assert "bad-crc" in result.stderr


def test_output_is_valid_against_the_schema(mqtool):
    assert problems("get", mqtool("get", STORE, "0", "318", "--format", "json").document) == []


def test_no_address_is_a_usage_error(mqtool):
    assert mqtool("get", STORE).code == 2


def test_nothing_below_the_store_changes(mqtool, tmp_path):
    store = copy_store(ORDERS, tmp_path)
    before = tree_digest(store)
    mqtool("get", store, "0", "Orders/0@1", ROWS[3]["properties"]["UNIQ_KEY"], "nothing")
    assert tree_digest(store) == before
