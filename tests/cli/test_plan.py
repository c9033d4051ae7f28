"""`mqtool plan`, `apply`, `undo`, `discard-undo`: what they print, how they end, which options go together."""

import io
import json
import os
import re
import shlex
import shutil
import threading

import pytest

import mqtool as library
from mqtool.cli.exits import ExitCode
from mqtool.jobs import atomic
from mqtool.repair.from_findings import changes_of
from mqtool.verify import verify
from tests.cli.answers import problems
from tests.support.damage import damage_case, held_lock
from tests.support.stores import copy_store, fixture, store_fixture, tree_digest

ORDERS = "orders-5.5.0"


@pytest.fixture
def tmp_path(in_memory):
    """Changes sync a great deal."""
    return in_memory


@pytest.fixture
def store(tmp_path):
    """A store without one queue."""
    root = copy_store(ORDERS, tmp_path)
    shutil.rmtree(root / "consumequeue" / "Orders" / "2")
    return root


@pytest.fixture
def planned(mqtool, store, tmp_path):
    """A plan file that brings the queue back."""
    path = tmp_path / "plan.json"
    assert mqtool("plan", "rebuild", "consumequeue", store, "-o", path).code == 0
    return path


def test_the_whole_way_from_findings_to_a_clean_store_and_back(mqtool, store, tmp_path):
    before = tree_digest(store)
    found = mqtool("verify", store, "--format", "json")
    (tmp_path / "findings.json").write_bytes(found.stdout)
    steps = {row["next_step"] for row in found.document["findings"]}
    assert any("mqtool plan rebuild consumequeue" in step for step in steps)
    words = ("--findings", tmp_path / "findings.json", "-o", tmp_path / "plan.json")
    plan = mqtool("plan", "repair", store, *words, "--format", "json")
    assert (plan.code, [row["path"] for row in plan.document["steps"]]) == (
        0,
        ["consumequeue/Orders/2/00000000000000000000"],
    )
    assert plan.document["left"] == [], "the group has its queue again"
    assert tree_digest(store) == before
    done = mqtool("apply", tmp_path / "plan.json", "--yes", "--format", "json")
    assert (done.code, done.document["status"], done.document["errors"], done.document["files"]) == (0, "clean", 0, 1)
    back = mqtool("undo", store, "--yes", "--format", "json")
    assert (back.code, back.document["files"]) == (0, 1)
    assert tree_digest(store) == before


def test_verify_names_repair_first_and_it_goes_through(mqtool, store):
    shutil.rmtree(store / "index")
    text = mqtool("verify", store).text.splitlines()
    first = next(line for line in text if line.startswith("next: "))
    assert [line for line in text if line.lstrip().startswith("next: ")] == [first], "not one for each finding too"
    assert mqtool("verify", store, "--format", "json").document["next_steps"] == [first.removeprefix("next: ")]
    assert first == f"next: mqtool repair {store}"
    shown = mqtool("repair", store, "--dry-run", "--format", "json")
    assert (shown.code, shown.document["next_steps"]) == (0, [f"mqtool repair {store} --yes"])
    done = mqtool("repair", store, "--yes", "--format", "json")
    assert (done.code, done.document["result"], done.document["left"]) == (0, "clean", [])


def test_findings_come_from_a_pipe(mqtool, store, monkeypatch, tmp_path):
    findings = mqtool("verify", store, "--format", "json").stdout
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(findings)))
    assert mqtool("plan", "repair", store, "--findings", "-", "-o", tmp_path / "stdin.json").code == 0
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(findings,))
    writer.start()
    assert mqtool("plan", "repair", store, "--findings", tmp_path / "pipe", "-o", tmp_path / "fifo.json").code == 0
    writer.join()
    stdin, fifo = (json.loads((tmp_path / name).read_text()) for name in ("stdin.json", "fifo.json"))
    assert stdin["steps"] == fifo["steps"] != []


def test_a_plan_goes_through_a_pipe(mqtool, store, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    planned = mqtool("plan", "repair", store, "-o", "-")
    assert (planned.code, json.loads(planned.stdout)["schema"]) == (0, "mqtool.plan")
    assert "next: mqtool apply - --yes" in planned.stderr
    assert not (tmp_path / "-").exists()
    before = tree_digest(store)
    for words, code in (([], 4), (["--dry-run"], 0), (["--yes"], 0)):
        assert tree_digest(store) == before
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(planned.stdout)))
        done = mqtool("apply", "-", *words, "--format", "json")
        assert done.code == code
    assert done.document["status"] == "clean"


def test_a_zeroed_end_of_the_log_leaves_nothing_that_the_plan_repairs_with_it(mqtool, tmp_path):
    root = copy_store("orders-4.9.7", tmp_path)
    with library.open(root) as opened:
        segment, end = opened.commit_log.segments[-1], opened.commit_log.max_offset
    with segment.path.open("r+b") as file:
        file.seek(end - segment.base - 3000)
        file.write(bytes(3000))
    planned, done = _planned_and_applied(mqtool, root, tmp_path / "plan.json")
    assert (planned.code, planned.document["left"], planned.document["complete"]) == (0, [], True)
    assert not any("plan again" in note for note in planned.document["notes"])
    assert (done.document["status"], done.document["errors"]) == ("clean", 0)


def test_a_truncated_segment_leaves_nothing_that_the_plan_repairs_with_it(mqtool, tmp_path):
    root = copy_store("crash-4.9.7", tmp_path)
    os.truncate(root / "commitlog" / "00000000000000393216", 30000)
    (root / "abort").unlink()
    planned, done = _planned_and_applied(mqtool, root, tmp_path / "plan.json")
    assert (planned.code, planned.document["left"]) == (0, [])
    assert done.document["errors"] == 0
    lines = mqtool("verify", root).text.splitlines()
    assert any(line.startswith("note: queue-filled-hole: ") for line in lines)
    assert not any(line.strip() == "next:" for line in lines), "there is nothing to type about a hole"


def _planned_and_applied(mqtool, root, plan):
    planned = mqtool("plan", "repair", root, "-o", plan, "--format", "json")
    return planned, mqtool("apply", plan, "--yes", "--format", "json")


def test_a_plan_that_leaves_an_error_or_changes_nothing_ends_with_1(mqtool, tmp_path):
    root = damage_case("flip-compressed@5.5.0-crash", tmp_path)
    shutil.rmtree(root / "index")
    left = mqtool("plan", "repair", root, "-o", tmp_path / "plan.json", "--format", "json")
    assert (left.code, [row["code"] for row in left.document["left"]]) == (1, ["log-bad-compression", "abort-present"])
    whole = copy_store(ORDERS, tmp_path / "whole")
    for words in (["repair"], ["rebuild", "index"]):
        nothing = mqtool("plan", *words, whole, "-o", tmp_path / "none.json", "--format", "json")
        assert (nothing.code, nothing.document["error"]["kind"]) == (1, "nothing-to-change")
    assert not (tmp_path / "none.json").exists()


def test_the_end_of_an_undo_needs_a_word_and_says_what_it_freed(mqtool, store, tmp_path):
    plan = tmp_path / "plan.json"
    assert mqtool("plan", "redact", store, "--topic", "Orders", "--key", "k0", "-o", plan).code == 0
    assert mqtool("apply", plan, "--yes").code == 0
    refused = mqtool("discard-undo", store, "--format", "json")
    assert (refused.code, refused.document["dry_run"], (store / ".mqtool").exists()) == (4, True, True)
    dry = mqtool("discard-undo", store, "--dry-run", "--format", "json").document
    done = mqtool("discard-undo", store / ".mqtool" / "journal", "--yes", "--format", "json")
    assert (done.code, done.document["files"]) == (0, 1)
    assert done.document["freed"] >= dry["freed"] > 100_000
    assert not (store / ".mqtool").exists()


def test_apply_without_a_word_about_a_backup_is_refused(mqtool, store, planned):
    before = tree_digest(store)
    result = mqtool("apply", planned)
    assert (result.code, "add --yes" in result.stderr) == (4, True)
    assert tree_digest(store) == before


def test_a_dry_run_shows_the_steps_and_writes_nothing(mqtool, store, planned):
    before = tree_digest(store)
    result = mqtool("apply", planned, "--dry-run", "--format", "json")
    assert (result.code, result.document["dry_run"], result.document["journal"]) == (0, True, None)
    assert tree_digest(store) == before
    assert mqtool("apply", planned, "--dry-run", "--yes").code == 2


def test_a_stale_plan_ends_with_4_and_says_which_file(mqtool, store, planned):
    path = store / "commitlog" / "00000000000000131072"
    data = bytearray(path.read_bytes())
    data[500] ^= 1
    path.write_bytes(data)
    result = mqtool("apply", planned, "--yes", "--format", "json")
    assert (result.code, result.document["error"]["kind"]) == (4, "refused")
    assert result.document["error"]["message"].startswith(f"{path}: plan-stale: ")


def test_a_store_in_use_ends_with_4(mqtool, store, planned):
    with held_lock(store / "lock"):
        result = mqtool("apply", planned, "--yes", "--format", "json")
    assert (result.code, result.document["error"]["kind"]) == (4, "locked")


def test_the_outputs_have_the_documented_fields_and_no_others(mqtool, store, tmp_path):
    def check(name, *arguments):
        assert problems(name, mqtool(name, *arguments, "--format", "json").document) == []

    check("plan", "trim", store, "--before", 262144, "--allow-unread", "-o", tmp_path / "plan.json")
    check("apply", tmp_path / "plan.json", "--dry-run")
    check("apply", tmp_path / "plan.json", "--yes", "--no-verify")
    check("undo", store, "--dry-run")
    check("discard-undo", store, "--dry-run")
    check("undo", store, "--yes")
    check("undo", store, "--yes")


def test_damage_makes_a_plan_incomplete_and_it_is_written_all_the_same(mqtool, tmp_path):
    root = damage_case("old-flip-magic@5.5.0-clean", tmp_path)
    shutil.rmtree(root / "consumequeue" / "Orders")
    result = mqtool("plan", "rebuild", "consumequeue", root, "-o", tmp_path / "plan.json", "--format", "json")
    assert (result.code, result.document["complete"]) == (1, False)
    assert any(note.startswith("damage: ") for note in result.document["notes"])
    assert json.loads((tmp_path / "plan.json").read_bytes())["complete"] is False


def test_a_plan_of_several_parts_names_a_damage_once(mqtool, store, tmp_path):
    os.truncate(store / "commitlog" / "00000000000000131072", 70_000)
    notes = mqtool("plan", "repair", store, "-o", tmp_path / "plan.json", "--format", "json").document["notes"]
    assert sum(note.startswith("damage: ") for note in notes) == 2
    assert len(set(notes)) == len(notes)


def test_messages_that_cannot_be_looked_at_make_a_redaction_incomplete(mqtool, tmp_path):
    root = damage_case("old-flip-magic@5.5.0-clean", tmp_path)
    result = mqtool("plan", "redact", root, "--topic", "Orders", "-o", tmp_path / "plan.json", "--format", "json")
    assert (result.code, result.document["complete"]) == (1, False)
    assert any("could not be read" in note for note in result.document["notes"])


def test_a_place_in_a_queue_an_id_and_a_physical_offset_name_messages_to_redact(mqtool, store, tmp_path):
    with library.open(store) as opened:
        first, second, third = opened.messages(topics=["Payments"], limit=3)
    addresses = (f"Payments/{first.queue_id}@{first.queue_offset}", second.offset_message_id, third.physical_offset)
    options = [word for address in addresses for word in ("--message", address)]
    result = mqtool("plan", "redact", store, *options, "-o", tmp_path / "plan.json", "--format", "json")
    chosen = [message.physical_offset for message in (first, second, third)]
    assert result.document["changes"] == [{"verb": "redact", "physical_offsets": chosen}]


def test_everything_is_made_anew_at_once(mqtool, store, tmp_path):
    min((store / "index").iterdir()).write_bytes(b"x")
    (store / "checkpoint").unlink()
    result = mqtool("plan", "rebuild", "all", store, "-o", tmp_path / "plan.json", "--format", "json")
    paths = {row["path"].partition("/")[0] for row in result.document["steps"]}
    assert (result.code, paths) == (0, {"checkpoint", "consumequeue", "index"})
    done = mqtool("apply", tmp_path / "plan.json", "--yes", "--format", "json").document
    assert (done["status"], done["errors"]) == ("clean", 0)


def without_topic(root):
    path = root / "config" / "topics.json"
    document = json.loads(path.read_text())
    del document["topicConfigTable"]["Payments"]
    path.write_text(json.dumps(document))
    shutil.rmtree(root / "consumequeue" / "Payments")


def last_segment(root):
    return max((root / "commitlog").iterdir())


VERBS = {
    "undelete": (without_topic, ("--topic", "Payments"), {"verb": "undelete", "topics": ["Payments"]}),
    "rename-segments": (
        lambda root: last_segment(root).rename(root / "commitlog" / "00000000009999999999"),
        (),
        {"verb": "rename-segments", "files": ["commitlog/00000000009999999999"]},
    ),
    "set-aside": (
        lambda root: (root / "commitlog" / "notes").touch(),
        ("--file", "commitlog/notes"),
        {"verb": "set-aside", "files": ["commitlog/notes"]},
    ),
    "truncate": (
        lambda _: None,
        ("--at", "262144"),
        {"verb": "truncate", "at": 262144},
    ),
    "purge": (lambda _: None, ("--topic", "Paym*", "--allow-unread"), {"verb": "purge", "topics": ["Payments"]}),
}


DELETIONS = {"trim": ("--before", "262144"), "purge": ("--topic", "Orders")}
POSITIONS = ("config/lmqConsumerOffset.json", "config/lmqConsumerOffset.json.bak")


@pytest.mark.parametrize("verb", DELETIONS)
@pytest.mark.parametrize(
    ("missing", "reason"),
    [
        ((), r"\d+ unread, \d+ waiting for delivery"),
        (POSITIONS, "which of them are unread is unknown: config/consumerOffset.json and its .bak are missing"),
        (("consumequeue/Orders",), r"which of them are unread is unknown: \d+ messages of \d+ are in no queue"),
    ],
    ids=["unread", "without positions", "without queues"],
)
def test_messages_that_are_or_may_be_unread_are_deleted_only_with_permission(mqtool, tmp_path, verb, missing, reason):
    root, out = copy_store(ORDERS, tmp_path), tmp_path / "plan.json"
    if missing:
        all_read(mqtool, root)
    for name in missing:
        path = root / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    words = ["plan", verb, root, *DELETIONS[verb], "-o", out]
    refused = mqtool(*words)
    assert (refused.code, out.exists()) == (4, False)
    assert re.search(rf"of the messages to be deleted, {reason}.*: .*add --allow-unread", refused.stderr)
    assert mqtool(*words, "--allow-unread").code == 0


def all_read(mqtool, root):
    """Moves the positions of all groups to the ends of their queues."""
    plan = root.with_name("positions.json")
    for words in (
        ["plan", "offsets", root, "--group", "*", "--to", "latest", "-o", plan],
        ["apply", plan, "--yes", "--no-verify"],
        ["discard-undo", root, "--yes"],
    ):
        assert mqtool(*words).code == 0


def test_messages_that_all_groups_have_read_are_deleted_without_further_permission(mqtool, tmp_path):
    root = copy_store(ORDERS, tmp_path)
    all_read(mqtool, root)
    assert mqtool("plan", "purge", root, "--topic", "Orders", "-o", tmp_path / "plan.json").code == 0


def test_positions_in_a_file_that_the_broker_does_not_read_count_too(mqtool, tmp_path):
    """Which file it reads depends on broker.conf, and may change."""
    root = copy_store(ORDERS, tmp_path)
    all_read(mqtool, root)
    table = {"offsetTable": {"Payments@reports": {"0": 11}}}
    (root / "config" / "consumerOffset.json").write_text(json.dumps(table))
    refused = mqtool("plan", "purge", root, "--topic", "Payments", "-o", tmp_path / "plan.json")
    assert refused.code == 4
    assert "of the messages to be deleted, 3 unread" in refused.stderr


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_and_its_options_make_one_change_that_undo_undoes(verb, mqtool, tmp_path):
    root = copy_store(ORDERS, tmp_path)
    damage, options, change = VERBS[verb]
    damage(root)
    before = tree_digest(root)
    planned = mqtool("plan", verb, root, *options, "-o", tmp_path / "plan.json", "--format", "json")
    assert (planned.code, planned.document["changes"]) == (0, [change]), planned.stderr
    assert mqtool("apply", tmp_path / "plan.json", "--yes").code == 0
    assert tree_digest(root) != before
    assert mqtool("undo", root, "--yes").code == 0
    assert tree_digest(root) == before


def test_a_file_is_named_as_the_shell_completes_it(mqtool, tmp_path, monkeypatch):
    root = copy_store(ORDERS, tmp_path)
    path = last_segment(root)
    path.write_bytes(path.read_bytes().rstrip(b"\0"))
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate((path, path.relative_to(tmp_path), path.relative_to(root))):
        out = tmp_path / f"{number}.json"
        found = mqtool("plan", "pad", root, "--file", name, "-o", out, "--format", "json")
        assert (found.code, found.document["changes"]) == (
            0,
            [{"verb": "pad", "files": [f"commitlog/{path.name}"]}, {"verb": "record-losses", "lost": None}],
        )


def test_a_plan_on_stdout_says_what_it_leaves_and_what_to_type_on_stderr(mqtool, tmp_path):
    root = damage_case("tail-garbage@5.5.0-clean", tmp_path)
    (root / "commitlog" / "notes.txt").write_text("x")
    found = mqtool("plan", "repair", root, "-o", "-")
    assert [change["verb"] for change in json.loads(found.stdout)["changes"]] == ["truncate"]
    assert re.search(r"left: log-stray-file: commitlog/notes\.txt: ", found.stderr)
    assert "files that change: " in found.stderr


@pytest.mark.parametrize(
    ("out", "code", "words"),
    [("nothing/plan.json", 74, "No such file or directory"), (".", 2, "exists; give a new name")],
)
def test_a_plan_that_cannot_be_written_ends_with_one_line(mqtool, store, tmp_path, out, code, words):
    found = mqtool("plan", "rebuild", "consumequeue", store, "-o", tmp_path / out)
    assert (found.code, found.stderr.count("\n"), words in found.stderr) == (code, 1, True), found.stderr


def test_a_tail_among_the_findings_comes_first(mqtool, tmp_path):
    root = damage_case("tail-garbage@5.5.0-clean", tmp_path)
    (root / "commitlog" / "notes.txt").write_text("x")
    (tmp_path / "findings.json").write_bytes(mqtool("verify", root, "--format", "json").stdout)
    words = ("--findings", tmp_path / "findings.json", "-o", tmp_path / "plan.json")
    result = mqtool("plan", "repair", root, *words, "--format", "json")
    assert [change["verb"] for change in result.document["changes"]] == ["truncate"]
    assert [row["code"] for row in result.document["left"]] == ["log-stray-file"]
    assert any("plan again" in note for note in result.document["notes"])


@pytest.mark.parametrize(
    "words",
    [
        ["frobnicate", "STORE"],
        ["rebuild", "STORE"],
        ["rebuild", "consumequeue"],
        ["trim", "STORE"],
        ["redact", "STORE"],
        ["undelete", "STORE"],
        ["set-aside", "STORE"],
        ["pad", "STORE"],
        ["trim", "STORE", "--before", "5", "--topic", "x"],
        ["truncate", "STORE", "--at", "Orders/0@3"],
        ["truncate", "STORE", "--at", "262145"],
        ["truncate", "STORE", "--at", "5", "--at", "6"],
        ["rebuild", "index", "STORE", "--file", "a", "--file", "b"],
        ["redact", "STORE", "--message", "Orders/0@999"],
        ["rebuild", "consumequeue", "STORE", "--findings", "FINDINGS"],
        ["repair", "STORE", "--findings", "FINDINGS"],
    ],
    ids=" ".join,
)
def test_words_that_make_no_sense_end_with_2_and_no_plan(mqtool, store, tmp_path, words):
    (tmp_path / "findings.json").write_text("{}")
    given = [
        str(store) if word == "STORE" else str(tmp_path / "findings.json") if word == "FINDINGS" else word
        for word in words
    ]
    result = mqtool("plan", *given, "-o", tmp_path / "plan.json")
    assert (result.code, result.stderr.count("\n")) == (2, 1)
    assert not (tmp_path / "plan.json").exists()


FORGED = {
    "severity": lambda document: document["findings"][0].update(severity="bad"),
    "topic": lambda document: document["findings"][0].update(topic=3),
    "topics": lambda document: document["findings"][0].update(topic=["Orders"]),
    "file": lambda document: document["findings"][0].update(file=None),
    "findings": lambda document: document.update(findings=["queue-missing"]),
    "store": lambda document: document.update(store="a\0b"),
    "surrogate": lambda document: document.update(store="a\ud800"),
    "schema": lambda document: document.update(schema="info"),
}


@pytest.mark.parametrize("forged", FORGED)
def test_findings_that_verify_does_not_print_end_with_2_and_one_line(mqtool, store, tmp_path, forged):
    document = mqtool("verify", store, "--format", "json").document
    FORGED[forged](document)
    (tmp_path / "findings.json").write_text(json.dumps(document))
    words = ("--findings", tmp_path / "findings.json", "-o", tmp_path / "plan.json")
    result = mqtool("plan", "repair", store, *words)
    assert (result.code, result.stderr.count("\n"), "mqtool verify" in result.stderr) == (2, 1, True), result.stderr
    assert not (tmp_path / "plan.json").exists()


def test_a_plan_is_written_to_a_new_file_outside_of_the_store(mqtool, store, tmp_path, planned):
    words = ("plan", "rebuild", "consumequeue", store, "-o")
    before = planned.read_bytes()
    assert mqtool(*words, planned).code == 2
    assert mqtool(*words, store / "plan.json").code == 2
    assert planned.read_bytes() == before
    assert not (store / "plan.json").exists()


@pytest.mark.parametrize("command", ["undo", "discard-undo"])
def test_a_store_without_a_change_ends_with_4(mqtool, command):
    result = mqtool(command, fixture(f"{ORDERS}/store"), "--yes")
    assert (result.code, result.stderr.count("\n")) == (4, 1)


@pytest.mark.parametrize("with_config", [False, True])
def test_the_advice_of_a_plan_that_is_refused_runs_as_printed(mqtool, tmp_path, with_config):
    """A cut segment with a second hole: no plan in place holds, and neither verify nor the refusal prints one."""
    root = copy_store("crash-4.9.7", tmp_path)
    with (root / "commitlog" / "00000000000000393216").open("r+b") as file:
        file.truncate(30000)
        file.seek(5000)
        file.write(bytes(200))
    before = tree_digest(root)
    config = ("--config", str(store_fixture("crash-4.9.7").config)) if with_config else ()
    steps = mqtool("verify", root, *config, "--format", "json").document["next_steps"]
    assert steps == [shlex.join(["mqtool", "repair", str(root), *config, "-o", f"{root}.new"])]
    refused = mqtool("plan", "repair", root, *config, "-o", tmp_path / "plan.json")
    advice = re.search(r"losses: .*(mqtool repair \S+( --config \S+)? -o \S+);", refused.stderr)
    assert advice, refused.stderr
    words = shlex.split(advice[1])
    assert tuple(words[3:-2]) == config
    assert mqtool(*words[1:], "--yes").code == 1, "messages are lost"
    assert mqtool("verify", words[-1], "--format", "json").document["status"] != "corrupt"
    assert tree_digest(root) == before


def test_verify_names_repair_in_place_where_a_plan_is_enough(mqtool, tmp_path):
    """A truncated segment: its codes name RB-13 and RB-05, but a plan in place loses only what was cut off."""
    root = copy_store("crash-4.9.7", tmp_path)
    os.truncate(root / "commitlog" / "00000000000000393216", 30000)
    steps = mqtool("verify", root, "--format", "json").document["next_steps"]
    assert steps == [f"mqtool repair {root}"]
    assert mqtool("plan", "repair", root, "-o", tmp_path / "plan.json").code == 0
    hurried = mqtool("verify", root, "--throttle", "1G", "--format", "json").document["next_steps"]
    assert hurried == steps, "repair itself tries the plan"


def test_verify_builds_no_preview_of_very_many_files(mqtool, tmp_path, monkeypatch):
    root = copy_store("crash-4.9.7", tmp_path)
    for number in range(1, 20):
        (root / "commitlog" / f"{(1 << 40) + number * 131072:020d}").touch()
    monkeypatch.setattr("mqtool.repair.from_findings.TRIED_FINDINGS", 5)
    monkeypatch.setattr("mqtool.repair.from_findings.build", None)
    assert mqtool("verify", root, "--format", "json").document["next_steps"]


@pytest.mark.parametrize("case", ["flip-body@5.5.0-clean", "segment-missing-middle@4.9.7-clean"])
def test_verify_predicts_no_start_for_its_steps_where_there_is_nothing_to_plan(case, mqtool, tmp_path, monkeypatch):
    root = damage_case(case, tmp_path)
    with library.open(root) as store:
        assert not changes_of(store, verify(store).findings).changes
    monkeypatch.setattr("mqtool.repair.outlook.predict", None)
    monkeypatch.setattr("mqtool.repair.from_findings.build", None)
    assert mqtool("verify", root, "--format", "json").document["next_steps"]


def test_verify_prints_no_plan_where_what_it_leaves_keeps_the_broker_from_starting(mqtool, tmp_path):
    root = damage_case("segment-missing-last@4.9.7-crash", tmp_path)
    steps = mqtool("verify", root, "--format", "json").document["next_steps"]
    assert steps == [f"mqtool repair {root} -o {root}.new"]
    assert mqtool("plan", "repair", root, "-o", tmp_path / "plan.json").code == 4


def test_a_queue_of_a_topic_without_a_message_is_set_aside(mqtool, tmp_path, monkeypatch):
    """A copied queue under a topic that no record has: its units lead to the messages of another."""
    root = damage_case("cq-unknown-topic@4.9.7-clean", tmp_path)
    monkeypatch.chdir(tmp_path)
    found = mqtool("plan", "repair", root, "-o", "plan.json", "--format", "json")
    assert found.code == 0, found.stderr
    files = {row["path"]: row["action"] for row in found.document["steps"]}
    assert files == {"consumequeue/Ghost/0/00000000000000000000": "set-aside"}
    assert mqtool("apply", "plan.json", "--yes").code == 0
    assert mqtool("verify", root).code == 0


def test_a_queue_whose_messages_have_expired_is_left_as_it_is(mqtool, tmp_path):
    """Its units lead before the log, which tells nothing of them."""
    root = damage_case("cq-unknown-topic@4.9.7-clean", tmp_path)
    min((root / "commitlog").iterdir()).unlink()
    found = mqtool(
        "plan", "rebuild", "consumequeue", root, "--topic", "Ghost", "-o", tmp_path / "plan.json", "--format", "json"
    )
    assert found.code == 2
    assert "contains no message of the requested queues" in found.stderr


def test_what_to_type_next_opens_the_store_with_the_configuration_of_the_plan(mqtool, store, tmp_path):
    config = tmp_path / "my broker.conf"
    config.write_text("brokerName=b\n", "utf-8")
    opened = [str(store), "--config", str(config)]
    plan = tmp_path / "plan.json"
    assert mqtool("plan", "rebuild", "consumequeue", store, "--config", config, "-o", plan).code == 0

    def next_step(*words):
        return shlex.split(mqtool(*words, "--format", "json").document["next_steps"][0])

    assert next_step("apply", plan, "--yes") == ["mqtool", "explain-start", *opened]
    assert next_step("undo", store, "--yes") == ["mqtool", "verify", *opened]
    assert next_step("apply", plan, "--yes") == ["mqtool", "explain-start", *opened]
    config.rename(tmp_path / "elsewhere.conf")
    assert next_step("discard-undo", store, "--yes") == ["mqtool", "explain-start", str(store)]


def test_findings_of_a_store_that_is_repaired_meanwhile_leave_nothing_to_change(mqtool, tmp_path):
    root = copy_store("rollover-5.5.0", tmp_path)
    path = min((root / "consumequeue" / "Roll" / "0").iterdir())
    whole = path.read_bytes()
    path.write_bytes(whole[:20] + bytes(20) + whole[40:])
    (tmp_path / "findings.json").write_bytes(mqtool("verify", root, "--format", "json").stdout)
    path.write_bytes(whole)
    before = tree_digest(root)
    result = mqtool("plan", "repair", root, "--findings", tmp_path / "findings.json", "-o", tmp_path / "plan.json")
    assert (result.code, result.stdout) == (1, b"")
    assert "nothing to change: every file already has the content that the plan would write" in result.stderr
    assert (tree_digest(root), (tmp_path / "plan.json").exists()) == (before, False)


def test_a_file_that_appears_while_the_plan_is_made_is_not_written_over(mqtool, store, tmp_path, monkeypatch):
    out, writing = tmp_path / "plan.json", atomic.writing

    def appears(path):
        path.write_text("of another", "utf-8")
        return writing(path)

    monkeypatch.setattr(atomic, "writing", appears)
    result = mqtool("plan", "rebuild", "consumequeue", store, "-o", out)
    assert (result.code, out.read_text("utf-8")) == (ExitCode.USAGE, "of another"), result.stderr
    assert f"{out}: this file exists; give a new name" in result.stderr
