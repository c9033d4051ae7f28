"""What is wrong with whole files and directories: a file in a directory's place, a queue that is gone, swapped names."""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import mqtool
from mqtool.recovery import predict
from mqtool.repair import SetAside, apply, discard_undo, make_plan
from mqtool.repair.from_findings import changes_of
from mqtool.repair.runbooks import RUNBOOKS, Request, run
from mqtool.verify import Severity, State, Verification, finding_collector, services, verify
from tests.support.builder import StoreBuilder
from tests.support.damage import held_lock
from tests.support.stores import copy_store, store_fixture


@pytest.fixture
def root(tmp_path) -> Path:
    builder = StoreBuilder(slots=20, entries=40)
    for number in range(120):
        builder.put(b"body %d" % number, topic=("Orders", "Audit")[number % 2], keys=f"k{number}", step=500)
    return builder.write(tmp_path / "store")


@pytest.fixture
def live(root) -> Iterator[Path]:
    (root / "lock").touch()
    with held_lock(root / "lock"):
        yield root


def verified(root: Path, **config: str) -> Verification:
    with mqtool.open(root, {"maxHashSlotNum": "20", "maxIndexNum": "40", **config}) as store:
        return verify(store)


def checked(root: Path) -> Verification:
    with mqtool.open(root) as store:
        return verify(store)


def codes(found: Verification) -> list[str]:
    return sorted(one.code for one in found.findings)


def replaced_by_file(directory: Path) -> Path:
    shutil.rmtree(directory)
    directory.write_bytes(b"not a directory\n")
    return directory


@pytest.mark.parametrize("release", ["4.9", "5.5"])
def test_a_file_in_the_place_of_all_queues_serves_nothing(release, root):
    replaced_by_file(root / "consumequeue")
    outcome = predict(root, release)
    assert outcome.runs
    assert outcome.lost == {"Audit/0": ((0, 59),), "Orders/0": ((0, 59),)}
    assert {(queue.min_offset, queue.max_offset) for queue in outcome.queues.values()} == {(0, 0)}
    assert any("consumequeue is not a directory" in words for words in outcome.accepted)


def test_a_file_in_the_place_of_all_queues_is_one_finding_and_repaired(root):
    before = {path: path.read_bytes() for path in (root / "consumequeue").rglob("0*") if path.is_file()}
    replaced_by_file(root / "consumequeue")
    found = verified(root)
    assert codes(found) == ["queue-not-directory"]
    assert "120 message(s)" in found.findings[0].evidence
    with mqtool.open(root) as store:
        first = changes_of(store, found.findings)
    assert first.changes == (SetAside(("consumequeue",)),)
    assert first.needs_another_run
    apply(make_plan(root, first.changes), backup_acknowledged=True)
    discard_undo(root)
    with mqtool.open(root) as store:
        second = changes_of(store, verify(store).findings)
    apply(make_plan(root, second.changes, config={"mappedFileSizeConsumeQueue": "1000"}), backup_acknowledged=True)
    discard_undo(root)
    assert {path: path.read_bytes() for path in before} == before
    assert codes(verified(root)) == []


def test_the_runbook_for_lost_queues_sees_a_file_in_their_place(root):
    replaced_by_file(root / "consumequeue")
    protocol = run(RUNBOOKS["RB-03"], root, Request(apply=True, backup_acknowledged=True))
    assert protocol.present
    assert not (root / "consumequeue").exists()
    assert not protocol.repaired  # the queues are missing now, which a second run repairs
    discard_undo(root)
    again = run(RUNBOOKS["RB-03"], root, Request(apply=True, backup_acknowledged=True))
    assert again.repaired
    assert codes(verified(root)) == []


def test_a_file_in_the_place_of_the_index_is_one_finding(root):
    replaced_by_file(root / "index")
    assert codes(verified(root)) == ["index-not-directory"]


def test_a_file_in_the_place_of_the_log_is_found(root):
    replaced_by_file(root / "commitlog")
    assert "log-not-directory" in codes(verified(root))


def test_a_healthy_live_store_is_clean(live):
    assert codes(verified(live)) == []


@pytest.mark.parametrize("part", ["Orders", "Orders/0"])
def test_a_queue_that_is_missing_on_a_live_store_is_found(part, live):
    shutil.rmtree(live / "consumequeue" / part)
    found = verified(live)
    assert codes(found) == ["queue-missing"]
    assert found.state is State.CORRUPT
    assert run(RUNBOOKS["RB-03"], live).present


def test_a_queue_directory_without_files_on_a_live_store_is_found(live):
    for path in (live / "consumequeue" / "Orders" / "0").iterdir():
        path.unlink()
    assert codes(verified(live)) == ["queue-missing-units"]


def test_all_queues_missing_on_a_live_store_are_found_by_the_checkpoint(live):
    shutil.rmtree(live / "consumequeue")
    assert codes(verified(live)) == ["queue-missing"] * 2


def test_queues_that_may_not_be_dispatched_yet_are_unknown_on_a_live_store(live):
    shutil.rmtree(live / "consumequeue")
    (live / "checkpoint").write_bytes(bytes(4096))
    found = verified(live)
    assert "queue-missing" not in codes(found)
    check = next(one for one in found.checks if one.area == "consumequeue")
    assert check.state is State.UNKNOWN
    assert "2 queue(s)" in check.detail


def test_the_end_of_a_queue_may_lag_on_a_live_store(live):
    last = max((live / "consumequeue" / "Audit" / "0").iterdir())
    data = bytearray(last.read_bytes())
    used = len(data.rstrip(b"\0")) // 20 * 20
    data[used : used + 20] = bytes(20)
    last.write_bytes(data)
    assert codes(verified(live)) == []


@pytest.mark.slow
def test_swapped_names_of_index_files_are_found_and_rebuilt(tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    files = sorted((root / "index").iterdir())
    before = {path.read_bytes() for path in files}
    first, second = files[1], files[3]
    first.rename(root / "aside")
    second.rename(first)
    (root / "aside").rename(second)
    with mqtool.open(root, store_fixture("orders-5.5.0").config) as store:
        found = verify(store)
        changes = changes_of(store, found.findings).changes
    assert set(codes(found)) == {"index-order"}
    apply(make_plan(root, changes), backup_acknowledged=True)
    with mqtool.open(root) as store:
        assert codes(verify(store)) == []
    assert {path.read_bytes() for path in (root / "index").iterdir()} == before


def test_the_end_of_a_queue_may_not_lag_behind_records_that_are_dispatched(live):
    """Dispatch follows the log: Orders has the record before the last one of Audit."""
    last = max((live / "consumequeue" / "Orders" / "0").iterdir())
    data = bytearray(last.read_bytes())
    used = len(data.rstrip(b"\0")) // 20 * 20
    data[used : used + 20] = bytes(20)
    last.write_bytes(data)
    (found,) = verified(live).findings
    assert (found.code, found.topic, found.position) == ("queue-missing-units", "Orders", used)


@pytest.mark.parametrize("sparse", [True, False])
def test_a_queue_file_of_zeros_between_two_others_is_a_hole(sparse, tmp_path):
    builder = StoreBuilder(slots=20, entries=400, queue_file_units=50)
    for number in range(150):
        builder.put(b"body %d" % number, keys=f"k{number}")
    root = builder.write(tmp_path / "store")
    path = root / "consumequeue" / "Topic" / "0" / f"{1000:020}"
    path.write_bytes(b"" if sparse else bytes(1000))
    os.truncate(path, 1000)
    (found,) = verified(root, maxIndexNum="400").findings
    assert (found.code, found.file, found.position) == ("queue-hole", f"consumequeue/Topic/0/{1000:020}", 0)
    assert "50 unit(s) of zeros; 50 of their messages are in the CommitLog" in found.evidence


def test_two_directories_of_the_log_with_the_same_segment_are_reported(tmp_path):
    builder = StoreBuilder(segment_size=4096)
    while len(builder.segments) < 3:
        builder.put(b"x" * 500, keys=f"k{len(builder.puts)}")
    root = builder.write(tmp_path / "store")
    name, other = f"{4096:020}", tmp_path / "other" / "commitlog"
    other.mkdir(parents=True)
    shutil.copy(root / "commitlog" / name, other / name)
    config = {"storePathCommitLog": f"{root / 'commitlog'},{other}", "mappedFileSizeCommitLog": "4096"}
    with mqtool.open(root, {"maxHashSlotNum": "50", "maxIndexNum": "200", **config}) as store:
        (found,) = verify(store).findings
    assert (found.code, found.physical_offset) == ("log-segment-overlap", 4096)
    assert found.evidence == f"{other / name} ends at 8192"


def test_a_directory_in_the_index_that_no_broker_takes_for_a_file_is_a_note(root):
    (root / "index" / "notes").mkdir()
    (found,) = verified(root).findings
    assert (found.code, found.severity, found.file) == ("index-stray-file", Severity.NOTE, "index/notes")


def test_of_compactions_only_those_with_files_were_not_finished(tmp_path):
    root = copy_store("compaction-5.5.0", tmp_path)
    work = next(path for path in (root / "compaction/compactionLog").glob("*/*")) / "compacting"
    work.mkdir()
    assert codes(checked(root)) == []
    (work / f"{0:020}").touch()
    assert codes(checked(root)) == ["compaction-leftover"]


def test_of_a_code_so_many_findings_are_kept_and_the_others_counted(root, monkeypatch):
    monkeypatch.setattr(finding_collector, "MAX_OF_A_CODE", 3)
    path = min((root / "consumequeue" / "Orders" / "0").iterdir())
    data = bytearray(path.read_bytes())
    for number in range(0, 20, 2):
        data[20 * number + 19] ^= 1  # of the tags code
    path.write_bytes(data)
    found = verified(root)
    assert codes(found) == ["queue-wrong-tags"] * 4
    assert [(one.position, one.file[-1:]) for one in found.findings if one.file] == [(0, "0"), (40, "0"), (80, "0")]
    assert [one.evidence for one in found.findings if not one.file] == ["7 more of this code"]


def test_messages_that_wait_beyond_what_is_read_are_unknown(tmp_path, monkeypatch):
    monkeypatch.setattr(services, "MAX_PENDING", 3)
    found = checked(copy_store("orders-5.5.0", tmp_path))
    (check,) = [one for one in found.checks if one.state is State.UNKNOWN]
    assert check.area == "commitlog"
    assert re.fullmatch(r"\S+ queue \d+ from offset \d+ on was not read", check.detail)
