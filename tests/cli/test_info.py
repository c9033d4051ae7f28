"""`mqtool info`: judged by the real broker's answers."""

import csv
import io
import os
import re
from collections import Counter

import pytest

from mqtool import words
from tests.cli.answers import problems, rows
from tests.support.damage import damage_case
from tests.support.stores import STORES, answered, answers, copy_store, fixture, store_fixture, summary, tree_digest

ORDERS = "orders-5.5.0"
STORE = fixture(f"{ORDERS}/store")
OPENED = [store for store in STORES if store.directory and "equeue" not in store.name]
SYSTEM = frozenset(
    (
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "rmq_sys_wheel_timer",
        "rmq_sys_REVIVE_LOG_DefaultCluster",
    )
)
"""Topics of the broker itself that have messages in the fixtures."""
CLEAN = [store for store in answered("queues", "messages") if store.directory and store.clean_stop]


def info(mqtool, store, *options):
    return mqtool("info", store, "--format", "json", *options).document


@pytest.mark.parametrize("store", CLEAN, ids=str)
def test_bounds_of_the_log_are_the_broker_s(mqtool, store):
    found = info(mqtool, store.directory)["commit_log"]
    expected = summary(store.name)
    assert (found["min_offset"], found["max_offset"]) == (expected["minPhyOffset"], expected["maxPhyOffset"])
    assert found["files"] == len(list((store.directory / "commitlog").iterdir()))


@pytest.mark.parametrize("store", CLEAN, ids=str)
def test_queues_are_the_broker_s(mqtool, store):
    found = {
        (q["topic"], q["queue_id"]): (q["kind"], q["min_offset"], q["max_offset"])
        for q in info(mqtool, store.directory)["queues"]
    }
    expected = {
        (a["topic"], a["queueId"]): (a["type"], a["minOffset"], a["maxOffset"]) for a in answers(store.name, "queues")
    }
    assert found == {queue: expected[queue] for queue in found}
    assert {queue for queue, (_, low, high) in expected.items() if high > low} <= set(found)


@pytest.mark.parametrize("store", CLEAN, ids=str)
def test_topics_count_what_their_queues_hold(mqtool, store):
    found = {topic["topic"]: topic for topic in info(mqtool, store.directory)["topics"]}
    counts, sizes = Counter(), Counter()
    for answer in answers(store.name, "queues"):
        counts[answer["topic"]] += answer["maxOffset"] - max(answer["minOffset"], 0)
        sizes[answer["topic"]] += sum(unit[2] for unit in answer["units"])
    for topic, count in counts.items():
        if count:
            assert (found[topic]["messages"], found[topic]["size"]) == (count, sizes[topic])


@pytest.mark.parametrize("store", CLEAN, ids=str)
def test_a_deep_scan_counts_every_record(mqtool, store):
    found = info(mqtool, store.directory, "--deep")["deep"]
    every = rows(store.name)
    assert (found["messages"], found["size"]) == (len(every), sum(row["store_size"] for row in every))
    assert (found["damaged_ranges"], found["damaged_bytes"], found["damage"]) == (0, 0, [])
    by_topic = Counter(row["topic"] for row in every)
    assert {topic["topic"]: topic["messages"] for topic in found["topics"]} == by_topic
    for topic in found["topics"]:
        times = [row["store_timestamp"] for row in every if row["topic"] == topic["topic"]]
        assert (topic["first_timestamp"], topic["last_timestamp"]) == (min(times), max(times))


@pytest.mark.parametrize("store", CLEAN, ids=str)
def test_time_ranges_of_topics_are_those_of_their_records(mqtool, store):
    every = rows(store.name)
    found = info(mqtool, store.directory)
    by_offset = {row["physical_offset"]: row["store_timestamp"] for row in every}
    assert found["commit_log"]["first_timestamp"] == every[0]["store_timestamp"]
    for topic in found["topics"]:
        units = [unit for a in answers(store.name, "queues") if a["topic"] == topic["topic"] for unit in a["units"]]
        times = [by_offset[unit[1]] for unit in units]
        expected = (min(times), max(times)) if times else (None, None)
        assert (topic["first_timestamp"], topic["last_timestamp"]) == expected


@pytest.mark.parametrize("store", OPENED, ids=str)
def test_the_release_and_the_way_of_stopping_are_reported(mqtool, store):
    found = info(mqtool, store.directory)
    assert found["clean_stop"] is store.clean_stop
    assert found["version"] is None or found["version"] <= store.version
    assert found["version"] is None or found["version"][0] == store.version[0]
    known = (store.version, f"{store.version} or 5.5.1", found["version"], f"{found['version']} or later")
    assert found["release"] in (*known, "an unknown release")
    assert found["version_evidence"]


@pytest.mark.parametrize("store", OPENED, ids=str)
def test_output_is_valid_against_the_schema(mqtool, store):
    assert problems("info", info(mqtool, store.directory, "--deep")) == []


@pytest.mark.parametrize("store", OPENED, ids=str)
@pytest.mark.parametrize("form", ["--all", "--format=wide"])
def test_people_get_printable_sections(mqtool, store, form):
    result = mqtool("info", store.directory, form, "--deep")
    lines = result.text.splitlines()
    assert lines[0].split() == ["path", str(store.directory)]
    assert all(line.isprintable() for line in lines)
    assert "Commit log" in lines


@pytest.mark.parametrize("columns", ["60", "80", "200"])
@pytest.mark.parametrize("store", [store for store in CLEAN if store.name != "v2-long-topic"], ids=str)
def test_people_get_a_dozen_lines_with_the_biggest_topics_first(mqtool, store, columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    lines = mqtool("info", store.directory).text.splitlines()
    assert all(line.isprintable() for line in lines)
    begin = lines.index("Topics")
    assert max(map(len, lines[begin:])) <= int(columns)
    assert len(lines) - begin <= 8
    assert begin <= (5 if columns == "200" and not info(mqtool, store.directory)["oddities"] else 14)
    sizes = Counter()
    for answer in answers(store.name, "queues"):
        if answer["topic"] not in SYSTEM:
            sizes[answer["topic"]] += sum(unit[2] for unit in answer["units"])
    biggest = [words.size(size) for _, size in sizes.most_common(4) if size]
    assert [" ".join(line.split()[-2:]) for line in lines[begin + 2 :][: len(biggest)]] == biggest


def test_a_long_topic_can_be_copied_from_the_narrowest_screen(mqtool, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    shown = mqtool("info", store_fixture("v2-long-topic").directory).text.split()
    longest = max((answer["topic"] for answer in answers("v2-long-topic", "queues")), key=len)
    assert (len(longest) > 60, longest in shown) == (True, True)


def test_topics_that_are_not_listed_are_summed_up_and_listed_with_all(mqtool):
    lines = mqtool("info", STORE).text.splitlines()
    counts = {answer["topic"]: 0 for answer in answers(ORDERS, "queues")}
    for answer in answers(ORDERS, "queues"):
        counts[answer["topic"]] += answer["maxOffset"] - answer["minOffset"]
    rows = [re.split(r"  +", line.strip()) for line in lines[lines.index("Topics") + 2 :]]
    assert sum(int(row[1]) for row in rows) == sum(counts.values())
    assert int(rows[-1][1]) == sum(counts[topic] for topic in SYSTEM & counts.keys())
    assert rows[-1][0].endswith(" system topics")
    assert rows[-2][0].endswith(" more: --all")
    everything = mqtool("info", STORE, "--all").text
    assert all(topic in everything for topic in counts)
    assert "…" not in everything


def test_sizes_are_reported_with_their_evidence(mqtool):
    layout = {row["name"]: row for row in info(mqtool, STORE)["layout"]}
    config = dict(line.split("=", 1) for line in store_fixture(ORDERS).config.read_text().splitlines() if "=" in line)
    assert layout["commit_log_size"]["value"] == int(config["mappedFileSizeCommitLog"])
    assert layout["consume_queue_size"]["value"] == int(config["mappedFileSizeConsumeQueue"])
    assert layout["index_slots"]["value"] == int(config["maxHashSlotNum"])
    assert layout["index_entries"]["value"] == int(config["maxIndexNum"])
    assert all(row["evidence"] for row in layout.values())


def test_lag_is_what_the_groups_have_not_read(mqtool):
    found = info(mqtool, STORE)
    offsets = Counter()
    queues = {(a["topic"], a["queueId"]): a["maxOffset"] for a in answers(ORDERS, "queues")}
    for lag in found["lags"]:
        high = queues.get((lag["topic"], lag["queue_id"]))
        assert lag["max_offset"] == high
        assert lag["lag"] == (None if high is None else max(0, high - lag["consumer_offset"]))
        offsets[lag["group"]] += lag["lag"] or 0
    assert {group["group"]: group["lag"] for group in found["groups"] if group["queues"]} == offsets
    assert any(offsets.values())


def test_index_files_are_the_broker_s(mqtool):
    found = info(mqtool, STORE)["index_files"]
    expected = answers(ORDERS, "index")
    assert [(row["file"], row["entries"], row["end_physical_offset"]) for row in found] == [
        (a["file"], a["indexCount"] - 1, a["endPhyOffset"]) for a in expected
    ]


def test_messages_that_wait_in_the_timer_wheel_are_counted(mqtool, tmp_path):
    store = copy_store("timer-5.5.0", tmp_path)
    found = info(mqtool, store)["timer"]
    (check,) = [a for a in answers("timer-5.5.0", "timer") if a["kind"] == "timercheck"]
    slots = [a for a in answers("timer-5.5.0", "timer") if a["kind"] == "slot"]
    assert found["last_read_time"] == check["lastReadTimeMs"]
    assert found["waiting"] == sum(a["num"] for a in slots if a["timeMs"] >= check["lastReadTimeMs"])


def test_csv_is_field_and_value(mqtool):
    read = dict(csv.reader(io.StringIO(mqtool("info", STORE, "--format", "csv").text)))
    assert read["commit_log.max_offset"] == "529502"
    assert read["clean_stop"] == "true"
    assert read["queues.0.topic"] == info(mqtool, STORE)["queues"][0]["topic"]


def test_json_lines_are_one_line(mqtool):
    (line,) = mqtool("info", STORE, "--format", "jsonl").lines
    assert line == info(mqtool, STORE)


def test_damage_makes_a_deep_scan_answer_no(mqtool, tmp_path):
    store = damage_case("flip-body@5.5.0-clean", tmp_path)
    shallow = mqtool("info", store, "--format", "json")
    assert (shallow.code, shallow.document["ok"]) == (0, True)
    deep = mqtool("info", store, "--format", "json", "--deep")
    assert (deep.code, deep.document["ok"]) == (1, False)
    assert deep.document["deep"]["damaged_ranges"] == len(deep.document["deep"]["damage"]) == 1
    assert mqtool("info", store, "--deep").stderr.count("damage: ") == 1


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("abort-added", "abort"),
        ("checkpoint-missing", "checkpoint"),
        ("segment-missing-middle", "no file holds"),
        ("cq-behind-all", "the queues end"),
        ("config-topics-torn", "topics.json"),
        ("config-all-missing", "topics.json"),
        ("config-offsets-ahead", "ahead of queue"),
        ("segment-name-text", "is not a segment"),
    ],
)
def test_what_is_odd_is_said(mqtool, tmp_path, case, words):
    found = info(mqtool, damage_case(f"{case}@5.5.0-clean", tmp_path))
    assert any(words in sentence for sentence in found["oddities"])


def test_a_healthy_store_has_no_oddities(mqtool):
    assert info(mqtool, STORE)["oddities"] == []


def test_a_store_of_default_sizes_is_described_without_reading_its_holes(mqtool, tmp_path, monkeypatch):
    store = copy_store("default-sizes", tmp_path)
    read = []

    def counting(descriptor, count, position):
        data = os_pread(descriptor, count, position)
        read.append(len(data))
        return data

    os_pread = os.pread
    monkeypatch.setattr(os, "pread", counting)
    assert info(mqtool, store)["commit_log"]["max_offset"] == summary("default-sizes")["maxPhyOffset"]
    assert 0 < sum(read) < 100 << 20 < sum(path.stat().st_size for path in store.rglob("*"))


@pytest.mark.parametrize("options", [[], ["--deep"]], ids=str)
def test_nothing_below_the_store_changes(mqtool, tmp_path, options):
    store = copy_store(ORDERS, tmp_path)
    before = tree_digest(store)
    mqtool("info", store, *options)
    assert tree_digest(store) == before
