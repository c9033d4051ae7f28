"""`mqtool verify`: formats, exit codes, work that goes on after a kill, a store that is written to meanwhile."""

import csv
import io
import json
import re
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

import mqtool as library
from mqtool import words
from mqtool.verify import verify as check
from tests.cli.answers import problems
from tests.support.damage import damage_case, held_lock
from tests.support.engine import open_small
from tests.support.stores import copy_store, fixture, tree_digest

CRASH = fixture("crash-5.5.0/store")
HEALTHY = fixture("orders-5.5.0/store")


@pytest.fixture
def corrupt(tmp_path) -> Path:
    return damage_case("old-zero-page@5.5.0-clean", tmp_path / "corrupt")


def without_clock(document: dict) -> dict:
    return {key: value for key, value in document.items() if key != "seconds"}


def test_json_is_valid_and_its_lines_say_the_same(mqtool, corrupt):
    before = tree_digest(corrupt)
    whole = mqtool("verify", corrupt, "--format", "json").document
    lines = mqtool("verify", corrupt, "--format", "jsonl").lines
    assert problems("verify", whole) == []
    assert [line["finding"] for line in lines if "finding" in line] == whole["findings"]
    assert [line["lost_range"] for line in lines if "lost_range" in line] == whole["lost_ranges"]
    assert lines[-1]["verdict"]["lost_messages"] == whole["lost_messages"] > 0
    assert tree_digest(corrupt) == before


def test_every_other_format_has_each_finding(mqtool, corrupt):
    findings = mqtool("verify", corrupt, "--format", "json").document["findings"]
    codes = {finding["code"] for finding in findings}
    rows = list(csv.DictReader(io.StringIO(mqtool("verify", corrupt, "--format", "csv").text)))
    assert [row["code"] for row in rows] == [finding["code"] for finding in findings]
    junit = ET.fromstring(mqtool("verify", corrupt, "--format", "junit").text)
    assert all(any(code in "".join(node.itertext()) + str(node.attrib) for node in junit.iter()) for code in codes)
    for output_format in ("table", "wide"):
        text = mqtool("verify", corrupt, "--format", output_format).text
        assert all(code in text for code in codes)


def test_what_was_stopped_early_is_said_and_skipped_by_junit(mqtool):
    early = ("verify", HEALTHY, "--max-time", "0")
    assert "stopped early: this is not all" in mqtool(*early).text
    junit = ET.fromstring(mqtool(*early, "--format", "junit").text)
    skipped = [suite.get("name") for suite in junit if suite.find("testcase/skipped") is not None]
    assert "commitlog" in skipped
    assert [suite.get("skipped") for suite in junit if suite.get("name") in skipped] == ["1"] * len(skipped)


def test_that_a_broker_is_running_is_said(mqtool, tmp_path):
    store = copy_store("orders-5.5.0", tmp_path)
    with held_lock(store / "lock"):
        result = mqtool("verify", store)
    assert "a broker is running on it: only what is certain is reported" in result.text


def test_monitoring_formats_tell_the_state(mqtool, corrupt):
    assert mqtool("verify", corrupt, "--format", "nagios").text.startswith("VERIFY CRITICAL")
    assert mqtool("verify", CRASH, "--format", "nagios").text.startswith("VERIFY WARNING")
    lines = mqtool("verify", corrupt, "--format", "prometheus").text.splitlines()
    assert [line for line in lines if 'state="corrupt"' in line and line.endswith(" 1")]


@pytest.mark.parametrize(
    ("kind", "fail_on", "code"),
    [
        ("corrupt", "error", 1),
        ("corrupt", "warning", 1),
        ("corrupt", "never", 0),
        ("dirty", "error", 0),
        ("dirty", "warning", 3),
        ("dirty", "never", 0),
        ("clean", "warning", 0),
        ("unknown", "warning", 3),
        ("unknown", "error", 0),
    ],
)
def test_fail_on_decides_the_exit_code(mqtool, corrupt, kind, fail_on, code):
    store = {"corrupt": corrupt, "dirty": CRASH, "clean": HEALTHY, "unknown": fixture("rollover-5.5.0/store")}[kind]
    result = mqtool("verify", store, "--fail-on", fail_on, "--format", "json")
    assert (result.document["status"], result.code) == (kind, code)


def test_what_was_stopped_early_is_unknown_and_goes_on_with_its_state(mqtool, tmp_path, corrupt):
    state = tmp_path / "state"
    early = mqtool("verify", corrupt, "--state", state, "--max-time", "0", "--format", "json")
    assert (early.code, early.document["complete"]) == (5, False)
    assert {one["state"] for one in early.document["checks"]} == {"unknown"}
    later = mqtool("verify", corrupt, "--state", state, "--format", "json").document
    assert without_clock(later) == without_clock(mqtool("verify", corrupt, "--format", "json").document)


def test_a_run_that_was_killed_goes_on_where_it_was(mqtool, tmp_path):
    state = tmp_path / "state"
    command = [sys.executable, "-m", "mqtool", "verify", str(CRASH), "--state", str(state), "--throttle", "200K"]
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=Path(library.__file__).parents[1],
    )
    deadline = time.monotonic() + 60
    while process.poll() is None and not (state.exists() and state.read_text("utf-8").count("\n") >= 3):
        assert time.monotonic() < deadline
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    with state.open("a") as file:
        file.write('["segment 3-4", {"half of a li')
    known = state.read_text("utf-8").count("\n")
    resumed = mqtool("verify", CRASH, "--state", state, "--format", "json").document
    assert without_clock(resumed) == without_clock(mqtool("verify", CRASH, "--format", "json").document)
    lines = state.read_text("utf-8").splitlines()
    assert len(lines) > known
    assert all(json.loads(line) for line in lines)


def test_a_state_of_another_store_is_not_taken_up(mqtool, tmp_path, corrupt):
    state = tmp_path / "state"
    mqtool("verify", HEALTHY, "--state", state)
    found = mqtool("verify", corrupt, "--state", state, "--format", "json").document
    assert found["status"] == "corrupt"


def test_a_file_that_is_no_state_is_left_alone(mqtool, tmp_path):
    other = tmp_path / "notes.txt"
    other.write_text("mine")
    result = mqtool("verify", HEALTHY, "--state", other)
    assert (result.code, other.read_text()) == (2, "mine")


def test_topics_narrow_the_findings(mqtool, corrupt):
    whole = mqtool("verify", corrupt, "--format", "json").document
    orders = mqtool("verify", corrupt, "--topic", "Orders", "--format", "json").document
    losses = [one for one in whole["lost_messages_of_queues"] if one["topic"] == "Orders"]
    assert [one for one in orders["lost_messages_of_queues"] if one["topic"] == "Orders"] == losses
    assert "index" not in [one["check"] for one in orders["checks"]]


@pytest.mark.parametrize("name", ["report", "state"])
def test_nothing_is_written_into_the_store(mqtool, tmp_path, name):
    store = copy_store("rollover-5.5.0", tmp_path)
    option = {"report": "--output", "state": "--state"}[name]
    result = mqtool("verify", store, option, store / "file")
    assert (result.code, (store / "file").exists()) == (2, False)


def test_a_store_that_is_being_written_to_has_no_findings(tmp_path):
    """Records without units, units without entries, an old checkpoint: all that is only not there yet."""
    writer = open_small(tmp_path / "store")
    try:
        for number in range(200):
            writer.put("Orders", number % 3, b"body %d" % number, b"KEYS\1k%d\2" % number)
            if number == 120:
                writer.dispatch()
            if number in (1, 60, 121, 199):
                with library.open(tmp_path / "store") as store:
                    found = check(store)
                assert (found.live, found.findings, found.losses.messages) == (True, (), 0)
    finally:
        writer.close()


def test_a_verdict_says_which_configuration_was_checked(mqtool, tmp_path):
    store = copy_store("crash-5.5.0", tmp_path)
    for command in ("verify", "repair", "explain-start"):
        assert "broker.conf was not checked: pass --config FILE" in " ".join(mqtool(command, store).text.split()), (
            command
        )
    assert mqtool("verify", store, "--json").document["config"] is None
    config = store.parent / "broker.conf"
    config.write_bytes(fixture("crash-5.5.0/broker.conf").read_bytes())
    found = mqtool("verify", store)
    assert f"broker.conf: {config}" in " ".join(found.text.split())
    assert found.text == mqtool("verify", store, "--config", config).text


def test_where_a_start_loses_nothing_verify_says_to_start_the_broker(mqtool, tmp_path):
    store = copy_store("crash-5.5.0", tmp_path)
    for segment in (store / "commitlog").iterdir():
        segment.touch()
    assert mqtool("verify", store).text.split("\n\n")[0].endswith("\nnothing to repair: start the broker")
    found = mqtool("verify", store, "--json").document
    assert (found["next_steps"], [row["next_step"] for row in found["findings"]]) == ([], [""])


def test_text_json_and_nagios_say_not_to_start_the_broker(mqtool, tmp_path):
    store = damage_case("recent-flip-body@4.9.7-clean", tmp_path)
    words = "a start of 4.9 loses 49 messages; 1 is lost already; do not start the broker"
    assert mqtool("verify", store).text.splitlines()[2] == words
    assert f", {words} | " in mqtool("verify", store, "-f", "nagios").text.splitlines()[0]
    assert mqtool("verify", store, "-f", "json").document["next_start"]["headline"] == words
    given = mqtool("verify", store, "--release", "5.5", "-f", "json").document["next_start"]
    assert (given["release_evidence"], given["already_lost"], given["lost_by_start"], given["do_not_start"]) == (
        "given",
        1,
        0,
        False,
    )


def test_lost_bytes_are_in_units_for_readers(mqtool, tmp_path):
    root = damage_case("old-zero-page@5.5.0-clean", tmp_path)
    found = mqtool("verify", root, "--format", "json").document
    assert found["lost_bytes"] > 1024
    text = mqtool("verify", root).text
    assert f"lost: {found['lost_messages']} messages, {words.size(found['lost_bytes'])}\n" in text
    assert f"{found['lost_bytes']} byte" not in text


def test_lost_messages_that_wait_for_delivery_are_named(mqtool, tmp_path):
    store = copy_store("orders-5.5.0", tmp_path)
    rows = mqtool("pending", store, "--list", "-f", "jsonl").lines
    waiting = [row for row in rows if 262_144 <= row["physical_offset"] < 393_216]
    segment = store / "commitlog" / f"{262_144:020}"
    segment.write_bytes(bytes(segment.stat().st_size))
    lost = re.search(r"lost: \d+ messages, (\d+) of them waiting for delivery, ", mqtool("verify", store).text)
    assert lost is not None
    assert int(lost[1]) == len(waiting) == 14


def test_a_damaged_record_that_its_unit_confirms_is_named_as_a_message(mqtool, tmp_path):
    store = copy_store("crash-5.5.0", tmp_path)
    with library.open(store) as opened:
        message = opened.commit_log.record(564_433)
        topic, queue_id, offset = message.topic.decode(), message.queue_id, message.queue_offset
    with (store / "commitlog" / f"{524_288:020}").open("r+b") as segment:
        segment.seek(564_433 + 4 - 524_288)
        segment.write(b"\xdb")
    found = mqtool("verify", store, "-f", "json").document
    (finding,) = (row for row in found["findings"] if row["code"] == "log-bad-header")
    assert (finding["topic"], finding["queue_id"], finding["lost_bytes"]) == (topic, queue_id, 0)
    assert finding["evidence"].endswith(
        f"; not lost, because its unit confirms it: {topic} queue {queue_id} offset {offset}"
    )
