"""`mqtool pending`: what real brokers had not delivered when they stopped, counted and listed."""

import shutil

import pytest

from mqtool.cli.exits import ExitCode
from mqtool.formats import topics
from mqtool.repair.runbooks import RUNBOOKS, Request, run
from tests.support.builder import StoreBuilder
from tests.support.html_page import Page
from tests.support.stores import FIXTURES, answers, copy_store, tree_digest
from tests.support.unreadable import unreadable

SEGMENT = 262144


def counted(rows):
    return {(row["kind"], row["topic"], row["group"]): row["messages"] for row in rows}


def sent_ids(prefix):
    """Unique keys of the scripted lives of one kind."""
    rows = answers("lives-5.5.0", "lives")
    return {row["msgId"] for row in rows if row["event"] == "sent" and row["life"].startswith(f"{prefix}-")}


@pytest.fixture
def lives(tmp_path):
    return copy_store("lives-5.5.0", tmp_path)


def test_counts_are_those_of_the_scripted_lives(mqtool, lives):
    digest = tree_digest(lives)
    result = mqtool("pending", lives, "-f", "json")
    assert result.code == ExitCode.OK
    assert counted(result.document["rows"]) == {
        ("delay", "LivesDelay", None): 10,
        ("timer", "LivesTimer", None): 10,
        ("popped", "LivesHang", "LivesHanging"): 3,
        ("dead-letter", "%DLQ%LivesGroup", "LivesGroup"): 10,
    }
    assert tree_digest(lives) == digest


def test_the_list_has_the_very_messages_that_clients_sent_and_nobody_got(mqtool, lives):
    rows = mqtool("pending", lives, "--list", "-f", "jsonl").lines
    by_kind = {kind: {row["unique_key"] for row in rows if row["kind"] == kind} for kind in {r["kind"] for r in rows}}
    assert by_kind == {
        "delay": sent_ids("delaywait"),
        "timer": sent_ids("timerwait"),
        "popped": sent_ids("pophang"),
        "dead-letter": sent_ids("dead"),
    }
    assert {row["origin"] for row in rows if row["kind"] == "dead-letter"} == {"LivesRetry"}
    assert {row["tries"] for row in rows if row["kind"] == "dead-letter"} == {3}


def test_due_times_are_those_that_were_asked_for(mqtool, lives):
    rows = mqtool("pending", lives, "--list", "-f", "jsonl").lines
    delays = [row["due"] - row["since"] for row in rows if row["kind"] == "delay"]
    assert sorted(delays) == [3_600_000] * 5 + [7_200_000] * 5  # levels 17 and 18
    timers = {row["unique_key"]: row["due"] - row["since"] for row in rows if row["kind"] == "timer"}
    assert all(3_598_000 <= wait <= 3_610_000 for wait in timers.values())
    popped = [row["due"] - row["since"] for row in rows if row["kind"] == "popped"]
    assert popped == [300_000] * 3  # the invisible time


def test_open_transactions_have_their_producer_group(mqtool):
    rows = mqtool("pending", FIXTURES / "metadata-4.9.7" / "store", "-f", "json").document["rows"]
    found = {row["kind"]: row for row in rows}
    assert (found["transaction"]["messages"], found["transaction"]["group"]) == (2, "PG_half_unknown")
    assert (found["retry"]["topic"], found["retry"]["messages"]) == ("%RETRY%MetaFail", 6)


def test_a_retry_that_is_parked_in_a_delay_level_waits_for_its_group(mqtool, lives):
    path = lives / "config" / "delayOffset.json"
    path.write_text(path.read_text().replace("1:57", "1:0"))  # as if nothing of level 1 had been delivered
    found = counted(mqtool("pending", lives, "-f", "json").document["rows"])
    sent_back = sum(1 + (life[0] != "retry1") for life in lives_of("retry1", "retry2", "dead"))
    assert found["retry", "%RETRY%LivesGroup", "LivesGroup"] == sent_back


def lives_of(*kinds):
    names = {row["life"] for row in answers("lives-5.5.0", "lives")}
    return [name.split("-") for name in names if name.partition("-")[0] in kinds]


def test_what_is_no_check_point_in_a_revive_queue_is_no_popped_message(mqtool, tmp_path):
    builder = StoreBuilder()
    for tags, body in (("other", b"{}"), ("ck", b"no JSON"), ("ack", b"[]")):
        builder.put(body, topic="rmq_sys_REVIVE_LOG_DefaultCluster", tags=tags)
    rows = mqtool("pending", builder.write(tmp_path / "store"), "-f", "json").document["rows"]
    assert rows == []


def test_topic_and_group_select(mqtool, lives):
    rows = mqtool("pending", lives, "--topic", "Lives[DT]*", "-f", "json").document["rows"]
    assert {row["topic"] for row in rows} == {"LivesDelay", "LivesTimer"}
    rows = mqtool("pending", lives, "--group", "LivesHang*", "-f", "json").document["rows"]
    assert {row["kind"] for row in rows} == {"popped"}


def test_a_topic_that_does_not_exist_is_an_error(mqtool, lives):
    found = mqtool("pending", lives, "--topic", "Nope")
    assert (found.code, "no topic matches 'Nope'" in found.stderr) == (ExitCode.NO, True), found.stderr
    found = mqtool("pending", lives, "--topic", "LivesRecall")
    assert (found.code, "nothing waits" in found.stderr) == (ExitCode.OK, True), found.stderr


def test_a_database_of_pops_that_cannot_be_read_is_unknown_and_not_nothing(mqtool, lives):
    (lives / "kvStore").mkdir()
    (lives / "kvStore" / "CURRENT").write_text("MANIFEST-000001\n")
    result = mqtool("pending", lives, "--topic", "LivesHang", "-f", "json")
    assert result.code == ExitCode.NO
    assert [row["messages"] for row in result.document["rows"] if row["unknown"]] == [None]


def test_without_the_timers_checkpoint_what_it_delivered_is_unknown(mqtool, lives):
    (lives / "config" / "timercheck").unlink()
    result = mqtool("pending", lives, "-f", "json")
    assert result.code == ExitCode.NO
    (unknown,) = [row for row in result.document["rows"] if row["unknown"]]
    assert (unknown["kind"], unknown["messages"]) == ("timer", None)
    assert counted(result.document["rows"])["timer", "LivesTimer", None] >= 10


def test_popped_messages_are_lost_with_their_segment(mqtool, lives):
    said = mqtool("clean", lives, "--dry-run", "--now", "--reserved-hours", "0", "--as-of", "2036-01-01T00:00:00Z",
                  "-f", "json").document  # fmt: skip
    kinds = {(file["file"], file["waiting"]) for file in said["files"]}
    assert {name.rpartition("/")[2]: waits for name, waits in kinds} == {
        "00000000000000000000": 20,
        "00000000000000262144": 6,  # three popped messages, and their check points, which are timers
    }


FIRST = [
    f"segment 00000000000000000000: {words} not delivered yet"
    for words in (
        "5 delay message(s) of SCHEDULE_TOPIC_XXXX/16",
        "5 delay message(s) of SCHEDULE_TOPIC_XXXX/17",
        "10 timer message(s) of rmq_sys_wheel_timer/0",
    )
]
SECOND = [
    f"segment 00000000000000262144: {words} not delivered yet"
    for words in (
        "3 timer message(s) of rmq_sys_wheel_timer/0",
        "1 popped message(s) of LivesHang/0",
        "2 popped message(s) of LivesHang/1",
    )
]


def test_a_plan_to_trim_counts_what_waits_in_the_segments_that_go(mqtool, lives, tmp_path):
    found = mqtool("plan", "trim", lives, "--before", "262144", "--allow-unread", "-o",
                   tmp_path / "plan.json", "-f", "json")  # fmt: skip
    assert [note for note in found.document["notes"] if "not delivered yet" in note] == FIRST


@pytest.mark.parametrize("options", [[], ["--list"]])
def test_what_waits_is_unknown_if_the_timers_checkpoint_cannot_be_read(mqtool, lives, monkeypatch, options):
    with unreadable(monkeypatch, lives / "config/timercheck"):
        found = mqtool("pending", lives, "-f", "json", *options)
    assert found.code == ExitCode.NO
    rows = found.document["rows"]
    assert [row["messages"] for row in rows] == ([] if options else [None] * 6)
    assert "nothing waits" not in found.stderr


def test_the_report_says_that_what_waits_is_unknown(mqtool, lives, tmp_path, monkeypatch):
    with unreadable(monkeypatch, lives / "config/timercheck"):
        mqtool("report", lives, "-o", tmp_path / "page.html")
    assert "unknown: " in (tmp_path / "page.html").read_text("utf-8")


def test_the_runbook_of_a_full_disk_says_which_segments_hold_waiting_messages(lives):
    found = run(RUNBOOKS["RB-11"], lives, Request(used=95))
    lines = [line for step in found.steps for line in step.evidence if "not delivered yet" in line]
    assert lines == [*FIRST, *SECOND]


def test_the_report_says_which_segments_hold_waiting_messages(mqtool, lives, tmp_path):
    mqtool("report", lives, "-o", tmp_path / "report.html")
    text = Page((tmp_path / "report.html").read_text("utf-8")).text
    for line in (*FIRST, *SECOND):
        assert line in text


def test_a_store_where_nothing_waits_says_so(mqtool, tmp_path):
    root = tmp_path / "store"
    shutil.copytree(FIXTURES / "rollover-5.5.0" / "store", root)
    result = mqtool("pending", root)
    assert "nothing waits" in result.stderr
    assert result.code == ExitCode.OK


def test_a_message_whose_record_is_damaged_is_listed_and_says_why_it_is_unknown(mqtool, lives):
    before = mqtool("pending", lives, "--list", "-f", "jsonl").lines
    for row in before:
        segment = lives / "commitlog" / f"{row['physical_offset'] // SEGMENT * SEGMENT:020}"
        with segment.open("r+b") as file:
            file.seek(row["physical_offset"] % SEGMENT)
            file.write(b"\xff" * 8)
    result = mqtool("pending", lives, "--list", "-f", "jsonl")
    assert result.code == ExitCode.NO
    assert [row["physical_offset"] for row in result.lines] == [row["physical_offset"] for row in before]
    assert all("its record cannot be read: " in row["unknown"] for row in result.lines)


def unknown(result):
    """Kind and reason of what is not known."""
    return [(row["kind"], row["unknown"]) for row in result.document["rows"] if row["messages"] is None]


@pytest.mark.parametrize(
    ("key", "kind", "reason"),
    [
        ("timerRocksDBEnable", "timer", "timerRocksDBEnable keeps timers in RocksDB, which is not read"),
        (
            "enablePopBufferMerge",
            "popped",
            "enablePopBufferMerge keeps check points in memory, and the broker was not shut down cleanly",
        ),
    ],
)
def test_what_a_configuration_keeps_elsewhere_is_unknown(mqtool, lives, tmp_path, key, kind, reason):
    (lives / "abort").touch()
    (tmp_path / "broker.conf").write_text(f"{key}=true\n")
    result = mqtool("pending", lives, "--config", tmp_path / "broker.conf", "-f", "json")
    assert (result.code, unknown(result)) == (ExitCode.NO, [(kind, reason)])


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("delayOffset.json", ["delay", "retry"]),
        ("consumerOffset.json", ["transaction", "popped", "retry"]),
        ("lmqConsumerOffset.json", ["transaction", "popped", "retry"]),
    ],
)
def test_where_positions_cannot_be_read_what_counts_from_the_start_is_said(mqtool, lives, name, kinds):
    if name.startswith("lmq"):
        for path in (lives / "config").glob("consumerOffset.json*"):
            path.rename(path.with_name(name + path.name.removeprefix("consumerOffset.json")))
        assert unknown(mqtool("pending", lives, "-f", "json")) == []
    for path in (lives / "config").glob(f"{name}*"):
        path.write_text("{")
    result = mqtool("pending", lives, "-f", "json")
    found = unknown(result)
    assert (result.code, [one for one, _ in found]) == (ExitCode.NO, kinds)
    for _, reason in found:
        assert reason.startswith(name)
        assert reason.endswith("; positions count from 0")


def test_positions_of_a_backup_are_known(mqtool, lives):
    """The broker reads it, too."""
    expected = mqtool("pending", lives, "-f", "json").document["rows"]
    for name in ("delayOffset.json", "consumerOffset.json"):
        path = lives / "config" / name
        path.with_name(f"{name}.bak").write_bytes(path.read_bytes())
        path.write_text("{")
    assert mqtool("pending", lives, "-f", "json").document["rows"] == expected


def test_without_a_directory_of_configuration_nothing_that_counts_from_a_position_is_known(mqtool, lives):
    shutil.rmtree(lives / "config")
    (lives / "config").write_text("")
    found = unknown(mqtool("pending", lives, "-f", "json"))
    assert {kind for kind, reason in found if "positions count from 0" in reason} == {
        "delay",
        "transaction",
        "popped",
        "retry",
    }


def test_half_messages_and_timers_that_no_broker_could_deliver_are_said(mqtool, tmp_path):
    builder = StoreBuilder()
    builder.put(topic=topics.ROCKSDB_HALF_TOPIC)
    builder.put(topic=topics.TIMER_TOPIC, properties=b"UNIQ_KEY\x01U1\x02REAL_TOPIC\x01T\x02")
    builder.put(topic=topics.TIMER_TOPIC, properties=b"UNIQ_KEY\x01U2\x02TIMER_OUT_MS\x011700000009000\x02")
    half = builder.put(topic=topics.HALF_TOPIC, properties=b"UNIQ_KEY\x01U3\x02REAL_TOPIC\x01T\x02PGROUP\x01P\x02")
    builder.put(topic="T")
    root = builder.write(tmp_path / "store")
    with (root / "commitlog" / f"{0:020}").open("r+b") as file:
        file.seek(half.physical_offset + 4)
        file.write(b"\xff\xff")
    counted_rows = mqtool("pending", root, "-f", "json")
    reason = f"half messages of {topics.ROCKSDB_HALF_TOPIC} are settled in RocksDB, which is not read"
    assert ("transaction", reason) in unknown(counted_rows)
    rows = {row["physical_offset"]: row for row in mqtool("pending", root, "--list", "-f", "jsonl").lines}
    timers = [rows[put.physical_offset] for put in builder.puts[1:3]]
    assert [(row["kind"], row["unique_key"]) for row in timers] == [("timer", "U1"), ("timer", "U2")]
    assert "TIMER_OUT_MS" in timers[0]["unknown"]
    assert "REAL_TOPIC" in timers[1]["unknown"]
    assert rows[half.physical_offset]["kind"] == "transaction"
    assert "its record cannot be read: " in rows[half.physical_offset]["unknown"]
