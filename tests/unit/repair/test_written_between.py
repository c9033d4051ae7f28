"""What is written to a store between a call of `apply` or `undo` that was killed and the next call is never removed."""

import json

import pytest

import mqtool
from mqtool.cli.app import run as cli
from mqtool.errors import RefusedError
from mqtool.repair import Purge, Truncate, apply, discard_undo, make_plan, undo
from mqtool.repair.backup import backup
from mqtool.repair.files import RepairFiles
from mqtool.repair.paths import BARRIER, HOME
from mqtool.repair.salvage import salvage
from tests.support.stores import copy_store, tree_digest
from tests.unit.repair.faults import Killed

pytestmark = pytest.mark.slow


@pytest.fixture
def root(in_memory):
    return copy_store("orders-5.5.0", in_memory)


class DiesAt(RepairFiles):
    """Dies before the first call of a method whose path, or data, contains a text."""

    def __init__(self, method, text):
        def call(*arguments):
            if any(text in str(argument) for argument in arguments):
                raise Killed(method, arguments)
            return really(*arguments)

        really = getattr(self, method)
        setattr(self, method, call)


def bodies(root):
    with mqtool.open(root) as store:
        return [message.body for message in store.messages()]


def append(root, count=200):
    """Writes messages as a broker that was started in between; the last ones fill a new segment."""
    rows = root.parent / "rows"
    rows.write_text(
        "".join(json.dumps({"topic": "New", "queue_id": 0, "body": f"{n}" * 300}) + "\n" for n in range(count))
    )
    code = cli(["append", str(root), "--from", str(rows)])
    assert code == 0
    return bodies(root)


def plan_of(root, change):
    plan = make_plan(root, change)
    assert any(step.path.startswith("commitlog/") for step in plan.steps)
    return plan


def middle(root):
    with mqtool.open(root) as store:
        messages = [message.physical_offset for message in store.messages()]
    return Truncate(messages[len(messages) // 2])


def carry_out(plan, files=None):
    return apply(plan, backup_acknowledged=True, verify_after=False, files=files)


def killed(action):
    with pytest.raises(Killed):
        action()


def refused(gate, action):
    with pytest.raises(RefusedError) as caught:
        action()
    assert caught.value.gate == gate, caught.value
    return str(caught.value)


def test_after_an_undo_that_died_while_it_deleted_its_own_files(root):
    before = bodies(root)
    carry_out(plan_of(root, Purge(("Orders",))))
    killed(lambda: undo(root, files=DiesAt("remove_directory", f"{HOME}/quarantine")))
    assert bodies(root) == before
    written = append(root)
    refused("journal", lambda: discard_undo(root))
    undo(root)
    assert bodies(root) == written
    assert not (root / HOME).exists()


def test_after_an_apply_that_died_while_it_built(root):
    plan = plan_of(root, middle(root))
    killed(lambda: carry_out(plan, DiesAt("rename", f"{HOME}/staging")))
    step = next(step for step in plan.steps if step.path.startswith("commitlog/") and step.action == "replace")
    written = (root / step.path).read_bytes()[:-1] + b"!"  # after the cut: the plan's files would be the same
    (root / step.path).write_bytes(written)
    assert step.path in refused("plan-stale", lambda: carry_out(plan))
    assert (root / step.path).read_bytes() == written
    assert not (root / HOME).exists()


def test_after_an_apply_that_died_before_brokers_were_kept_out(root):
    plan = plan_of(root, middle(root))
    killed(lambda: carry_out(plan, DiesAt("write_file", BARRIER)))
    written = append(root)
    assert "mqtool undo" in refused("plan-stale", lambda: carry_out(plan))
    undo(root)
    assert bodies(root) == written
    assert not (root / HOME).exists()


def test_after_an_apply_that_died_before_brokers_were_kept_out_if_only_a_file_was_written_that_it_read(root):
    plan = make_plan(root, Purge(("Orders",)))
    read = plan.reads[0].path
    killed(lambda: carry_out(plan, DiesAt("write_file", BARRIER)))
    with (root / read).open("ab") as file:
        file.write(b" ")
    assert read in refused("plan-stale", lambda: carry_out(plan))


def test_brokers_are_kept_out_until_the_change_is_recorded_as_applied(root):
    plan = plan_of(root, middle(root))
    killed(lambda: carry_out(plan, DiesAt("append", "applied")))
    assert (root / "commitlog" / BARRIER).exists()
    carry_out(plan)
    assert not (root / "commitlog" / BARRIER).exists()


@pytest.mark.parametrize("end", [undo, discard_undo])
def test_a_change_that_died_as_it_let_brokers_start_again_can_be_ended(root, end):
    digest, plan = tree_digest(root), plan_of(root, middle(root))
    killed(lambda: carry_out(plan, DiesAt("remove", BARRIER)))
    end(root)
    assert not (root / "commitlog" / BARRIER).exists()
    assert not (root / HOME).exists()
    assert (tree_digest(root) == digest) == (end is undo)


def test_a_store_with_an_unfinished_change_is_not_copied(root, capsys):
    digest, plan, out = tree_digest(root), plan_of(root, middle(root)), root.parent / "out"
    killed(lambda: carry_out(plan, DiesAt("keep", "commitlog")))
    assert "mqtool undo" in refused("unfinished", lambda: backup(root, out))
    assert "mqtool undo" in refused("unfinished", lambda: salvage(root, out))
    for words in (
        ["convert", "file-queues", root, "-o", out],
        ["export", root, "--output", out],
        ["replay", root, "--into", out],
        ["rebuild", "index", root, "--output", out],
    ):
        assert cli([str(word) for word in words]) == 4
        assert "mqtool undo" in capsys.readouterr().err
    assert not out.exists()
    assert cli(["verify", str(root), "--format", "json"]) == 1
    verified = json.loads(capsys.readouterr().out)
    assert verified["next_steps"] == [f"mqtool undo {root} --yes"]
    assert any("mqtool undo" in one["evidence"] for one in verified["findings"] if one["code"] == "log-stray-file")
    undo(root)
    assert tree_digest(root) == digest
    backup(root, out)
    assert (out / "snapshots").is_dir()


@pytest.mark.parametrize("end", ["apply", "undo"])
def test_a_store_whose_change_died_as_it_let_brokers_start_again_is_not_saved(root, end):
    """The file that keeps brokers out would be in the backup."""
    plan = plan_of(root, middle(root))
    if end == "apply":
        killed(lambda: carry_out(plan, DiesAt("remove", BARRIER)))
    else:
        carry_out(plan)
        killed(lambda: undo(root, files=DiesAt("remove", BARRIER)))
    refused("unfinished", lambda: backup(root, root.parent / "out"))
    undo(root)
    backup(root, root.parent / "out")
    assert (root.parent / "out" / "snapshots").is_dir()


def test_after_an_undo_that_died_if_somebody_let_a_broker_start_on_what_was_there(root):
    digest, plan = tree_digest(root), plan_of(root, middle(root))
    carry_out(plan)
    killed(lambda: undo(root, files=DiesAt("rename", "commitlog")))
    (root / "commitlog" / BARRIER).unlink()
    step = next(step for step in plan.steps if step.path.startswith("commitlog/") and step.action == "replace")
    before = (root / step.path).read_bytes()
    (root / step.path).write_bytes(before[:-1] + b"!")
    assert step.path in refused("written-since", lambda: undo(root))
    assert (root / step.path).read_bytes() == before[:-1] + b"!"
    (root / step.path).rename(root.parent / "kept")
    undo(root)
    assert tree_digest(root) == digest


def test_a_file_of_a_broker_has_the_name_of_a_new_one(root):
    """The undo died when all was back, and somebody let a broker start."""
    carry_out(plan_of(root, Purge(("Orders",))))
    killed(lambda: undo(root, files=DiesAt("append", "restored")))
    (root / "commitlog" / BARRIER).unlink()
    written = append(root)
    undo(root)
    assert bodies(root) == written
