"""What a change is refused for: by name, and nothing is changed."""

import contextlib
import errno
import hashlib
import json
import os
import shutil
import subprocess
import sys

import pytest

import mqtool
from mqtool.errors import (
    NotAStoreError,
    NothingToChangeError,
    RefusedError,
    StoreError,
    StoreLockedError,
    UnsupportedFormatError,
    UsageError,
)
from mqtool.repair import (
    Pad,
    Plan,
    RebuildIndex,
    RebuildMetadata,
    RebuildQueues,
    Redact,
    RenameSegments,
    SetAside,
    Trim,
    Truncate,
    Undelete,
    apply,
    discard_undo,
    make_plan,
    plan_executor,
    undo,
)
from mqtool.repair.files import RepairFiles, remove_tree
from mqtool.repair.gates import exclusive
from mqtool.repair.paths import HOME, inside
from mqtool.repair.recovering import ScratchFiles, _FixedClock, _named_as
from tests.support.builder import StoreBuilder
from tests.support.damage import held_lock
from tests.support.rocketmq import sparse_copy
from tests.support.stores import copy_store, tree_digest
from tests.unit.repair.faults import DyingFiles, FailingFiles, Killed

NAME = "rollover-5.5.0"

WRITER = """
import mmap, sys
mode, protection = sys.argv[2:]
with open(sys.argv[1], mode) as file:
    if protection:
        mapped = mmap.mmap(file.fileno(), 0, prot=eval(protection))
        file.close()
    print("open", flush=True)
    sys.stdin.read()
"""

READ_WRITE = "mmap.PROT_READ | mmap.PROT_WRITE"


@pytest.fixture
def tmp_path(in_memory):
    """Changes sync a great deal."""
    return in_memory


@pytest.fixture
def root(tmp_path):
    """A store without the queues of one topic."""
    path = copy_store(NAME, tmp_path)
    shutil.rmtree(path / "consumequeue" / "Roll")
    return path


@pytest.fixture
def plan(root):
    return make_plan(root, RebuildQueues(("Roll",)))


def check_refused(gate, action, root):
    """An action is refused for a gate and changes nothing."""
    before = tree_digest(root)
    with pytest.raises(RefusedError) as caught:
        action()
    assert caught.value.gate == gate, caught.value
    assert tree_digest(root) == before
    return caught.value


def carry_out(plan, **more):
    return apply(plan, backup_acknowledged=True, verify_after=False, **more)


def signed(plan, **changes):
    """The plan as JSON with other values and a digest that fits them: what an attacker would write."""
    return signed_text(json.loads(plan.to_json()) | changes)


def signed_text(document):
    """A document as the text of a plan, with a digest that fits."""
    del document["digest"]
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return json.dumps({**document, "digest": hashlib.sha256(text.encode()).hexdigest()})


def test_without_a_word_about_a_backup(plan, root):
    check_refused("backup", lambda: apply(plan), root)


def test_a_stale_plan_because_a_file_was_written_that_it_was_worked_out_from(plan, root):
    segment = min((root / "commitlog").iterdir())
    with segment.open("r+b") as file:
        file.seek(100)
        file.write(b"!")
    assert segment.name in str(check_refused("plan-stale", lambda: carry_out(plan), root))


def test_a_stale_plan_because_a_file_has_appeared_where_it_makes_one(plan, root):
    path = root / plan.steps[0].path
    path.parent.mkdir(parents=True)
    path.write_bytes(b"new")
    check_refused("plan-stale", lambda: carry_out(plan), root)


def test_a_stale_plan_because_a_file_that_it_replaces_is_gone(root):
    plan = make_plan(root, SetAside(("checkpoint",)))
    (root / "checkpoint").unlink()
    check_refused("plan-stale", lambda: carry_out(plan), root)


def test_an_edited_plan(plan, root):
    edited = plan.to_json().replace('"complete": true', '"complete": false')
    assert edited != plan.to_json()
    check_refused("plan-edited", lambda: Plan.from_json(edited), root)


def test_an_edited_plan_with_a_digest_that_fits(plan, root):
    steps = json.loads(plan.to_json())["steps"]
    steps[0]["after"]["sha256"] = "0" * 64
    forged = Plan.from_json(signed(plan, steps=steps))
    check_refused("plan-stale", lambda: carry_out(forged), root)


def test_a_plan_with_words_that_it_should_not_have(plan, root):
    check_refused("plan-edited", lambda: Plan.from_json(signed(plan, extra=1)), root)


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda document: document["steps"][0].update(before=None, after=None), "a step does nothing"),
        (lambda document: document["steps"].append(document["steps"][0]), "two steps affect the same file"),
        (
            lambda document: document["reads"][0].update(fingerprint=None),
            "a field is missing or has the wrong type: reads",
        ),
        (lambda document: document.update(inode="7"), "expected int, found '7'"),
        (lambda document: document.update(forecast=7), "wrong type"),
        (lambda document: document["changes"][0].update(verb="erase"), "expected one of rebuild-consumequeue, "),
        (lambda document: document["changes"][0].update(more=1), "more: found '1'"),
        (lambda document: document["changes"][0].update(more=["x"]), "Unexpected keyword argument 'more'"),
        (lambda document: document["changes"][0].update(topics=[1]), "topics: found '[1]'"),
        (lambda document: document["changes"][0].update(queue_id="0"), "queue_id: found '0'"),
        (lambda document: document["changes"][0].update(mode="bold"), "mode: found 'bold'"),
        (lambda document: document["changes"][0].pop("topics"), "digest differs"),
    ],
)
def test_a_plan_that_no_release_writes(edit, words, plan, root):
    document = json.loads(plan.to_json())
    edit(document)
    refused = check_refused(
        "plan-unreadable" if "digest" not in words else "plan-edited",
        lambda: Plan.from_json(signed_text(document)),
        root,
    )
    assert words in str(refused)


def test_a_plan_of_another_release(plan, root):
    check_refused("plan-version", lambda: Plan.from_json(signed(plan, schema_version=1)), root)


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", "null", "{", '"x"', "[" * 100_000, '{"schema": "mqtool.journal"}'],
    ids=["nothing", "empty", "list", "null", "torn", "text", "deep", "journal"],
)
def test_what_is_no_plan(text, root):
    check_refused("plan-unreadable", lambda: Plan.from_json(text), root)


def test_a_plan_for_another_store_with_the_same_name(plan, root):
    root.rename(root.with_name("was"))
    shutil.copytree(root.with_name("was"), root)
    check_refused("store", lambda: carry_out(plan), root)


def test_a_plan_for_a_store_that_is_gone(plan, root):
    root.rename(root.with_name("was"))
    check_refused("store", lambda: carry_out(plan), root.with_name("was"))


def test_a_store_in_use(plan, root):
    before = tree_digest(root)
    with held_lock(root / "lock"), pytest.raises(StoreLockedError):
        carry_out(plan)
    assert tree_digest(root) == before


@contextlib.contextmanager
def opened_elsewhere(path, mode, protection):
    """Another process has the file open or, with a protection, mapped and closed."""
    command = [sys.executable, "-c", WRITER, str(path), mode, protection]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"open\n"
        yield
        process.stdin.close()


@pytest.mark.parametrize("protection", ["", READ_WRITE], ids=["open", "mapped"])
def test_a_store_that_somebody_has_open_for_writing(protection, plan, root):
    with opened_elsewhere(root / "checkpoint", "r+b", protection):
        check_refused("nobody-writes", lambda: carry_out(plan), root)
        check_refused("nobody-writes", lambda: apply(plan, dry_run=True), root)


@pytest.mark.parametrize("protection", ["", "mmap.PROT_READ"], ids=["open", "mapped"])
def test_a_store_that_somebody_reads_is_changed(protection, plan, root):
    with opened_elsewhere(root / "checkpoint", "rb", protection):
        assert carry_out(plan).steps == plan.steps


def make_directory(lock):
    lock.unlink(missing_ok=True)
    lock.mkdir()


def make_link(lock):
    lock.unlink(missing_ok=True)
    lock.symlink_to(lock.parent / "checkpoint")


@pytest.mark.parametrize("harm", [make_directory, make_link])
def test_a_lock_that_is_no_file(harm, plan, root):
    harm(root / "lock")
    assert "expected a regular file" in str(check_refused("lock", lambda: carry_out(plan), root))


@pytest.mark.parametrize(("code", "gate"), [(errno.EACCES, "read-only"), (errno.ENOSPC, "space")])
def test_a_lock_that_cannot_be_taken(code, gate, plan, root, monkeypatch):
    def denied(_self):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("mqtool.repair.gates.StoreLock.take", denied)
    refused = check_refused(gate, lambda: carry_out(plan), root)
    assert f"the lock cannot be taken: {os.strerror(code)}" in str(refused)


def test_an_empty_lock_file_is_taken_on_a_full_disk(plan, root, monkeypatch):
    """Nothing is written into it, so that the gate `space` decides, and an undo frees space."""
    (root / "lock").write_bytes(b"")
    apply(plan, backup_acknowledged=True, verify_after=False)

    def full(*_arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("mqtool.engine.start.lock.os.pwrite", full)
    undo(root)
    assert (root / "lock").read_bytes() == b""


def test_a_file_that_is_not_what_was_planned_after_it_changed_places(plan, root):
    """As after a write of another process, or on a disk that does not keep what it is given."""

    class ForgetfulFiles(RepairFiles):
        def rename(self, path, target):
            super().rename(path, target)
            if target == root / plan.steps[-1].path:
                target.write_bytes(bytes(target.stat().st_size))

    refused = check_refused("result", lambda: carry_out(plan, files=ForgetfulFiles()), root)
    assert str(root / plan.steps[-1].path) in str(refused)
    assert not (root / HOME).exists()


def test_a_lock_file_that_was_not_there_stays_for_a_broker_that_has_opened_it(plan, root):
    lock, opened = root / "lock", []
    lock.unlink()
    before, time = tree_digest(root), root.stat().st_mtime_ns

    def starts(_done, _total):
        if not opened:
            opened.append(os.open(lock, os.O_RDWR | os.O_CREAT))

    apply(plan, backup_acknowledged=True, verify_after=False, on_progress=starts)
    assert os.path.samestat(os.fstat(opened[0]), lock.stat())
    undo(root)
    assert os.path.samestat(os.fstat(opened[0]), lock.stat())
    os.close(opened[0])
    assert root.stat().st_mtime_ns == time
    lock.unlink()
    os.utime(root, ns=(time, time))
    assert tree_digest(root) == before


def test_too_little_space(plan, root):
    class Full(DyingFiles):
        def free_bytes(self, path):
            return 0

    check_refused("space", lambda: carry_out(plan, files=Full()), root)


def test_a_directory_that_cannot_be_written_to(plan, root, monkeypatch):
    really = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: path != root / "consumequeue" and really(path, mode))
    check_refused("read-only", lambda: carry_out(plan), root)


def test_a_directory_on_another_file_system(plan, root, monkeypatch):
    really = type(root).stat

    def stat(path, **more):
        status = really(path, **more)
        return (
            os.stat_result([*status[:2], status.st_dev + 1, *status[3:]]) if path == root / "consumequeue" else status
        )

    monkeypatch.setattr(type(root), "stat", stat)
    check_refused("file-system", lambda: carry_out(plan), root)


def test_a_read_only_file_system(plan, root):
    before = tree_digest(root)
    with pytest.raises((OSError, StoreError)):
        carry_out(plan, files=FailingFiles(0, errno.EROFS))
    assert tree_digest(root) == before


def cut_in_the_middle(root):
    with mqtool.open(root) as store:
        messages = [message.physical_offset for message in store.messages()]
    return Truncate(messages[len(messages) // 2])


@pytest.mark.parametrize(
    ("change", "call"),
    [
        (lambda _: RebuildQueues(("Roll",)), "pwrite"),
        (lambda _: RebuildMetadata(("config/topics.json",)), "write"),
        (cut_in_the_middle, "pwrite"),
    ],
    ids=["queues", "table", "copy"],
)
def test_no_space_while_new_files_are_built(change, call, root, monkeypatch):
    def full(*_arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    requested = change(root)
    plan = make_plan(root, requested)
    before = tree_digest(root)
    with monkeypatch.context() as patch:
        patch.setattr(os, call, full)
        with pytest.raises(StoreError, match="cannot be written: No space left"):
            make_plan(root, requested)
        with pytest.raises((StoreError, OSError), match="No space left"):
            carry_out(plan)
    assert tree_digest(root) == before


@pytest.mark.parametrize("name", ["dledger-4.9.7", "dledger-5.5.0"])
def test_a_dledger_log(name, tmp_path):
    store = copy_store(name, tmp_path)
    for change in (RebuildQueues(), Truncate(5), SetAside(("checkpoint",))):
        with pytest.raises(UnsupportedFormatError, match="DLedger"):
            make_plan(store, change)


def test_queues_and_configuration_in_rocksdb(tmp_path):
    store = copy_store("rocksdb-cq-5.5.0", tmp_path)
    for change in (RebuildQueues(), Truncate(5), Trim(5), RebuildMetadata(), Undelete(("Orders",))):
        with pytest.raises(UnsupportedFormatError, match="RocksDB"):
            make_plan(store, change)


def test_a_log_outside_of_the_store(tmp_path, root):
    (root / "commitlog").rename(tmp_path / "elsewhere")
    config = {"storePathCommitLog": str(tmp_path / "elsewhere")}
    with pytest.raises(UnsupportedFormatError, match="outside"):
        make_plan(root, RebuildQueues(), config=config)


def test_what_is_no_store(tmp_path):
    with pytest.raises(NotAStoreError):
        make_plan(tmp_path, RebuildQueues())


def test_a_store_without_a_log(root):
    for path in (root / "commitlog").iterdir():
        path.unlink()
    with pytest.raises(StoreError, match="no segment"):
        make_plan(root, RebuildQueues())


def test_an_earlier_change_that_is_neither_finalized_nor_undone(plan, root):
    other = make_plan(root, RebuildQueues(("Roll",), 1))
    carry_out(plan)
    check_refused("quarantine", lambda: carry_out(other), root)
    check_refused("quarantine", lambda: make_plan(root, SetAside(("checkpoint",))), root)
    check_refused("quarantine", lambda: apply(plan, dry_run=True), root)


def test_carrying_out_what_was_carried_out_does_nothing(plan, root):
    carry_out(plan)
    before = tree_digest(root)
    assert carry_out(plan).already
    assert tree_digest(root) == before


def test_a_quarantine_without_a_journal(plan, root):
    (root / HOME / "quarantine" / "20260101T000000Z").mkdir(parents=True)
    check_refused("quarantine", lambda: carry_out(plan), root)
    check_refused("journal", lambda: undo(root), root)
    check_refused("journal", lambda: discard_undo(root), root)


def test_undo_of_a_store_that_is_not_there(tmp_path):
    with pytest.raises(NotAStoreError, match="no such directory"):
        undo(tmp_path / "nothing")


def test_undo_and_finalize_of_a_store_that_was_never_changed(root):
    check_refused("journal", lambda: undo(root), root)
    check_refused("journal", lambda: discard_undo(root), root)


def test_undo_after_somebody_wrote_to_the_store(plan, root):
    carry_out(plan)
    path = root / plan.steps[0].path
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    assert path.name in str(check_refused("written-since", lambda: undo(root), root))
    check_refused("written-since", lambda: undo(root, dry_run=True), root)
    discard_undo(root)
    assert not (root / HOME).exists()


def test_undo_with_an_old_file_missing(root):
    plan = make_plan(root, SetAside(("checkpoint",)))
    done = carry_out(plan)
    (done.quarantine / "checkpoint").unlink()
    check_refused("quarantine", lambda: undo(root), root)


@pytest.mark.parametrize("ending", [undo, discard_undo], ids=["undo", "discard-undo"])
def test_another_mqtool_that_ends_the_change_already(ending, plan, root):
    carry_out(plan)
    before = tree_digest(root)
    with exclusive(root / HOME), pytest.raises(StoreLockedError, match="another mqtool"):
        ending(root)
    assert tree_digest(root) == before


def test_finalize_may_run_beside_a_broker(plan, root):
    carry_out(plan)
    with held_lock(root / "lock"):
        with pytest.raises(StoreLockedError):
            undo(root)
        discard_undo(root)
    assert not (root / HOME).exists()


def test_finalize_of_what_was_not_finished(plan, root):
    with pytest.raises(Killed):
        carry_out(plan, files=DyingFiles(40))
    check_refused("journal", lambda: discard_undo(root), root)
    undo(root)


def test_apply_after_an_undo_was_begun(plan, root):
    before = tree_digest(root)
    carry_out(plan)
    with pytest.raises(Killed):
        undo(root, files=DyingFiles(5))
    check_refused("journal", lambda: carry_out(plan), root)
    undo(root)
    assert tree_digest(root) == before


def test_undo_after_finalize_was_begun(plan, root):
    carry_out(plan)
    with pytest.raises(Killed):
        discard_undo(root, files=DyingFiles(2))
    check_refused("journal", lambda: undo(root), root)
    discard_undo(root)


def test_a_journal_that_is_not_whole(plan, root):
    journal = carry_out(plan).journal
    whole = journal.read_bytes()
    lines = whole.splitlines(keepends=True)
    for broken in (
        whole[:-40] + b"\n",
        b"".join(lines[1:]),
        b"".join([lines[0], *lines[2:]]),
        whole.replace(b'"step": 0', b'"step": 1'),
        b"\0" * len(whole),
        b"garbage\n",
        lines[0][:40] + b"\r" + whole[40:],
    ):
        journal.write_bytes(broken)
        check_refused("journal", lambda: undo(root), root)
        check_refused("journal", lambda: discard_undo(root), root)
        with pytest.raises(RefusedError, match="journal"):
            carry_out(plan)
        assert journal.read_bytes() == broken


def test_a_directory_of_ours_without_a_journal_is_removed(root):
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    (root / HOME).mkdir()
    check_refused("journal", lambda: undo(root, dry_run=True), root)
    assert undo(root).files == 0
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before
    assert not (root / HOME).exists()


def test_a_journal_whose_last_line_has_no_end_counts_without_it(plan, root):
    before = tree_digest(root)
    journal = carry_out(plan).journal
    journal.write_bytes(journal.read_bytes()[:-5])
    assert not carry_out(plan).already
    journal.write_bytes(journal.read_bytes()[:-5])
    undo(root)
    assert tree_digest(root) == before


def test_a_journal_of_another_store(plan, root, tmp_path):
    carry_out(plan)
    other = shutil.copytree(root, tmp_path / "other")
    check_refused("store", lambda: undo(other), other)
    check_refused("store", lambda: discard_undo(other / HOME / "journal"), other)


def test_nothing_to_change(root):
    with pytest.raises(NothingToChangeError, match="nothing to change"):
        make_plan(root, RebuildQueues(("Exact",)))


@pytest.mark.parametrize(
    "change",
    [
        RebuildQueues(("Nobody",)),
        RebuildIndex("nothing"),
        RebuildMetadata(("config/nothing",)),
        Undelete(("Nobody",)),
        Truncate(0),
        Truncate(-5),
        Truncate(7),
        Truncate(1 << 62),
        Redact(()),
        Redact((7,)),
        Redact((1 << 62,)),
        Trim(5),
        SetAside(("nothing",)),
        SetAside(("commitlog",)),
        Pad(("checkpoint",)),
        Pad(("commitlog/00000000000000000000",)),
        Pad(("../x",)),
    ],
    ids=str,
)
def test_what_makes_no_sense(change, root):
    before = tree_digest(root)
    with pytest.raises((UsageError, RefusedError)):
        make_plan(root, change)
    assert tree_digest(root) == before


def test_a_batch_of_messages_in_one_body(tmp_path):
    store = copy_store("bcq-5.5.0", tmp_path)
    with mqtool.open(store) as opened:
        offset = next(message.physical_offset for message in opened.messages() if message.sys_flag & 0x80)
    with pytest.raises(UnsupportedFormatError, match="batch"):
        make_plan(store, Redact((offset,)))


def test_two_changes_of_one_file(root):
    with mqtool.open(root) as store:
        at = store.commit_log.segments[-2].base
    with pytest.raises(UsageError, match="one after the other"):
        make_plan(root, [Truncate(at), SetAside(("checkpoint",))])


def test_scratch_files_inside_of_the_store(root):
    with pytest.raises(UsageError, match="outside"):
        make_plan(root, RebuildQueues(("Roll",)), work_dir=root / "config")


def test_a_dry_run_writes_nothing(plan, root):
    before = tree_digest(root)
    assert apply(plan, dry_run=True).steps == plan.steps
    assert tree_digest(root) == before
    carry_out(plan)
    after = tree_digest(root)
    undo(root, dry_run=True)
    assert discard_undo(root, dry_run=True).files == 0
    assert tree_digest(root) == after


def test_undo_gives_back_the_very_files_with_their_holes_and_times(tmp_path):
    store = sparse_copy(copy_store("orders-5.5.0", tmp_path), tmp_path / "sparse")
    segment = max((store / "commitlog").iterdir())
    with mqtool.open(store) as opened:
        chosen = [
            message.physical_offset for message in opened.messages() if message.physical_offset >= int(segment.name)
        ]
    before = {path: path.stat() for path in store.rglob("*")}
    carry_out(make_plan(store, Redact((chosen[3],))))
    assert segment.stat().st_ino != before[segment].st_ino
    assert segment.stat().st_blocks < segment.stat().st_size // 512 // 2
    undo(store)
    for path, status in before.items():
        now = path.stat()
        assert (now.st_ino, now.st_size, now.st_mtime_ns) == (status.st_ino, status.st_size, status.st_mtime_ns), path
    assert segment.stat().st_blocks < segment.stat().st_size // 512 // 2


def test_the_journal_can_be_kept_outside(plan, root, tmp_path):
    journal = carry_out(plan).journal
    text = journal.read_bytes()
    check_refused("path", lambda: discard_undo(root, keep_journal=root / "config" / "journal"), root)
    before = tree_digest(root)
    with pytest.raises(StoreError, match="cannot be written: No such file or directory"):
        discard_undo(root, keep_journal=tmp_path / "nothing" / "journal")
    assert tree_digest(root) == before
    discard_undo(root, keep_journal=tmp_path / "kept")
    assert (tmp_path / "kept").read_bytes() == text


@pytest.mark.parametrize("names", [("checkpoint",), ("checkpoint", "config/topics.json")])
def test_two_changes_of_the_same_file(names, tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    (root / "checkpoint").write_bytes(b"x" * 4096)
    aside, rebuilt = SetAside(("checkpoint",)), RebuildMetadata(names)
    for changes in ([aside, rebuilt], [rebuilt, aside], [rebuilt, rebuilt]):
        with pytest.raises(UsageError, match="two changes affect checkpoint: apply one after the other"):
            make_plan(root, changes)


def test_a_log_with_more_damage_than_a_plan_lists_is_counted(tmp_path):
    builder = StoreBuilder()
    for number in range(100):
        builder.put(b"body %d" % number)
    root = builder.write(tmp_path / "store", queues=False)
    for put in builder.puts[:90:3]:
        segment = put.physical_offset // builder.segment_size * builder.segment_size
        with (root / "commitlog" / f"{segment:020}").open("r+b") as file:
            file.seek(put.physical_offset - segment + 4)
            file.write(b"\1\2\3\4")  # in place of the magic code
    notes = make_plan(root, RebuildQueues()).notes
    assert sum(note.startswith("damage: ") for note in notes) == 20
    assert "10 more damaged ranges" in notes


def test_a_journal_that_is_too_large_to_be_one_is_not_read(tmp_path):
    root = copy_store(NAME, tmp_path)
    (root / HOME).mkdir()
    (root / HOME / "journal").touch()
    os.truncate(root / HOME / "journal", 1 << 40)
    for action in (undo, discard_undo):
        refused = check_refused_quickly("journal", lambda action=action: action(root))
        assert str(refused).count(str(root)) == 1
        assert f"expected at most {1 << 30} bytes, found {1 << 40}" in str(refused)


def check_refused_quickly(gate, action):
    """An action on a store whose files are too large to compare is refused for a gate."""
    with pytest.raises(RefusedError) as caught:
        action()
    assert caught.value.gate == gate, caught.value
    return caught.value


def test_a_file_whose_kind_cannot_be_read(plan, root, monkeypatch):
    lstat = os.lstat

    def denied(path, **more):
        if str(path).endswith("Roll"):
            raise OSError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return lstat(path, **more)

    monkeypatch.setattr(os, "lstat", denied)
    with pytest.raises(RefusedError, match="Roll: path: cannot be read: Permission denied") as caught:
        inside(root, "consumequeue/Roll/0")
    assert caught.value.gate == "path"


def test_an_old_file_that_cannot_be_kept(tmp_path, monkeypatch):
    path, target = tmp_path / "file", tmp_path / "kept"
    path.write_bytes(b"old")

    def denied(*_arguments, **_options):
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(os, "link", denied)
    with pytest.raises(PermissionError):
        RepairFiles().keep(path, target)
    assert (path.read_bytes(), target.exists()) == (b"old", False)


def test_a_segment_that_is_where_it_belongs_to_be_renamed(root):
    name = next((root / "commitlog").iterdir()).name
    with pytest.raises(UsageError, match=f"{name}: expected a CommitLog file whose records belong at a free physical"):
        make_plan(root, RenameSegments((f"commitlog/{name}",)))


def test_a_file_outside_of_a_scratch_copy(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"of the store")
    (tmp_path / "scratch").mkdir()
    with pytest.raises(OSError, match="Read-only file system"):
        ScratchFiles(tmp_path / "scratch").write_file(path, b"new")
    assert path.read_bytes() == b"of the store"


def test_a_file_that_appears_in_a_directory_while_that_is_removed(tmp_path):
    home, other = tmp_path / "home", tmp_path / "other"
    home.mkdir()
    other.mkdir()
    (home / "a").write_bytes(b"x")
    (home / "link").symlink_to(other)

    class Late(RepairFiles):
        def remove(self, path):
            super().remove(path)
            (home / "late").write_bytes(b"of another")

    remove_tree(home, Late())
    assert [path.name for path in home.iterdir()] == ["late"]
    assert other.is_dir()


def test_a_change_of_a_store_in_which_no_file_keeps_brokers_away(plan, root, monkeypatch):
    """Neither the change nor its undo leaves one then."""
    before = tree_digest(root)
    monkeypatch.setattr(plan_executor, "barrier_directory", lambda _store: None)
    seen = []
    carry_out(plan, on_progress=lambda *_: seen.extend((root / "commitlog").iterdir()))
    names = {path.name for path in seen}
    assert names
    assert all(name.isdigit() for name in names)
    undo(root)
    assert tree_digest(root) == before


def test_a_recovery_that_fails_names_the_file_of_the_store_and_one_outside_as_it_is(tmp_path):
    scratch = tmp_path / "scratch"
    for path, named in ((scratch / "x", tmp_path / "x"), (tmp_path.parent / "y", tmp_path.parent / "y")):
        with pytest.raises(StoreError) as caught, _named_as(tmp_path, scratch):
            raise StoreError(f"of {path}", path)
        assert (caught.value.path, str(named) in str(caught.value)) == (named, True)


def test_a_clock_that_a_recovery_made_stand_still_waits_for_nothing():
    clock = _FixedClock(5)
    clock.sleep(1e9)
    assert clock.now() == 5


def test_the_first_index_file_is_rebuilt_without_one_before_it(tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    first, second = sorted((root / "index").iterdir())[:2]
    for path, reads in ((first, []), (second, [f"index/{first.name}"])):
        data = path.read_bytes()
        path.write_bytes(bytes(len(data)))
        made = make_plan(root, RebuildIndex(path.name))
        assert [read.path for read in made.reads if read.path.startswith("index/")] == reads
        path.write_bytes(data)
