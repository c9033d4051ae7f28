"""`mqtool plan recover` and `apply`: the broker's own recovery without a broker; the careful one destroys nothing."""

import re
import shlex

import pytest

import mqtool as library
from mqtool import errors
from mqtool.cli.exits import ExitCode
from mqtool.recovery import predict
from mqtool.repair import Recover, make_plan
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
def plan(mqtool, tmp_path):
    """Plans a recovery, and confirms the number of messages that it loses."""

    def call(root, *arguments):
        path = tmp_path / "plan.json"
        path.unlink(missing_ok=True)
        words = ("plan", "recover", root, "-o", path, "-f", "json", *arguments)
        result = mqtool(*words)
        number = re.search(r"--accept-loss (\d+)", result.stderr)
        return mqtool(*words, "--accept-loss", number[1]) if number else result

    return call


@pytest.fixture
def recover(mqtool, plan, tmp_path):
    def call(case, *arguments):
        root = damage_case(case, tmp_path / "damaged")
        config = base_config(case.partition("@")[2])
        assert plan(root, "--config", config, *arguments).code == ExitCode.OK
        return root, mqtool("apply", tmp_path / "plan.json", "--yes", "-f", "json")

    return call


@pytest.mark.parametrize("case", CUT)
def test_a_compatible_recovery_comes_to_what_the_broker_came_to(recover, case):
    root, result = recover(case, "--mode", "compatible")
    answer = answer_of(case)
    config = base_config(case.partition("@")[2])
    after = predict(root, case.partition("@")[2][:3], config)
    assert max(part.base + part.end for part in after.plan.segments) == answer["after_start"]["max"]
    assert not (root / "abort").exists()
    assert result.code == ExitCode.OK


def test_a_recovery_that_loses_only_what_is_gone_needs_no_number(mqtool, tmp_path):
    """The last segment is zeros: no intact record is left of what the broker lost."""
    case = "tail-zeroed-segment@5.5.0-clean"
    root = damage_case(case, tmp_path / "damaged")
    assert answer_of(case)["lost"]
    words = ("plan", "recover", root, "-o", tmp_path / "plan.json", "--config", base_config("5.5.0-clean"))
    assert mqtool(*words).code == ExitCode.OK


@pytest.mark.parametrize("mode", ["careful", "compatible"])
@pytest.mark.parametrize("case", [case for case in CUT if not case.startswith("tail-zeroed-segment")])
def test_a_plan_that_loses_messages_is_refused_until_their_number_is_confirmed(mqtool, tmp_path, case, mode):
    """The number is what the real broker lost, without the messages of which no intact record was left."""
    root = damage_case(case, tmp_path / "damaged")
    before = tree_digest(root)
    lost = sum(last - first + 1 for ranges in answer_of(case)["lost"].values() for first, last in ranges)
    words = ("plan", "recover", root, "-o", tmp_path / "plan.json", "--mode", mode)
    words = (*words, "--config", base_config(case.partition("@")[2]))
    refused = mqtool(*words)
    numbers = re.search(r"this change loses (\d+) .* A new store keeps them: mqtool repair ", refused.stderr)
    assert (refused.code, numbers is not None) == (ExitCode.REFUSED, True), refused.stderr
    already = re.search(r"(\d+) (?:is|are) lost already", refused.stderr)
    lost -= int(already[1]) if already else 0
    assert int(numbers[1]) == lost
    assert mqtool(*words, "--accept-loss", lost - 1).code == ExitCode.REFUSED
    assert not (tmp_path / "plan.json").exists()
    assert mqtool(*words, "--accept-loss", lost).code == ExitCode.OK
    assert tree_digest(root) == before


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
    assert any(step["path"].startswith("quarantine/") for step in result.document["steps"])


@pytest.mark.parametrize("case", CUT)
def test_what_a_careful_recovery_lists_can_be_appended_and_the_store_is_whole_then(recover, mqtool, tmp_path, case):
    source = bodies(damage_case(f"none@{case.partition('@')[2]}", tmp_path / "whole"))
    damaged = bodies(damage_case(case, tmp_path / "again"))
    root, result = recover(case)
    for step in result.document["next_steps"]:
        if step.startswith("mqtool append"):
            assert mqtool(*shlex.split(step)[1:]).code == ExitCode.OK
    assert bodies(root) == damaged & source
    found = mqtool("verify", root, "--config", base_config(case.partition("@")[2]), "-f", "json").document
    allowed = {"config-offset-ahead", "checkpoint-ahead"}
    assert {one["code"] for one in found["findings"] if one["severity"] != "note"} <= allowed


def test_a_whole_store_stays_as_it_is_but_for_its_marks(mqtool, plan, tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    before = tree(root)
    assert plan(root).code == ExitCode.OK
    assert tree(root) == before
    assert mqtool("apply", tmp_path / "plan.json", "--yes").code == ExitCode.OK
    after = tree(root)
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    assert {name for name in changed if not name.startswith(".mqtool/")} <= {"checkpoint", "abort.bak", "lock"}


def test_a_store_that_the_broker_would_refuse_is_refused_in_its_words(plan, tmp_path):
    root = damage_case("segment-short-last@5.5.0-clean", tmp_path / "damaged")
    before = tree_digest(root)
    result = plan(root, "--config", base_config("5.5.0-clean"))
    assert (result.code, "length not matched" in result.stderr) == (ExitCode.REFUSED, True)
    assert tree_digest(root) == before


def test_a_store_on_which_a_broker_never_finishes_starting_is_refused(plan, tmp_path):
    """4.9.7 waits in DefaultMessageStore.start for a dispatch that has nowhere to go on."""
    case = "segment-missing-last@4.9.7-crash"
    assert answer_of(case)["hung"]
    root = damage_case(case, tmp_path / "damaged")
    before = tree_digest(root)
    result = plan(root, "--config", base_config(case.partition("@")[2]))
    assert result.code == ExitCode.REFUSED
    assert tree_digest(root) == before
    assert "a broker of 4.9 would never finish starting: start() waits for dispatch" in result.stderr
    assert "the disk" not in result.stderr


def test_a_plan_that_the_broker_would_refuse_names_the_store_and_no_temporary_file(tmp_path):
    root = damage_case("segment-short-last@5.5.0-clean", tmp_path / "damaged")
    with pytest.raises(errors.StoreError, match="length not matched") as caught:
        make_plan(root, Recover("5.5", "careful", 1_795_221_000_000), config=base_config("5.5.0-clean"))
    assert caught.value.path.is_relative_to(root)
    assert str(caught.value).startswith(str(root))
    assert "mqtool-plan-" not in str(caught.value)


def test_a_store_in_use_is_refused(mqtool, plan, tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    before = tree_digest(root)
    assert plan(root).code == ExitCode.OK
    with held_lock(root / "lock"):
        assert mqtool("apply", tmp_path / "plan.json", "--yes").code == ExitCode.REFUSED
    assert tree_digest(root) == before


@pytest.mark.parametrize("what", ["missing", "empty", "rocksdb-cq-5.5.0"])
def test_what_is_no_store_of_files_is_refused(plan, tmp_path, what):
    (tmp_path / "empty").mkdir()
    root = copy_store(what, tmp_path) if "-" in what else tmp_path / what
    assert plan(root).code == ExitCode.REFUSED
    assert not (tmp_path / "missing").exists()


@pytest.mark.parametrize("mode", ["careful", "compatible"])
@pytest.mark.parametrize("case", CUT)
def test_a_recovery_can_be_undone(mqtool, plan, tmp_path, case, mode):
    root = damage_case(case, tmp_path / "damaged")
    before = tree_digest(root)
    assert plan(root, "--mode", mode, "--config", base_config(case.partition("@")[2])).code == ExitCode.OK
    result = mqtool("apply", tmp_path / "plan.json", "--yes", "-f", "json")
    assert tree_digest(root) != before
    assert result.document["undo"] == f"mqtool undo {root} --yes"
    assert mqtool("undo", root, "--yes").code == ExitCode.OK
    assert tree_digest(root) == before


def test_the_first_next_step_brings_cut_messages_back(recover, mqtool):
    root, result = recover("recent-flip-body@4.9.7-clean")
    words = shlex.split(result.document["next_steps"][0])
    assert words[:3] == ["mqtool", "append", str(root)]
    assert "--from" in words
    assert mqtool(*words[1:]).code == ExitCode.OK
    assert mqtool("undo", root, "--yes").code == ExitCode.REFUSED  # it would take the appended messages away


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
