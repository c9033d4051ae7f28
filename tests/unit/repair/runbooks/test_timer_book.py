"""The runbook of the timer: each fault of its files is repaired from the log, proved and taken back."""

import json
import shutil

import numpy as np
import pytest

import mqtool
from mqtool.cli.app import run as cli
from mqtool.errors import UnsupportedFormatError, UsageError
from mqtool.formats import timer
from mqtool.rebuild.timer import rebuild_timer
from mqtool.repair import RebuildTimer, Truncate, apply, discard_undo, make_plan, undo
from mqtool.repair.runbooks import RUNBOOKS, Request, run
from mqtool.verify import verify
from tests.support.stores import copy_store, shape_keys, store_fixture, tree_digest

NAME = "timer-5.5.0"
CONFIG = store_fixture(NAME).config
PARTS = ("timerwheel", "config/timercheck", "timerlog/00000000000000000000", "timerlog/00000000000000001024")


def patch(path, position, data):
    """Writes bytes into a file."""
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def lost_log(root):
    """Takes a file of the timer log, where slots lead."""
    (root / PARTS[3]).unlink()


def lost_timer(root):
    """Takes the wheel and the whole timer log; the timer checkpoint is left."""
    (root / "timerwheel").unlink()
    shutil.rmtree(root / "timerlog")


def short_wheel(root):
    """Cuts the wheel, as a full disk does."""
    with (root / "timerwheel").open("r+b") as file:
        file.truncate(timer.WHEEL_FILE_SIZE - timer.SLOT_SIZE)


def short_log(root):
    """Cuts the first file of the timer log."""
    with (root / PARTS[2]).open("r+b") as file:
        file.truncate(500)


def grown_log(root):
    """Extends the first file of the timer log, as a program with another file size does."""
    with (root / PARTS[2]).open("r+b") as file:
        file.truncate(4096)


FAULTS = {
    "log file too short": (short_log, "timer-log-size"),
    "log file too long": (grown_log, "timer-log-size"),
    "wheel too short": (short_wheel, "timer-wheel-size"),
    "log file gone": (lost_log, "timer-bad-slot"),
    "older log file gone": (lambda root: (root / PARTS[2]).unlink(), "timer-missing-unit"),
    "all log files gone": (lambda root: shutil.rmtree(root / "timerlog"), "timer-missing-unit"),
    "wheel and log gone": (lost_timer, "timer-missing-unit"),
    "unit of another message": (
        lambda root: patch(root / PARTS[2], timer.LOG_UNIT_SIZE + 28, (777).to_bytes(8, "big")),
        "timer-dangling-unit",
    ),
    "chain in a circle": (
        lambda root: patch(root / PARTS[2], timer.LOG_UNIT_SIZE * 4 + 4, (1 << 40).to_bytes(8, "big")),
        "timer-bad-chain",
    ),
    "checkpoint ahead": (lambda root: patch(root / PARTS[1], 16, (10**6).to_bytes(8, "big")), "timer-checkpoint-ahead"),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_the_broker_s_own_files_come_back_and_the_fault_too(fault, tmp_path):
    root = copy_store(NAME, tmp_path)
    whole = [(root / part).read_bytes() for part in PARTS]
    harm, code = FAULTS[fault]
    harm(root)
    before = tree_digest(root)
    dry = run(RUNBOOKS["RB-17"], root, Request(config=CONFIG))
    assert any(code in fact for fact in dry.step("detect").evidence)
    assert dry.step("apply").status == "skipped"
    assert tree_digest(root) == before
    found = run(RUNBOOKS["RB-17"], root, Request(apply=True, backup_acknowledged=True, config=CONFIG))
    assert found.repaired, found.markdown()
    assert [(root / part).read_bytes() == old for part, old in zip(PARTS, whole, strict=True)] == [True] * len(PARTS)
    undo(root)
    assert tree_digest(root) == before


def test_each_waiting_message_without_a_unit_is_counted(tmp_path):
    root = copy_store(NAME, tmp_path)
    waiting = 25 - 3 - 6  # units of both files, less those delivered, less those of the second file
    (root / PARTS[2]).unlink()
    with mqtool.open(root) as store:
        (found,) = verify(store).findings
    assert (found.code, found.evidence.split()[0]) == ("timer-missing-unit", str(waiting))


def test_the_precision_of_the_wheel_is_read_from_its_slots(tmp_path):
    root = copy_store(NAME, tmp_path)
    with mqtool.open(root, {**shape_keys(CONFIG), "timerPrecisionMs": "100"}) as store:
        rebuild_timer(store, tmp_path / "made")
    shutil.rmtree(root / "timerlog")
    shutil.copytree(tmp_path / "made", root, dirs_exist_ok=True)
    read_to = timer.parse_checkpoint((root / PARTS[1]).read_bytes()).last_read_time_ms
    times = np.frombuffer((root / "timerwheel").read_bytes(), timer.SLOT.dtype)["time"].astype(np.int64)
    waiting, delivered = int((times * 100 > read_to).sum()), int(((times > 0) & (times * 100 <= read_to)).sum())
    assert waiting > 0
    assert delivered > 0
    for config in (None, {"timerPrecisionMs": "100"}):
        with mqtool.open(root, config) as store:
            found = verify(store)
        (detail,) = (check.detail for check in found.checks if check.area == "timer")
        assert (found.findings, detail) == ((), f"25 timer log unit(s), {waiting} slot(s) waiting")


@pytest.mark.slow
def test_after_a_cut_the_timer_leads_to_nothing_that_is_gone(tmp_path):
    root = copy_store(NAME, tmp_path)
    with mqtool.open(root) as store:
        delivered = [one for one in store.messages(topics=["Timer"]) if "TIMER_DEQUEUE_MS" in one.properties]
        parked = list(store.messages(topics=["rmq_sys_wheel_timer"]))
    at = delivered[0].physical_offset
    kept = [one for one in parked if one.physical_offset < at]
    assert (len(delivered), len(kept) < len(parked)) == (3, True)
    apply(make_plan(root, Truncate(at), config=CONFIG), backup_acknowledged=True)
    discard_undo(root)
    found = run(RUNBOOKS["RB-17"], root, Request(apply=True, backup_acknowledged=True, config=CONFIG))
    assert found.repaired, found.markdown()
    checkpoint = timer.parse_checkpoint((root / PARTS[1]).read_bytes())
    assert checkpoint.last_timer_queue_offset == len(kept)
    assert checkpoint.last_read_time_ms == min(int(one.properties["TIMER_OUT_MS"]) for one in delivered)
    assert any("3 message(s) were due earlier" in fact for fact in found.step("plan").evidence)
    with mqtool.open(root) as store:
        assert verify(store).findings == ()


def test_a_torn_end_of_the_log_is_cut_first(tmp_path):
    root = copy_store(NAME, tmp_path)
    short_wheel(root)
    with mqtool.open(root) as store:
        end = store.commit_log.max_offset
    patch(root / "commitlog" / "00000000000000000000", end, bytes(range(1, 200)))
    found = run(RUNBOOKS["RB-17"], root, Request(config=CONFIG))
    assert "truncate" in found.step("plan").summary
    assert "run it again" in found.step("plan").summary


def test_snapshots_of_the_wheel_go_for_a_broker_would_load_them(tmp_path):
    root = copy_store(NAME, tmp_path)
    for name in ("timerwheel.1500", "timerwheel.tmp"):
        (root / name).write_bytes(b"old")
    plan = make_plan(root, RebuildTimer(), config=CONFIG)
    assert [(step.action, step.path) for step in plan.steps] == [("set-aside", "timerwheel.1500")]


def test_a_store_that_never_had_a_timer_gets_none(tmp_path):
    with pytest.raises(UsageError, match="there is no timer"):
        make_plan(copy_store("orders-4.9.7", tmp_path), RebuildTimer())


def test_a_timer_in_rocksdb_is_refused(tmp_path):
    with pytest.raises(UnsupportedFormatError, match="timer in RocksDB"):
        make_plan(copy_store(NAME, tmp_path), RebuildTimer(), config={"timerRocksDBEnable": "true"})


def test_a_timer_is_not_rebuilt_next_to_a_database_that_may_have_it(tmp_path):
    root = copy_store(NAME, tmp_path)
    (root / "rocksdbstore").mkdir(exist_ok=True)
    (root / "rocksdbstore" / "000007.sst").write_bytes(b"x")
    with pytest.raises(UnsupportedFormatError, match="rocksdbstore: has data, which may be timers; give the broker"):
        make_plan(root, RebuildTimer())
    assert make_plan(root, RebuildTimer(), config={"timerRocksDBEnable": "false"}).changes


@pytest.mark.slow
def test_the_command_plans_it_and_findings_name_it(tmp_path, capsysbinary):
    root = copy_store(NAME, tmp_path)
    shutil.rmtree(root / "timerlog")
    assert cli(["verify", str(root), "--format", "json"]) == 1
    findings = tmp_path / "findings.json"
    findings.write_bytes(capsysbinary.readouterr().out)
    assert b"mqtool plan rebuild timer" in findings.read_bytes()
    plans = [tmp_path / "plan.json", tmp_path / "same.json"]
    assert cli(["plan", "rebuild", "timer", str(root), "-o", str(plans[0])]) == 0
    assert cli(["plan", "repair", str(root), "--findings", str(findings), "-o", str(plans[1])]) == 0
    named, found = (json.loads(path.read_bytes()) for path in plans)
    assert found["steps"] == named["steps"]
    assert [step["path"] for step in named["steps"]] == ["config/timercheck", PARTS[2], "timerwheel"]
    assert any("mappedFileSizeTimerLog" in note for note in named["notes"])
