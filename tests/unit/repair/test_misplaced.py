"""CommitLog files under a wrong name are recognised by their records, renamed, and never deleted with the only copy."""

import shutil
from pathlib import Path

import pytest

import mqtool
from mqtool.errors import RefusedError
from mqtool.formats import commit_log
from mqtool.repair import RenameSegments, SetAside, apply, discard_undo, make_plan, undo
from mqtool.repair.from_findings import changes_of
from mqtool.repair.runbooks import RUNBOOKS, Request, run
from mqtool.repair.salvage import salvage
from mqtool.verify import verify
from tests.support.builder import StoreBuilder
from tests.support.stores import copy_store, tree_digest

SIZE = 1 << 14


@pytest.fixture
def root(tmp_path) -> Path:
    builder = StoreBuilder(segment_size=SIZE, queue_file_units=200, entries=600)
    for number in range(500):
        builder.put(b"body %d" % number, topic="Orders", queue_id=number % 3, keys=f"k{number}")
    assert len(builder.segments) > 3
    root = builder.write(tmp_path / "store")
    (root / "lock").write_bytes(b"lock")
    return root


def segment(root: Path, number: int) -> Path:
    return root / "commitlog" / f"{number * SIZE:020d}"


def contents(root: Path) -> dict[str, tuple[int, bytes]]:
    """Every file with its time and bytes."""
    files = [path for path in root.rglob("*") if path.is_file()]
    return {path.relative_to(root).as_posix(): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def swap(first: Path, second: Path) -> None:
    aside = first.with_name("aside")
    first.rename(aside)
    second.rename(first)
    aside.rename(second)


def last(root: Path) -> int:
    return len(list((root / "commitlog").iterdir())) - 1


MISNAMED = {
    "suffix": lambda root: segment(root, 1).rename(segment(root, 1).with_suffix(".old")),
    "first": lambda root: segment(root, 0).rename(root / "commitlog" / "backup"),
    "last": lambda root: segment(root, last(root)).rename(root / "commitlog" / "copy"),
    "short number": lambda root: segment(root, 1).rename(root / "commitlog" / f"{SIZE}"),
    "odd number": lambda root: segment(root, 1).rename(root / "commitlog" / f"{SIZE + 100:020d}"),
    "behind the end": lambda root: segment(root, 1).rename(segment(root, 9)),
    "swapped": lambda root: swap(segment(root, 0), segment(root, 1)),
    "in the root": lambda root: segment(root, 1).rename(root / segment(root, 1).name),
    "last in the root": lambda root: segment(root, last(root)).rename(root / segment(root, last(root)).name),
    "in the root under another name": lambda root: segment(root, 0).rename(root / "moved.bak"),
}


@pytest.mark.slow
@pytest.mark.parametrize("misname", MISNAMED.values(), ids=MISNAMED)
def test_a_misnamed_segment_is_renamed_and_no_record_is_lost(misname, root):
    before = contents(root)
    misname(root)
    with mqtool.open(root) as store:
        found = verify(store)
        assert {one.code for one in found.findings} == {"log-segment-name"}
        assert found.losses.messages == 0
        proposal = changes_of(store, found.findings)
    assert proposal.remaining == ()
    assert [type(change) for change in proposal.changes] == [RenameSegments]
    apply(make_plan(root, proposal.changes), backup_acknowledged=True)
    discard_undo(root)
    assert contents(root) == before


def test_the_rename_is_undone_byte_for_byte(root):
    MISNAMED["swapped"](root)
    MISNAMED["last"](root)
    before = tree_digest(root)
    with mqtool.open(root) as store:
        changes = changes_of(store, verify(store).findings).changes
    apply(make_plan(root, changes), backup_acknowledged=True)
    with mqtool.open(root) as store:
        assert verify(store).findings == ()
    undo(root)
    assert tree_digest(root) == before


def test_the_runbook_renames(root):
    before = contents(root)
    MISNAMED["suffix"](root)
    book = RUNBOOKS["RB-01"]
    protocol = run(book, root, Request(apply=True, backup_acknowledged=True))
    assert protocol.repaired
    discard_undo(root)
    assert contents(root) == before


def test_a_runbook_that_needs_another_run_has_not_repaired_anything_yet(root):
    before = contents(root)
    MISNAMED["suffix"](root)
    (root / "commitlog" / "core.1234").write_text("stray")
    request = Request(apply=True, backup_acknowledged=True)
    first = run(RUNBOOKS["RB-01"], root, request)
    assert (first.applied, first.repaired, first.step("verify").status) == (True, False, "failed")
    assert first.step("verify").summary.endswith("is still present; run the runbook again after mqtool discard-undo")
    assert first.next_steps == (f"mqtool verify {root}",)
    discard_undo(root)
    assert run(RUNBOOKS["RB-01"], root, request).repaired
    discard_undo(root)
    assert contents(root) == before


def test_salvage_takes_records_from_a_misnamed_segment(root, tmp_path):
    MISNAMED["suffix"](root)
    assert salvage(root, tmp_path / "new").records == 500


@pytest.mark.parametrize("place", ["commitlog/copy", "segment.old"])
@pytest.mark.parametrize("harm", ["zeros", "garbage", "no record"])
def test_salvage_takes_what_a_segment_lacks_from_a_file_that_belongs_in_its_place(harm, place, root, tmp_path):
    named, stray = segment(root, 1), root / place
    shutil.copyfile(named, stray)
    data = bytearray(named.read_bytes())
    start, end = {"zeros": (5000, 9000), "garbage": (0, 3000), "no record": (0, SIZE)}[harm]
    data[start:end] = (b"\xa5" if harm == "garbage" else b"\0") * (end - start)
    named.write_bytes(data)
    before = tree_digest(root)
    found = salvage(root, tmp_path / "new")
    assert found.records == 500
    assert found.lost == 0
    assert [note for note in found.notes if f"record(s) are from {stray}: " in note]
    assert tree_digest(root) == before


def test_salvage_believes_the_file_in_the_right_place(root, tmp_path):
    named, stray = segment(root, 1), root / "commitlog" / "copy"
    shutil.copyfile(named, stray)
    with mqtool.open(root) as store:
        kept = [one.born_timestamp for one in store.messages()]
        offset = next(one.physical_offset for one in store.messages() if one.physical_offset >= SIZE)
    born = commit_log.field_offset("born_timestamp")
    data = bytearray(stray.read_bytes())
    data[offset - SIZE + born + 7] ^= 1  # no checksum covers it
    stray.write_bytes(data)
    found = salvage(root, tmp_path / "new")
    assert (found.records, found.conflicts) == (500, 0)
    with mqtool.open(tmp_path / "new") as store:
        assert [one.born_timestamp for one in store.messages()] == kept


def test_a_file_of_another_log_in_the_root_is_no_segment(root):
    (root / "commitlog.tar").write_bytes(b"\1" * SIZE)
    with mqtool.open(root) as store:
        assert (store.layout.misplaced, store.layout.displaced) == ((), ())
        assert verify(store).findings == ()


def test_a_file_with_the_only_copy_of_records_is_not_set_aside(root):
    stray = MISNAMED["suffix"](root)
    before = tree_digest(root)
    with pytest.raises(RefusedError, match="this change loses 142 messages that are still in the store"):
        make_plan(root, SetAside((stray.relative_to(root).as_posix(),)))
    assert tree_digest(root) == before


def test_finalize_keeps_a_file_that_has_become_the_only_copy(root):
    shutil.copyfile(segment(root, 1), root / "commitlog" / "copy")
    apply(make_plan(root, SetAside(("commitlog/copy",))), backup_acknowledged=True)
    lost = shutil.move(segment(root, 1), root.parent)
    for dry_run in (True, False):
        with pytest.raises(RefusedError, match=r"exist nowhere else.*mqtool undo"):
            discard_undo(root, dry_run=dry_run)
    shutil.move(lost, segment(root, 1))
    discard_undo(root)
    assert not (root / ".mqtool").exists()


def test_a_copy_of_a_segment_is_set_aside_and_deleted(root):
    before = contents(root)
    shutil.copyfile(segment(root, 1), root / "commitlog" / "copy")
    with mqtool.open(root) as store:
        found = verify(store)
        assert {one.code for one in found.findings} == {"log-stray-file"}
        changes = changes_of(store, found.findings).changes
    assert changes == (SetAside(("commitlog/copy",)),)
    apply(make_plan(root, changes), backup_acknowledged=True)
    discard_undo(root)
    assert contents(root) == before


def test_a_stray_with_records_that_differ_from_those_in_the_log_stays(root):
    shutil.copyfile(segment(root, 1), root / "commitlog" / "copy")
    data = bytearray(segment(root, 1).read_bytes())
    data[100] ^= 1
    segment(root, 1).write_bytes(data)
    with mqtool.open(root) as store:
        proposal = changes_of(store, [one for one in verify(store).findings if one.code == "log-stray-file"])
    assert proposal.changes == ()
    assert [one.code for one in proposal.remaining] == ["log-stray-file"]


def test_a_segment_whose_first_record_states_a_wrong_offset_keeps_its_name(root):
    data = bytearray(segment(root, 1).read_bytes())
    data[28:36] = (9 * SIZE).to_bytes(8, "big")
    segment(root, 1).write_bytes(data)
    with mqtool.open(root) as store:
        assert "log-segment-name" not in {one.code for one in verify(store).findings}


@pytest.mark.parametrize("content", ["zeros", "copy", "only copy"])
def test_a_segment_that_is_named_into_another_one_is_set_aside_unless_its_records_are_nowhere_else(content, root):
    path = segment(root, last(root)).with_name(f"{last(root) * SIZE + 1:020d}")
    path.write_bytes(bytes(SIZE) if content == "zeros" else segment(root, 1).read_bytes())
    if content == "only copy":
        segment(root, 1).unlink()
        segment(root, 2).rename(segment(root, 1))
    with mqtool.open(root) as store:
        proposal = changes_of(store, verify(store).findings)
    expected = SetAside((path.relative_to(root).as_posix(),))
    assert (expected in proposal.changes) is (content != "only copy")
    if content != "only copy":
        apply(make_plan(root, proposal.changes, must_repair=True), backup_acknowledged=True)
        with mqtool.open(root) as store:
            assert not verify(store).findings


@pytest.mark.parametrize("name", ["00000000000000200000", "00000000000000700000"], ids=["inside", "after"])
def test_a_misnamed_file_without_a_record_is_set_aside(name, tmp_path):
    """There is no offset at which `plan rename-segments` could put it."""
    root = copy_store("orders-5.5.0", tmp_path)
    intact = {path.name: path.read_bytes() for path in (root / "commitlog").iterdir()}
    (root / "commitlog" / name).write_bytes(bytes(131072))
    with mqtool.open(root) as store:
        found = verify(store).findings
        assert [(finding.code, finding.next_step) for finding in found] == [
            ("log-stray-file", f"mqtool runbook run RB-01 {root}")
        ]
        assert changes_of(store, found).changes == (SetAside((f"commitlog/{name}",)),)
    protocol = run(RUNBOOKS["RB-01"], root, Request(apply=True, backup_acknowledged=True))
    assert protocol.repaired, protocol.markdown()
    assert {path.name: path.read_bytes() for path in (root / "commitlog").iterdir()} == intact


def test_a_renamed_directory_of_queues_gives_no_topic(tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    (root / "consumequeue/Payments").rename(root / "consumequeue/Renamed")
    table = (root / "config/topics.json").read_bytes()
    with mqtool.open(root) as store:
        plan = make_plan(root, changes_of(store, verify(store).findings).changes)
    apply(plan, backup_acknowledged=True)
    assert (root / "config/topics.json").read_bytes() == table
    with mqtool.open(root) as store:
        assert verify(store).findings == ()
        assert [len(store.queue("Payments", number).units()) for number in range(4)] == [14, 30, 14, 44]
