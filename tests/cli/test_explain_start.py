"""`mqtool explain-start`: what it prints, how it ends, and that it leaves no trace."""

import contextlib
import json
import os
import re
import shutil
from datetime import UTC, datetime

import pytest

from mqtool.cli import after_start
from mqtool.cli.exits import ExitCode
from mqtool.cli.start_outcome import lost_row
from mqtool.engine.disk.files import Files
from mqtool.errors import StoreError
from tests.cli.answers import problems
from tests.support.damage import base_config, damage_case
from tests.support.stores import SOON_AFTER, copy_store, fixture, tree_digest
from tests.support.unreadable import unreadable

WRONG_SIZE = "expected files of 1073741824 bytes; 9 of 9 have 131072: set mappedFileSizeCommitLog=131072"
TORN, WHOLE, REFUSED = "tail-torn@5.5.0-crash", "none@5.5.0-clean", "segment-short-last@5.5.0-clean"


UNCHECKED = "; sizes were detected from the files; broker.conf was not checked: pass --config FILE"


@pytest.fixture
def explain(mqtool, tmp_path):
    def call(case: str, *arguments: object, broker: str = "5.5"):
        store = damage_case(case, tmp_path / case)
        before = tree_digest(store)
        result = mqtool("explain-start", store, "--release", broker, *arguments)
        assert tree_digest(store) == before
        return result

    return call


def test_a_whole_store_ends_with_0(explain):
    result = explain(WHOLE)
    assert result.code == ExitCode.OK
    assert result.text.startswith(f"starts, and loses no message{UNCHECKED}\n\nstore ")


def test_a_release_may_be_written_with_its_third_number(mqtool):
    store = fixture("orders-5.5.0/store")
    short, long = (mqtool("explain-start", store, "--release", release).text for release in ("5.5", "5.5.0"))
    assert short == long
    result = mqtool("explain-start", store, "--release", "6.0.0")
    assert (result.code, "'6.0.0' is not one of '4.9', '5.3', '5.4', '5.5', '5.5.1'" in result.stderr) == (2, True)


def test_the_configuration_next_to_a_store_decides_as_if_it_were_given(mqtool, tmp_path):
    store = copy_store("crash-5.5.0", tmp_path)
    config = store.parent / "broker.conf"
    config.write_text("mappedFileSizeCommitLog=1073741824\n", "utf-8")
    found = mqtool("explain-start", store, "-f", "json")
    assert (found.code, found.document["exit"], found.document["config"]) == (ExitCode.NO, -3, str(config))
    assert found.document == mqtool("explain-start", store, "--config", config, "-f", "json").document
    config.unlink()
    assert mqtool("explain-start", store, "-f", "json").document["verdict"].endswith(UNCHECKED)


@pytest.mark.parametrize(
    ("case", "code", "verdict"),
    [
        (TORN, ExitCode.OK, "starts, and loses no message; 1 is lost already"),
        ("recent-flip-body@4.9.7-clean", ExitCode.NO, "do not start the broker: starts, but loses "),
    ],
)
def test_a_start_is_advised_against_where_it_loses_what_is_still_there(explain, case, code, verdict):
    """The same rule as in `verify`: a message that is lost already is no reason not to start the broker."""
    found = explain(case, "-f", "json", broker=case.partition("@")[2][:3])
    assert (found.code, found.document["verdict"][: len(verdict)]) == (code, verdict)


def test_what_retention_deletes_unread_after_the_start_is_said_with_the_keys_that_keep_it(mqtool, tmp_path):
    store = copy_store("orders-5.5.0", tmp_path)
    assert mqtool("explain-start", store).code == ExitCode.OK
    segments = sorted((store / "commitlog").iterdir())
    for segment in segments[:-1]:
        os.utime(segment, (SOON_AFTER / 1000 - 100 * 3600 + 60,) * 2)
    started, cleaned = (
        mqtool(*words, "-f", "json").document
        for words in (("explain-start", store), ("clean", store, "--now", "--allow-unread", "--dry-run"))
    )
    assert re.search(r"deletes 1065 of 1085 messages: 54 unread, 22 waiting", cleaned["summary"])
    keys = "fileReservedTime=172 and cleanFileForciblyEnable=false"
    (advice,) = started["advice"]
    assert advice.startswith(f"retention then {cleaned['summary']}; to keep its 4 segment(s) ")
    assert (started["ok"], started["next_steps"], keys in advice) == (True, [], True)
    until = datetime.fromtimestamp(segments[0].stat().st_mtime + 172 * 3600, UTC)
    assert advice.endswith(f", which keeps the oldest until {until:%Y-%m-%d %H:%M:%S} UTC")
    assert started["verdict"] == f"read the advice below first: starts, and loses no message{UNCHECKED}"
    assert f"{started['verdict']}\nretention then deletes 1065 " in mqtool("explain-start", store).text
    config = store.parent / "broker.conf"
    config.write_text(fixture("orders-5.5.0/broker.conf").read_text("utf-8") + keys.replace(" and ", "\n"), "utf-8")
    kept = mqtool("explain-start", store, "-f", "json")
    assert (kept.code, kept.document["verdict"]) == (ExitCode.OK, "starts, and loses no message")
    assert kept.document["advice"] == []


DAY_MS = 24 * 3600 * 1000
SKIPPED_FROM = 1_795_225_270_000 + 7 * DAY_MS - 60_000 + 1000
"""When the slot of the first 4 of the 8 waiting timer messages of orders-5.5.0 is skipped; a real 5.5.0 skips all later."""


@pytest.mark.parametrize(
    ("time", "release", "keys", "count"),
    [
        (SKIPPED_FROM - 1, "5.5", {}, 0),
        (SKIPPED_FROM, "5.5", {}, 4),
        (SKIPPED_FROM + DAY_MS, "5.3", {}, 8),
        (SKIPPED_FROM + DAY_MS, "5.5.1", {}, 8),
        (SKIPPED_FROM + DAY_MS, "4.9", {}, 0),
        (SKIPPED_FROM + DAY_MS, "5.5", {"timerWheelEnable": "false"}, 0),
        (SKIPPED_FROM + DAY_MS, "5.5", {"brokerRole": "SLAVE"}, 0),
    ],
)
def test_timer_messages_that_the_broker_skips_are_counted(mqtool, tmp_path, monkeypatch, time, release, keys, count):
    monkeypatch.setattr(after_start, "now_ms", lambda: time)
    store, config = copy_store("orders-5.5.0", tmp_path), tmp_path / "broker.conf"
    more = "".join(f"{key}={value}\n" for key, value in {"fileReservedTime": 9999, **keys}.items())
    config.write_text(fixture("orders-5.5.0/broker.conf").read_text("utf-8") + more, "utf-8")
    words = ("explain-start", store, "--release", release, "--config", config)
    found, text = mqtool(*words, "--json"), mqtool(*words).text
    assert found.code == ExitCode.OK
    if not count:
        assert found.document["advice"] == []
        assert text.startswith("starts, and loses no message\n\n")
        return
    (advice,) = found.document["advice"]
    before = datetime.fromtimestamp(time // 1000 - 7 * 86_400 + 60, UTC)
    assert advice.startswith(
        f"the timer then skips {count} message(s) that were due before {before:%Y-%m-%d %H:%M:%S} UTC, and never "
    )
    assert text.startswith(f"read the advice below first: starts, and loses no message\n{advice}\n\n")


def test_a_full_disk_counts_where_broker_conf_names_the_store(mqtool, tmp_path, monkeypatch):
    """A broker deletes unexpired files too, above 85 per cent (CleanCommitLogService.isSpaceToDelete)."""
    monkeypatch.setattr(Files, "used_ratio", lambda _, path: 0.91)
    store, config = copy_store("orders-5.5.0", tmp_path), tmp_path / "broker.conf"
    keys = fixture("orders-5.5.0/broker.conf").read_text("utf-8")
    config.write_text(keys, "utf-8")
    assert mqtool("explain-start", store, "--config", config, "-f", "json").document["advice"] == []
    config.write_text(f"{keys}\nstorePathRootDir={store}\n", "utf-8")
    (advice,) = mqtool("explain-start", store, "--config", config, "-f", "json").document["advice"]
    assert advice.startswith(
        "retention then, because 91% of the disk are used, deletes 1065 of 1085 messages: 54 unread"
    )
    config.write_text(f"{config.read_text('utf-8')}cleanFileForciblyEnable=false\n", "utf-8")
    assert mqtool("explain-start", store, "--config", config, "-f", "json").document["advice"] == []


@pytest.mark.parametrize("is_damaged", [False, True])
def test_what_retention_deletes_is_counted_in_the_segments_that_the_start_leaves(mqtool, tmp_path, is_damaged):
    """The segment after the end of the log is deleted, and the one before is the last then, which never expires."""
    store = copy_store("crash-5.5.0", tmp_path)
    if is_damaged:
        spoil_a_magic(store)
    for segment in (store / "commitlog").iterdir():
        os.utime(segment, (SOON_AFTER / 1000 - 100 * 3600,) * 2)
    found = mqtool("explain-start", store, "-f", "json").document
    assert [name for name in found["files"]["deleted"] if name.startswith("commitlog/")]
    advice = [line.partition(";")[0] for line in found["advice"]]
    expected = "retention then deletes 1850 of 1874 messages: which of them are unread is unknown: "
    expected += "config/lmqConsumerOffset.json has no positions"
    assert advice == ([] if is_damaged else [expected])
    assert found["verdict"].startswith("do not start the broker: ") is is_damaged
    shown = mqtool("verify", store).text.partition("\n\n")[0]
    assert ("next: mqtool explain-start " in shown, "start the broker" in shown) == (not is_damaged, is_damaged)


def spoil_a_magic(store):
    with (store / "commitlog" / f"{524_288:020}").open("r+b") as segment:
        at = segment.read().find(b"\xda\xa3\x20\xa7", 40_000)
        segment.seek(at)
        segment.write(b"\xdb")


def cut_a_segment(store):
    os.truncate(store / "commitlog" / f"{262_144:020}", 70_000)


CUT_SHORT = (
    f"commitlog/{262_144:020} ends inside a record, as a copy does that was interrupted: copy it again if its source is "
    "still there, or add --with COPY to `mqtool repair STORE -o NEW` if there is another copy of the log"
)


def write_a_wrong_size(store):
    config = fixture("crash-5.5.0/broker.conf").read_text("utf-8")
    config = re.sub("(mappedFileSizeCommitLog)=.*", r"\1=1073741824", config)
    (store.parent / "broker.conf").write_text(config, "utf-8")


@pytest.mark.parametrize(
    ("name", "harm", "steps", "advice"),
    [
        ("orders-5.5.0", cut_a_segment, ["mqtool repair {store} -o {store}.new"], [CUT_SHORT]),
        ("crash-5.5.0", spoil_a_magic, ["mqtool repair {store} -o {store}.new"], []),
        (
            "crash-5.5.0",
            write_a_wrong_size,
            [],
            ["{config}: mappedFileSizeCommitLog=1073741824: " + WRONG_SIZE],
        ),
    ],
)
def test_what_is_to_be_done_is_what_verify_says(mqtool, tmp_path, name, harm, steps, advice):
    store = copy_store(name, tmp_path)
    harm(store)
    places = {"store": store, "config": store.parent / "broker.conf"}
    found, checked = (mqtool(command, store, "-f", "json").document for command in ("explain-start", "verify"))
    assert found["next_steps"] == checked["next_steps"] == [step.format(**places) for step in steps]
    assert found["advice"] == [line.format(**places) for line in advice]
    for command in ("explain-start", "verify"):
        lines = "".join(mqtool(command, store).text.split())
        assert all("".join(line.split()) in lines for line in found["advice"])


def test_without_reading_the_log_the_next_step_is_to_verify(mqtool, tmp_path):
    store = copy_store("orders-5.5.0", tmp_path)
    cut_a_segment(store)
    found = mqtool("explain-start", store, "--quick", "-f", "json").document
    assert (found["exit"], found["next_steps"]) == (-3, [f"mqtool verify {store}"])
    assert {row["lost"] for row in found["waiting"]} == {None}


def test_what_waits_and_is_lost_already_is_counted_where_the_broker_does_not_start(mqtool, tmp_path):
    store = copy_store("orders-5.5.0", tmp_path)
    cut_a_segment(store)
    lost = [(row["kind"], row["lost"]) for row in mqtool("explain-start", store, "-f", "json").document["waiting"]]
    assert lost == [("delay", 1)] * 12 + [("delay", 2), ("timer", 0)]
    assert "lost: 146 messages, 14 of them waiting for delivery, " in mqtool("verify", store).text


def test_a_loss_is_said_first(explain):
    result = explain(TORN)
    assert result.text.startswith(f"starts, and loses no message; 1 is lost already{UNCHECKED}\n")
    assert "\nMessages lost already\n" in result.text
    assert "  Orders/0  " in result.text


@pytest.mark.parametrize("columns", [60, 80, 100, 200])
def test_a_prediction_fits_the_terminal_and_is_written_for_a_reader(explain, tmp_path, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    text = explain(TORN).text.replace(str(tmp_path), "")
    commands = [line for line in text.splitlines() if line.startswith("next: ")]
    assert max(len(line) for line in text.splitlines() if line not in commands) <= columns
    assert not re.search(r"[a-z]_[a-z]|\(\d+\)$|^\S+ +-$|\b0\.0 |\((?:CommitLog|IndexService)\.", text, re.MULTILINE)


def test_only_the_wide_form_names_the_brokers_methods(explain, mqtool, tmp_path):
    method = "(CommitLog.checkMessageAndReturnSize)"
    assert method not in explain(TORN).text
    assert method in mqtool("explain-start", tmp_path / TORN / "store", "--release", "5.5", "-f", "wide").text


def test_losses_that_a_repair_recorded_are_not_wrong(mqtool, tmp_path):
    store = copy_store("orders-5.5.0", tmp_path)
    os.truncate(store / "commitlog" / f"{262_144:020}", 70_000)
    assert mqtool("salvage", store, "-o", tmp_path / "new").code == ExitCode.NO
    known = mqtool("verify", tmp_path / "new", "-f", "json").document["known_lost"]
    assert known == 146
    found = [mqtool("explain-start", tmp_path / "new", "-f", "json").document]
    (tmp_path / "new" / "mqtool-known-losses.json").unlink()
    found.append(mqtool("explain-start", tmp_path / "new", "-f", "json").document)
    skips = [[line for line in one["accepted"] if "offset" in line] for one in found]
    assert [one["verdict"] for one in found] == [
        f"starts, and loses no further message; {known} known lost{UNCHECKED}",
        f"starts, and loses no message{UNCHECKED}",
    ]
    assert skips[0] == []
    assert "queue Delayed/0: at 6 of 7 offsets a consumer gets the next remaining message" in skips[1]


def test_a_refusal_ends_with_1_and_has_the_brokers_words(explain):
    result = explain(REFUSED)
    assert result.code == ExitCode.NO
    assert "does not start, exit -3: " in result.text
    assert "length not matched message store config value" in result.text


def test_json_has_the_fields_of_a_recorded_answer(explain):
    found = explain(TORN, "--format", "json", "--config", base_config("5.5.0-crash")).document
    assert (found["exit"], found["after_start"]["min"], found["abort_after"]) == (None, 0, False)
    assert set(found["queues"]["Orders/0"]) == {"min", "max", "next"}
    assert list(found["lost"].values()) == [[[119, 119]]]
    assert "commitlog/00000000000000147456" in found["files"]["deleted"]
    assert found["why"]
    assert found["ok"] is True


@pytest.mark.parametrize("case", [WHOLE, TORN, REFUSED])
def test_json_has_the_documented_fields_and_no_others(explain, case):
    assert problems("explain-start", explain(case, "-f", "json").document) == []


def test_a_quick_look_leaves_the_losses_open(explain):
    result = explain(TORN, "--quick", "-f", "json")
    assert result.document["lost"] is None
    assert result.code == ExitCode.OK


def test_4_9_runs_out_of_memory_over_a_huge_size(explain):
    result = explain("size-huge@4.9.7-crash", "--heap", "512M", broker="4.9")
    assert "OutOfMemoryError" in result.text
    assert result.code == ExitCode.NO


def test_csv_is_a_line_a_value(explain):
    lines = explain(WHOLE, "-f", "csv").text.splitlines()
    assert "after_start.min,0" in lines


def test_a_store_in_dledger_mode_is_explained(mqtool, tmp_path):
    result = mqtool("explain-start", copy_store("dledger-5.5.0", tmp_path), "--release", "5.5", "-f", "json")
    assert result.code == ExitCode.OK
    found = json.loads(result.stdout)
    assert (found["exit"], found["after_start"]) == (None, {"min": 0, "max": 175926})
    assert any("DLedger follows 186 entries" in rule for rule in found["why"])


def test_an_unknown_release_is_a_usage_error(mqtool, tmp_path):
    assert mqtool("explain-start", tmp_path, "--release", "5.1").code == ExitCode.USAGE


@pytest.mark.parametrize(("fixture", "release"), [("orders-4.9.7", "4.9"), ("orders-5.5.0", "5.5")])
def test_the_release_is_the_detected_one_by_default(mqtool, tmp_path, fixture, release):
    result = mqtool("explain-start", copy_store(fixture, tmp_path), "-f", "json")
    assert (result.code, result.document["release"]) == (ExitCode.OK, release)
    assert result.document["release_evidence"].startswith("assumed: config/")


def test_a_release_that_nothing_reveals_is_assumed_and_the_table_says_so(mqtool, tmp_path):
    (tmp_path / "commitlog").mkdir()
    result = mqtool("explain-start", tmp_path)
    assert "\nbroker  RocketMQ 5.5, assumed: unknown from the store\n" in result.text


def about_4_9(mqtool, root):
    """What `verify` and `explain-start` state about a start of 4.9, as JSON and for readers."""
    verified, explained = (mqtool(name, root, "--format", "json").document for name in ("verify", "explain-start"))
    printed = [line for name in ("verify", "explain-start") for line in mqtool(name, root).text.splitlines()]
    others = [verified["next_start"]["other"], explained["other"]]
    return [other and other["release"] for other in others], [line for line in printed if "4.9" in line]


def test_what_4_9_would_do_is_shown_only_where_the_release_may_be_4_9(mqtool, tmp_path):
    """4.9 would cut the log at the damaged record, 5.5 passes over it."""
    root = damage_case("recent-flip-body@5.5.0-clean", tmp_path)
    assert about_4_9(mqtool, root) == ([None, None], [])
    assert "loses" in mqtool("explain-start", root, "--release", "4.9").text.splitlines()[0]
    for path in root.iterdir():
        if path.name not in ("commitlog", "consumequeue", "index"):  # the others show the release
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    others, lines = about_4_9(mqtool, root)
    assert others == ["4.9", "4.9"]
    assert len(lines) == len(others)


def test_a_release_that_was_given_is_said_to_be(explain):
    assert explain(WHOLE, "-f", "json").document["release_evidence"] == "given"


def test_a_missing_directory_is_no_store(mqtool, tmp_path):
    assert mqtool("explain-start", tmp_path / "absent", "--release", "4.9").code == ExitCode.REFUSED


@pytest.mark.parametrize("broker", ["5.5", "4.9"])
@pytest.mark.parametrize("harm", ["none", "deleted", "unreadable"])
def test_what_is_lost_of_timers_with_damaged_files_is_unknown(mqtool, tmp_path, monkeypatch, harm, broker):
    """5.5.0 never reads them again: its timer continues at the end of the queue (TimerMessageStore.recover)."""
    store = copy_store("timer-5.5.0", tmp_path)
    file = store / "timerlog" / f"{0:020}"
    if harm == "deleted":
        shutil.rmtree(store / "timerlog")
    with unreadable(monkeypatch, file) if harm == "unreadable" else contextlib.nullcontext():
        found = mqtool("explain-start", store, "--release", broker, "-f", "json")
        text = mqtool("explain-start", store, "--release", broker).text
    is_known = harm == "none" or broker == "4.9"
    assert found.code == (ExitCode.OK if is_known else ExitCode.NO)
    what = "cannot be read" if harm == "unreadable" else "are damaged"
    verdict = f"starts; what it loses is unknown: the timer's files {what}, so messages waiting there are not counted"
    assert found.document["verdict"] == ("starts, and loses no message" if is_known else verdict) + UNCHECKED
    assert found.document["verdict"] in text
    assert found.document["undecided"] == []
    shown = [line.split() for line in text.splitlines() if line.startswith("  timer ")]
    assert [cells[-1] for cells in shown] == ([] if harm == "unreadable" else ["0" if is_known else "unknown"])
    rows = found.document["waiting"] or []
    assert [(row["kind"], row["messages"], row["lost"]) for row in rows] == (
        [] if harm == "unreadable" else [("timer", 21, 0 if is_known else None)]
    )


def test_what_waits_is_listed_with_what_a_start_loses_of_it(mqtool, tmp_path):
    store = copy_store("lives-5.5.0", tmp_path)
    rows = mqtool("explain-start", store, "-f", "json").document["waiting"]
    assert [(row["kind"], row["messages"], row["lost"]) for row in rows] == [
        ("delay", 5, 0),
        ("delay", 5, 0),
        ("timer", 13, 0),  # ten of a client, and three check points
        ("popped", 1, 0),
        ("popped", 2, 0),
    ]
    popped = [row for row in mqtool("pending", store, "--list", "-f", "jsonl").lines if row["kind"] == "popped"]
    first = min(row["physical_offset"] for row in popped)
    (store / "abort").touch()
    with (store / "commitlog" / f"{262_144:020}").open("r+b") as segment:
        segment.seek(first - 262_144)
        segment.write(bytes(100))  # recovery cuts the log here
    found = mqtool("explain-start", store, "-f", "json").document
    assert found["after_start"]["max"] == first
    lost = [(row["kind"], row["lost"]) for row in found["waiting"]]
    assert lost == [("delay", 0), ("delay", 0), ("timer", 3), ("popped", 1), ("popped", 2)]
    assert ", 5 of them waiting for delivery; 1 is lost already" in found["verdict"]
    assert ", 5 of them waiting for delivery; 1 is lost already" in mqtool("verify", store).text


def test_a_heap_of_nothing_is_not_taken_for_the_default(mqtool, tmp_path):
    store = copy_store("timer-5.5.0", tmp_path)
    found = mqtool("explain-start", store, "--heap", "0")
    assert (found.code, "expected a size above 0" in found.stderr) == (ExitCode.USAGE, True)


def test_a_table_lists_the_first_ranges_of_many_and_counts_the_others():
    ranges = tuple((10 * number, 10 * number + number % 2) for number in range(12))
    assert lost_row("T/0", ranges, wide=True)["offsets"].count(",") == 11
    shown = lost_row("T/0", ranges, wide=False)
    assert (shown["queue"], shown["messages"]) == ("T/0", 18)
    texts = shown["offsets"].split(", ")
    assert texts[:2] == ["0", "10-11"]
    assert texts[-1] == f"and {12 - (len(texts) - 1)} more ranges"


def test_waiting_messages_that_cannot_be_read_are_unknown(mqtool, tmp_path, monkeypatch):
    def unreadable_messages(_store):
        raise StoreError("cannot be read: Input/output error", tmp_path)

    monkeypatch.setattr("mqtool.store.waiting.held_back.waiting_messages", unreadable_messages)
    result = mqtool("explain-start", copy_store("orders-5.5.0", tmp_path), "--release", "5.5", "-f", "json")
    assert (result.code, result.document["waiting"]) == (ExitCode.OK, None)
