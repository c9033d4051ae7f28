"""`mqtool plan`, `apply`, `undo`, `finalize`: what they print, how they end, which options go together."""

import json
import shlex
import shutil

import pytest

import mqtool as library
from tests.cli.answers import problems
from tests.support.damage import damage_case, held_lock
from tests.support.stores import copy_store, fixture, tree_digest

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
    plan = mqtool("plan", "--from", tmp_path / "findings.json", "-o", tmp_path / "plan.json", "--format", "json")
    assert (plan.code, [row["path"] for row in plan.document["steps"]]) == (
        1,
        ["consumequeue/Orders/2/00000000000000000000"],
    )
    assert [row["code"] for row in plan.document["left"]] == ["config-offset-orphan"]
    assert tree_digest(store) == before
    done = mqtool("apply", tmp_path / "plan.json", "--yes", "--format", "json")
    assert (done.code, done.document["status"], done.document["errors"], done.document["files"]) == (0, "clean", 0, 1)
    back = mqtool("undo", store, "--format", "json")
    assert (back.code, back.document["files"]) == (0, 1)
    assert tree_digest(store) == before


def test_finalize_needs_a_word_and_says_what_it_freed(mqtool, store, tmp_path):
    plan = tmp_path / "plan.json"
    assert mqtool("plan", "redact", store, "--topic", "Orders", "--key", "k0", "-o", plan).code == 0
    assert mqtool("apply", plan, "--yes").code == 0
    refused = mqtool("finalize", store, "--format", "json")
    assert (refused.code, refused.document["error"]["kind"]) == (4, "refused")
    dry = mqtool("finalize", store, "--dry-run", "--format", "json").document
    done = mqtool("finalize", store / ".mqtool" / "journal", "--yes", "--format", "json")
    assert (done.code, done.document["files"]) == (0, 1)
    assert done.document["freed"] >= dry["freed"] > 100_000
    assert not (store / ".mqtool").exists()


def test_apply_without_a_word_about_a_backup_is_refused(mqtool, store, planned):
    before = tree_digest(store)
    result = mqtool("apply", planned)
    assert (result.code, "backup" in result.stderr, "--yes" in result.stderr) == (4, True, True)
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

    check("plan", "trim", store, "--before", 262144, "-o", tmp_path / "plan.json")
    check("apply", tmp_path / "plan.json", "--dry-run")
    check("apply", tmp_path / "plan.json", "--yes", "--no-verify")
    check("undo", store, "--dry-run")
    check("finalize", store, "--dry-run")
    check("undo", store)
    check("undo", store)


def test_damage_makes_a_plan_incomplete_and_it_is_written_all_the_same(mqtool, tmp_path):
    root = damage_case("old-flip-magic@5.5.0-clean", tmp_path)
    shutil.rmtree(root / "consumequeue" / "Orders")
    result = mqtool("plan", "rebuild", "consumequeue", root, "-o", tmp_path / "plan.json", "--format", "json")
    assert (result.code, result.document["complete"]) == (1, False)
    assert any(note.startswith("damage: ") for note in result.document["notes"])
    assert json.loads((tmp_path / "plan.json").read_bytes())["complete"] is False


def test_messages_that_cannot_be_looked_at_make_a_redaction_incomplete(mqtool, tmp_path):
    root = damage_case("old-flip-magic@5.5.0-clean", tmp_path)
    result = mqtool("plan", "redact", root, "--topic", "Orders", "-o", tmp_path / "plan.json", "--format", "json")
    assert (result.code, result.document["complete"]) == (1, False)
    assert any("could not be looked at" in note for note in result.document["notes"])


def test_a_place_in_a_queue_an_id_and_a_physical_offset_name_messages_to_redact(mqtool, store, tmp_path):
    with library.open(store) as opened:
        first, second, third = opened.messages(topics=["Payments"], limit=3)
    addresses = (f"Payments/{first.queue_id}@{first.queue_offset}", second.offset_message_id, third.physical_offset)
    options = [word for address in addresses for word in ("--at", address)]
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


def test_a_tail_among_the_findings_comes_first(mqtool, tmp_path):
    root = damage_case("tail-garbage@5.5.0-clean", tmp_path)
    (root / "commitlog" / "notes.txt").write_text("x")
    (tmp_path / "findings.json").write_bytes(mqtool("verify", root, "--format", "json").stdout)
    result = mqtool("plan", "--from", tmp_path / "findings.json", "-o", tmp_path / "plan.json", "--format", "json")
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
        ["truncate", "STORE", "--at", "5", "--at", "6"],
        ["rebuild", "index", "STORE", "--file", "a", "--file", "b"],
        ["redact", "STORE", "--at", "Orders/0@999"],
        ["rebuild", "consumequeue", "STORE", "--from", "FINDINGS"],
        ["--from", "FINDINGS"],
        [],
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


def test_a_plan_is_written_to_a_new_file_outside_of_the_store(mqtool, store, tmp_path, planned):
    words = ("plan", "rebuild", "consumequeue", store, "-o")
    before = planned.read_bytes()
    assert mqtool(*words, planned).code == 2
    assert mqtool(*words, store / "plan.json").code == 2
    assert planned.read_bytes() == before
    assert not (store / "plan.json").exists()


@pytest.mark.parametrize("command", ["undo", "finalize"])
def test_a_store_without_a_change_ends_with_4(mqtool, command):
    result = mqtool(command, fixture(f"{ORDERS}/store"), *(["--yes"] if command == "finalize" else []))
    assert (result.code, result.stderr.count("\n")) == (4, 1)


def test_next_steps_of_findings_are_commands_that_work(mqtool, tmp_path):
    root = copy_store(ORDERS, tmp_path)
    shutil.rmtree(root / "consumequeue" / "Orders" / "2")
    min((root / "index").iterdir()).write_bytes(b"x")
    (root / "commitlog" / "a note.txt").write_text("x")
    (root / "checkpoint").write_bytes(b"short")
    (root / "config" / "topics.json").write_bytes(b"{")
    (root / "config" / "topics.json.bak").write_bytes(b"{")

    tried = set()
    for row in mqtool("verify", root, "--format", "json").document["findings"]:
        words = shlex.split(row["next_step"])
        if words[:2] == ["mqtool", "plan"] and row["code"] not in tried:
            tried.add(row["code"])
            out = tmp_path / f"{row['code']}.json"
            words[words.index("PLAN")] = str(out)
            assert mqtool(*words[1:]).code in (0, 1), row
            assert out.exists(), row
    assert {"queue-missing", "index-file-size", "log-stray-file", "checkpoint-size", "config-unreadable"} <= tried
