"""Recovery begins at one segment, whoever asks: explain-start, the engine, a crashed store that is read, verify."""

import itertools
import json
import os
from pathlib import Path

import pytest
from msgspec.structs import replace

import mqtool
from mqtool.engine.start.detect import options_for
from mqtool.engine.store import open_store
from mqtool.formats import checkpoint
from mqtool.formats.checkpoint import Checkpoint
from mqtool.formats.release import MEASURED
from mqtool.records.scan_start import scan_start
from mqtool.recovery import predict
from mqtool.store import version
from mqtool.store.config.broker_config import BrokerConfig
from mqtool.store.config.rules import recovery_rules
from mqtool.store.version import Version
from mqtool.verify.survey import recovery_plan, survey
from tests.support.damage import CASES, damage_answers, damage_case
from tests.support.stores import copy_tree
from tests.support.tables import in_parts
from tests.support.tiers import some
from tests.unit.recovery.stores import SEGMENT, StoreWriter, patch

FIRST = 1_700_000_000_000
SEGMENTS = 13
RECORDS = 3
"""Records a segment."""
OLD, NEW = FIRST + 5 * 10_000, FIRST + 11 * 10_000
"""When the first records of segments 5 and 11 were stored."""
CHECKPOINTS = {
    "none": Checkpoint(),
    "old": Checkpoint(OLD, OLD, OLD),
    "just flushed": Checkpoint(NEW, NEW, NEW),
    "flushed 3 s later": Checkpoint(NEW + 3000, NEW + 3000, NEW),
}


def store(root: Path, line: str | None, times: Checkpoint, *, clean: bool) -> Path:
    """A store of 13 segments and one that is allocated ahead, with what reveals the release line."""
    writer = StoreWriter(root)
    for number in range(SEGMENTS * RECORDS):
        stored = FIRST + number // RECORDS * 10_000
        writer.put(bytes(SEGMENT // RECORDS - 150), store_timestamp=stored, born_timestamp=stored)
    writer.queue()
    writer.segment(SEGMENTS).write_bytes(bytes(SEGMENT))
    (root / "config").mkdir()
    (root / "config" / "delayOffset.json").write_text("{}")
    if line == "4.9":
        (root / "config" / "topics.json").write_text(json.dumps({"dataVersion": {"counter": 1, "timestamp": 1}}))
    if line == "5":
        (root / "abort.backup").touch()
        (root / "timerwheel").touch()
    if line == "5.1":
        times = replace(times, confirm_physical_offset=1)
    if line == "5.4":
        (root / "rocksdbstore").mkdir()
    (root / "checkpoint").write_bytes(checkpoint.build(times))
    if not clean:
        (root / "abort").touch()
    return root


def answers(root: Path, copy: Path) -> dict[str, int | None]:
    """Physical offset of the segment from which each of the four begins."""
    plan = predict(root, whole_broker=False, read_log=False).plan
    with mqtool.open(root) as opened:
        seen, found = opened.recovery_start, recovery_plan(survey(opened), opened).scan_start
    with open_store(copy, options_for(copy), background=False) as engine:
        recovered = engine.recovered.scanned_from
    assert plan is not None
    return {"explain-start": plan.scan_from, "engine": recovered, "reading": seen, "verify": found}


def expected(line: str | None, times: Checkpoint, *, clean: bool) -> int:
    """The segment by the rules of 4.9.7 and 5.5.0, read from their sources; the last of 14 is empty."""
    last = SEGMENTS
    if line == "4.9":
        if clean:
            return last - 2
        limit = min(times.physic_msg_timestamp, times.logics_msg_timestamp) - 3000
        return max((number for number in range(SEGMENTS) if FIRST + number * 10_000 <= limit), default=0)
    if clean:
        return last - 1
    flushed = (number for number in range(SEGMENTS) if FIRST + number * 10_000 <= times.logics_msg_timestamp)
    return max(last - 9, *flushed, 0)


@pytest.mark.slow
@pytest.mark.parametrize("clean", [True, False], ids=["clean", "crash"])
@pytest.mark.parametrize(
    ("line", "times"), [(None, "none"), *itertools.product(["4.9", "5", "5.1", "5.4"], CHECKPOINTS)]
)
def test_all_begin_at_the_segment_of_the_brokers_rule(tmp_path, line, times, clean):
    root = store(tmp_path / "store", line, CHECKPOINTS[times], clean=clean)
    with mqtool.open(root) as opened:
        assert opened.version.line == line
    segment = expected(line, CHECKPOINTS[times], clean=clean) * SEGMENT
    after_crash = None if clean else segment
    assert answers(root, copy_tree(root, tmp_path / "copy")) == {
        "explain-start": segment,
        "engine": segment,
        "reading": after_crash,
        "verify": after_crash,
    }


@pytest.mark.parametrize(("line", "segment"), [("4.9", 10), ("5", 9)])
def test_only_5_5_checks_the_body_of_the_first_record(tmp_path, line, segment):
    root = store(tmp_path / "store", line, Checkpoint(*[FIRST + 10 * 10_000 + 3000] * 3), clean=False)
    patch(root / "commitlog" / f"{10 * SEGMENT:020d}", 200, b"\x01")
    found = answers(root, copy_tree(root, tmp_path / "copy"))
    assert set(found.values()) == {segment * SEGMENT}


STARTED = sorted({name for release in ("4.9.7", "5.5.0") for name in damage_answers(release)})
RECORDED = [
    name
    for name in STARTED
    if name.endswith("-crash") and CASES[name].kind.startswith(("checkpoint", "none", "cq-behind", "tail", "segment"))
]


@pytest.mark.slow
@in_parts("name", RECORDED, size=16)
def test_a_recorded_crash_is_read_from_where_its_start_scans(tmp_path, name):
    root = damage_case(name, tmp_path)
    outcome = predict(root, read_log=False)
    if outcome.plan is None or outcome.plan.scan_from is None:
        assert not outcome.runs
        return
    with mqtool.open(root) as opened:
        seen, found = opened.recovery_start, recovery_plan(survey(opened), opened).scan_start
    assert (seen, found) == (outcome.plan.scan_from, outcome.plan.scan_from)


@pytest.mark.long
@in_parts("name", some(4, STARTED), size=16)
def test_every_recorded_store_is_read_from_where_a_start_scans_whatever_its_release(tmp_path, monkeypatch, name):
    root = damage_case(name, tmp_path)
    if not (root / "commitlog").is_dir():
        return  # there is nothing to scan
    is_clean = not os.path.lexists(root / "abort")
    decides = CASES[name].kind.startswith(("abort", "checkpoint", "none", "segment"))
    for line in (None, "4.9", "5", "5.1", "5.5") if decides else ("4.9", "5.1"):
        monkeypatch.setattr(version, "detect", lambda *_, line=line: Version(line, "the test"))
        outcome = predict(root, read_log=False)
        with mqtool.open(root) as opened:
            seen, plan = opened.recovery_start, recovery_plan(survey(opened), opened)
        if outcome.plan is None or outcome.plan.scan_from is None or plan is None:
            assert not outcome.runs
            continue
        after_crash = None if is_clean else outcome.plan.scan_from
        assert (seen, plan.scan_start) == (after_crash, after_crash), line


@pytest.mark.parametrize("line", [None, "4.9", "5", "5.1", "5.4"])
def test_all_index_tags_as_the_release_does_whose_start_is_assumed(tmp_path, line):
    root = store(tmp_path / "store", line, CHECKPOINTS["none"], clean=True)
    with mqtool.open(root) as opened:
        assert opened.version.line == line
        found = {opened.dispatch_rules.index_tags, survey(opened).rules.index_tags, opened.version.release >= (5, 4)}
    assert found == {line != "4.9"}


@pytest.mark.parametrize("release", MEASURED)
def test_a_log_without_segments_has_no_start(release):
    rules = recovery_rules(BrokerConfig(), release)
    with pytest.raises(ValueError, match="without segments"):
        scan_start([], SEGMENT, Checkpoint(), rules, clean_stop=True, queues_end=-1)
