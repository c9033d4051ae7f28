"""`mqtool recover`: the broker's own recovery without a broker; and the careful one, which destroys nothing."""

import pytest

import mqtool as library
from mqtool import errors
from mqtool.cli.exits import ExitCode
from mqtool.repair import Recover, make_plan
from tests.cli.answers import problems
from tests.support.damage import base_config, damage_answers, damage_case, held_lock
from tests.support.engine import tree
from tests.support.stores import copy_store, tree_digest

CUT = [
    "tail-page-hole@5.5.0-crash",
    "recent-flip-body@4.9.7-clean",
    "third-last-flip-magic@4.9.7-clean",
    "tail-zeroed-segment@5.5.0-clean",
    "flip-magic@5.5.0-crash",
    "blank-zeroed@4.9.7-crash",
]


def answer_of(case):
    release = case.partition("@")[2].partition("-")[0]
    return damage_answers(release, None)[case]


def bodies(root, config=None):
    with library.open(root, config) as store:
        return {(m.topic, m.queue_id, m.born_timestamp, m.body) for m in store.messages() if hasattr(m, "body")}


@pytest.fixture
def recover(mqtool, tmp_path):
    def call(case, *arguments):
        root = damage_case(case, tmp_path / "damaged")
        return root, mqtool("recover", root, "--config", base_config(case.partition("@")[2]), "-f", "json", *arguments)

    return call


@pytest.mark.parametrize("keep", [[], ["--no-keep", "--yes"]], ids=str)
@pytest.mark.parametrize("case", CUT)
def test_a_compatible_recovery_comes_to_what_the_broker_came_to(recover, case, keep):
    root, result = recover(case, "--mode", "compatible", *keep)
    answer = answer_of(case)
    assert result.document["end"] == answer["after_start"]["max"]
    lost = {}
    for one in result.document["lost"]:
        lost.setdefault(one["queue"], []).append([one["first"], one["last"]])
    assert lost == answer["lost"]
    assert result.code == (ExitCode.NO if lost else ExitCode.OK)
    assert not (root / "abort").exists()


@pytest.mark.parametrize("case", CUT)
def test_a_careful_recovery_keeps_every_byte_that_it_cuts(recover, tmp_path, case):
    before = tree(damage_case(case, tmp_path / "before"))
    root, result = recover(case)
    after = tree(root)
    kept = b"".join(data for name, data in after.items() if name.startswith("quarantine/"))
    for name, data in before.items():
        if not name.startswith(("commitlog/", "consumequeue/", "index/")):
            continue
        now = after.get(name, b"")
        end = len(data.rstrip(b"\0"))
        same = next((at for at in range(end) if data[at] != (now[at] if at < len(now) else -1)), end)
        assert data[same:end] in kept or not name.startswith("commitlog/"), name
        assert name in after or not data.strip(b"\0") or data in kept, name
    assert result.document["quarantined"]


@pytest.mark.parametrize("case", CUT)
def test_what_a_careful_recovery_lists_can_be_appended_and_the_store_is_whole_then(recover, mqtool, tmp_path, case):
    source = bodies(damage_case(f"none@{case.partition('@')[2]}", tmp_path / "whole"))
    damaged = bodies(damage_case(case, tmp_path / "again"))
    root, result = recover(case)
    listings = [root / name for name in result.document["quarantined"] if name.endswith("messages.jsonl")]
    assert bool(listings) == bool(result.document["cut_messages"])
    for listing in listings:
        assert mqtool("append", root, "--from", listing).code == ExitCode.OK
    assert bodies(root) == damaged & source
    found = mqtool("verify", root, "--config", base_config(case.partition("@")[2]), "-f", "json").document
    allowed = {"config-offset-ahead", "checkpoint-ahead"}
    assert {one["code"] for one in found["findings"] if one["severity"] != "note"} <= allowed


@pytest.mark.parametrize("case", CUT[:3])
def test_a_dry_run_prints_what_explain_start_prints_and_writes_nothing(recover, mqtool, case):
    root, result = recover(case, "--dry-run")
    before = tree_digest(root)
    release = case.partition("@")[2][:3]
    expected = mqtool(
        "explain-start", root, "--broker", release, "--config", base_config(case.partition("@")[2]), "-f", "json"
    )
    assert (result.document, result.code) == (expected.document, expected.code)
    assert tree_digest(root) == before


def test_a_whole_store_stays_as_it_is_but_for_its_marks(mqtool, tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    before = tree(root)
    result = mqtool("recover", root, "-f", "json")
    assert (result.code, result.document["clean_stop"], result.document["lost"]) == (ExitCode.OK, True, [])
    after = tree(root)
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    assert {name for name in changed if not name.startswith(".mqtool/")} <= {"checkpoint", "abort.bak", "lock"}


def test_a_store_that_the_broker_would_refuse_is_refused_in_its_words(mqtool, tmp_path):
    root = damage_case("segment-short-last@5.5.0-clean", tmp_path / "damaged")
    before = tree_digest(root)
    result = mqtool("recover", root, "--mode", "careful", "--config", base_config("5.5.0-clean"))
    assert (result.code, "length not matched" in result.stderr) == (ExitCode.REFUSED, True)
    assert tree_digest(root) == before


@pytest.mark.parametrize("mode", ["careful", "compatible"])
def test_a_store_on_which_a_broker_never_finishes_starting_is_refused(recover, mode):
    """4.9.7 waits in DefaultMessageStore.start for a dispatch that has nowhere to go on."""
    case = "segment-missing-last@4.9.7-crash"
    assert answer_of(case)["hung"]
    root, result = recover(case, "--mode", mode)
    assert result.code == ExitCode.REFUSED
    assert tree(root) == tree(damage_case(case, root.parent.parent / "again"))
    assert "a broker of 4.9 would never finish starting: start() waits for dispatch" in result.stderr
    assert "the disk" not in result.stderr


def test_a_plan_that_the_broker_would_refuse_names_the_store_and_no_temporary_file(tmp_path):
    root = damage_case("segment-short-last@5.5.0-clean", tmp_path / "damaged")
    with pytest.raises(errors.StoreError, match="length not matched") as caught:
        make_plan(root, Recover("5.5", "careful", 1_795_221_000_000), config=base_config("5.5.0-clean"))
    assert caught.value.path.is_relative_to(root)
    assert str(caught.value).startswith(str(root))
    assert "mqtool-plan-" not in str(caught.value)


def test_a_store_in_use_is_refused(mqtool, tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    before = tree_digest(root)
    with held_lock(root / "lock"):
        result = mqtool("recover", root)
    assert (result.code, "nothing to recover" in result.stderr) == (ExitCode.REFUSED, True)
    assert tree_digest(root) == before


@pytest.mark.parametrize("what", ["missing", "empty", "rocksdb-cq-5.5.0"])
def test_what_is_no_store_of_files_is_refused(mqtool, tmp_path, what):
    (tmp_path / "empty").mkdir()
    root = copy_store(what, tmp_path) if "-" in what else tmp_path / what
    assert mqtool("recover", root).code == ExitCode.REFUSED
    assert not (tmp_path / "missing").exists()


def test_json_has_the_documented_fields_and_no_others(recover):
    _, result = recover(CUT[0])
    assert problems("recover", result.document) == []


@pytest.mark.parametrize("mode", ["careful", "compatible"])
@pytest.mark.parametrize("case", CUT)
def test_recover_can_be_undone(mqtool, tmp_path, case, mode):
    root = damage_case(case, tmp_path / "damaged")
    before = tree_digest(root)
    config = base_config(case.partition("@")[2])
    result = mqtool("recover", root, "--mode", mode, "--config", config, "-f", "json")
    assert tree_digest(root) != before
    assert result.document["undo"] == f"mqtool undo {root}"
    assert mqtool("undo", root).code == ExitCode.OK
    assert tree_digest(root) == before


def test_without_an_undo_recover_needs_consent(mqtool, tmp_path):
    root = damage_case(CUT[1], tmp_path / "damaged")
    before = tree_digest(root)
    result = mqtool("recover", root, "--no-keep", "--config", base_config(CUT[1].partition("@")[2]))
    assert (result.code, "--yes" in result.stderr) == (ExitCode.REFUSED, True)
    assert tree_digest(root) == before


def test_the_next_step_of_recover_brings_cut_messages_back(recover, mqtool):
    root, result = recover("recent-flip-body@4.9.7-clean")
    words = result.document["next_step"].split()
    assert words[:3] == ["mqtool", "append", str(root)]
    assert "--from" in words
    assert mqtool(*words[1:]).code == ExitCode.OK
    assert mqtool("undo", root).code == ExitCode.REFUSED  # it would take the appended messages away


def test_recovery_writes_nothing_through_links(tmp_path):
    root = damage_case(CUT[0], tmp_path / "damaged")
    before = tree_digest(root)
    plan = make_plan(root, Recover("5.5", "careful", 1_795_221_000_000), config=base_config("5.5.0-crash"))
    assert plan.steps
    assert tree_digest(root) == before
    (tmp_path / "elsewhere").mkdir()
    (root / "index").rename(tmp_path / "elsewhere" / "index")
    (root / "index").symlink_to(tmp_path / "elsewhere" / "index")
    with pytest.raises(errors.RefusedError, match="symbolic link"):
        make_plan(root, Recover("5.5", "careful", 1_795_221_000_000), config=base_config("5.5.0-crash"))
