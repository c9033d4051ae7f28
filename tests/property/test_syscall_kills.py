"""Every command that writes, killed between two system calls: the next run ends as an undisturbed one, or recovers.

MQTOOL_EVERY_KILL=1 kills at every call, in two releases' stores, MQTOOL_EVERY_KILL=5 at every fifth; without it at some
calls of each command.
"""

import asyncio
import contextlib
import importlib.util
import os
import shutil
import subprocess
import sys
from multiprocessing import get_context

import pyarrow.parquet as pq
import pytest

import mqtool
from mqtool.cli.app import run as cli
from mqtool.engine import open_store
from mqtool.engine.start.detect import options_for
from mqtool.verify.findings import Severity
from mqtool.verify.store import verify
from tests.fuzz.test_sibling_fuzz import small_copy
from tests.support.ha_master import Master, playing
from tests.support.stores import copy_store, sizes_of
from tests.support.syscall_kills import contents, fill, fresh, kills, messages_of
from tests.support.tiers import night
from tests.support.watch import ROOT

ROWS = "".join(
    f'{{"topic": "T{number % 3}", "queue_id": 0, "body": "text {number}", "keys": ["k{number}"]}}\n'
    for number in range(40)
)
STORES = {"4.9": "metadata-4.9.7", "5.5": "metadata-5.5.0"}

MAKING = {
    "rebuild": ["rebuild", "all", "STORE", "--output", "OUT/new"],
    "salvage": ["salvage", "STORE", "-o", "OUT/new"],
    "compact": ["salvage", "STORE", "-o", "OUT/new", "--compact", "--map", "OUT/map"],
    "restore": ["restore", "BACKUP", "-o", "OUT/new"],
    "export": ["export", "STORE", "--output", "OUT/new"],
    "report": ["report", "STORE", "-o", "OUT/new"],
    "plan": ["plan", "rebuild", "all", "STORE", "-o", "OUT/new"],
}
"""Commands that make something new."""

CHANGES = {
    "rebuild": ["rebuild", "consumequeue", "STORE"],
    "offsets": ["offsets", "STORE", "--group", "*", "--to", "earliest"],
    "purge": ["purge", "STORE", "--topic", "Meta", "--allow-unread"],
}
"""Plans of changes that `undo` or `discard-undo` ends."""


@pytest.fixture(params=STORES)
def store(request, in_memory):
    """A store of a release, a backup of it, and rows to append."""
    root = copy_store(STORES[request.param], in_memory)
    (in_memory / "rows.jsonl").write_text(ROWS)
    return root


def without_most_queues(store):
    """Removes the queues of all topics but one, whose files say how long the rebuilt ones are: seconds, not minutes."""
    for path in (store / "consumequeue").iterdir():
        if path.name != "Meta":
            shutil.rmtree(path)


def recover(store, config=None):
    """Recovers a store as a broker does when it starts."""
    open_store(store, options_for(store, config), background=False).close()


@pytest.mark.long
def test_a_store_killed_between_two_calls_opens_again_and_is_clean(store, in_memory, request):
    pristine, conf = in_memory / "pristine", in_memory / "broker.conf"
    conf.write_text(sizes_of(STORES[request.node.callspec.params["store"]]))
    (store / "abort").touch()
    shutil.copytree(store, pristine)
    append = ["append", "STORE", "--from", "ROWS", "--duplicates", "append", "--config", str(conf)]
    words = ["append", "STORE", "--from", "ROWS"]
    for point in kills(words, store, in_memory, lambda: fresh(pristine, store)):
        recover(store, conf)
        assert cli(fill(append, store, in_memory)) == 0, point
        assert cli(["verify", str(store), "--fail-on", "error"]) == 0, point


def test_a_new_store_killed_between_two_calls_opens_again_and_is_clean(in_memory):
    (in_memory / "rows.jsonl").write_text(ROWS)
    root, conf = in_memory / "store", in_memory / "broker.conf"
    sizes = {
        "mappedFileSizeCommitLog": 4096,
        "mappedFileSizeConsumeQueue": 200,
        "maxHashSlotNum": 50,
        "maxIndexNum": 99,
    }
    conf.write_text("".join(f"{key}={value}\n" for key, value in sizes.items()))
    words = ["append", "STORE", "--from", "ROWS", "--duplicates", "append", "--config", str(conf)]
    for point in kills(words, root, in_memory, lambda: shutil.rmtree(root, ignore_errors=True)):
        assert cli(fill(words, root, in_memory)) == 0, point
        assert cli(["verify", str(root), "--config", str(conf), "--fail-on", "error"]) == 0, point


@pytest.mark.long
@pytest.mark.parametrize("name", MAKING)
def test_what_is_made_is_whole_or_made_again(store, in_memory, name):
    words = MAKING[name]
    if name == "restore":
        assert cli(["backup", str(store), "-o", str(in_memory / "backup")]) == 0
    if name == "plan":  # a plan needs something to change
        shutil.rmtree(store / "index")
    before, out = contents(store), in_memory / "out"

    def empty():
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()

    empty()
    ends = cli(fill(words, store, out))
    assert ends in {0, 1}
    whole_map = (out / "map").read_bytes() if name == "compact" else None
    for point in kills(words, store, out, empty):
        if (out / "map").exists():
            assert (out / "map").read_bytes() == whole_map, point
        if name in {"report", "rebuild"} and (out / "new").exists():
            shutil.rmtree(out / "new", ignore_errors=True)
            (out / "new").unlink(missing_ok=True)
        if not (out / "new").exists() or name == "export":
            assert cli(fill(words, store, out)) == ends, point
        assert contents(store) == before, point
    assert {path.name for path in out.iterdir()} <= {"new", "new.incomplete", "map"}  # killed after the last rename


@pytest.mark.slow
def test_a_backup_killed_between_two_calls_is_made_again(store, in_memory):
    before, out = contents(store), in_memory / "backup"
    for point in kills(["backup", "STORE", "-o", "OUT"], store, out, lambda: shutil.rmtree(out, ignore_errors=True)):
        assert cli(["backup", str(store), "-o", str(out)]) == 0, point
        assert cli(["restore", str(out), "--check"]) == 0, point
        assert contents(store) == before, point


@pytest.mark.slow
@pytest.mark.parametrize("then", ["apply", "undo"])
def test_a_change_killed_between_two_calls_is_finished_or_undone(store, in_memory, then):
    without_most_queues(store)
    pristine, plan = in_memory / "pristine", in_memory / "plan.json"
    shutil.copytree(store, pristine)
    assert cli(["plan", "rebuild", "consumequeue", str(store), "-o", str(plan)]) == 0
    before = contents(store)
    for point in kills(["apply", "OUT", "--yes"], store, plan, lambda: fresh(pristine, store)):
        if then == "apply":
            assert cli(["apply", str(plan), "--yes"]) == 0, point
        if (store / ".mqtool").exists():
            assert cli(["undo", str(store), "--yes"]) == 0, point
        assert contents(store) == before, point


@pytest.mark.long
def test_positions_killed_between_two_calls_are_moved_or_undone(store, in_memory):
    pristine, plan = in_memory / "pristine", in_memory / "plan.json"
    shutil.copytree(store, pristine)
    assert cli(["plan", "offsets", str(store), "--group", "*", "--to", "earliest", "-o", str(plan)]) == 0
    before, undone = contents(store), 0
    for point in kills(["apply", "OUT", "--yes"], store, plan, lambda: fresh(pristine, store)):
        if (store / ".mqtool").exists():
            assert cli(["undo", str(store), "--yes"]) == 0, point
            undone += 1
        assert contents(store) == before, point
    assert undone


@pytest.mark.long
def test_a_purge_killed_between_two_calls_is_finished_or_undone(store, in_memory):
    pristine, plan = in_memory / "pristine", in_memory / "plan.json"
    shutil.copytree(store, pristine)
    assert cli(["plan", "purge", str(store), "--topic", "Meta", "--allow-unread", "-o", str(plan)]) == 0
    before, undone = contents(store), 0
    for point in kills(["apply", "OUT", "--yes"], store, plan, lambda: fresh(pristine, store)):
        if (store / ".mqtool").exists():
            assert cli(["undo", str(store), "--yes"]) == 0, point
            undone += 1
        assert contents(store) == before, point
        assert cli(["apply", str(plan), "--yes"]) == 0, point
        with mqtool.open(store) as purged:
            assert "Meta" not in {message.topic for message in purged.messages()}, point
    assert undone


@pytest.mark.long
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(
    "ending", [["undo", "STORE", "--yes"], ["discard-undo", "STORE", "--yes"]], ids=lambda words: words[0]
)
def test_the_end_of_a_change_killed_between_two_calls_is_run_again(store, in_memory, ending, change):
    without_most_queues(store)
    before = contents(store)
    plan, applied = in_memory / "plan.json", in_memory / "applied"
    assert cli(["plan", *fill(CHANGES[change], store, in_memory), "-o", str(plan)]) == 0
    assert cli(["apply", str(plan), "--yes"]) == 0
    shutil.copytree(store, applied)
    after = {name: data for name, data in contents(store).items() if not name.startswith(".mqtool")}
    for point in kills(ending, store, in_memory, lambda: fresh(applied, store)):
        if (store / ".mqtool").exists():
            assert cli(fill(ending, store, in_memory)) == 0, point
        assert contents(store) == (before if ending[0] == "undo" else after), point


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "keep"), [("orders-4.9.7", []), ("orders-5.5.0", ["--no-keep"])], ids=["keep", "no-keep"]
)
def test_a_cleaning_killed_between_two_calls_is_undone_or_goes_on(in_memory, name, keep):
    store, pristine = copy_store(name, in_memory), in_memory / "pristine"
    for path in sorted((store / "commitlog").iterdir())[:-1]:
        os.utime(path, (0, 0))
    shutil.copytree(store, pristine)
    words = ["clean", "STORE", "--now", "--yes", "--allow-unread", *keep]
    assert cli(fill(words, store, in_memory)) == 0
    expected = messages_of(store)
    assert 0 < len(expected) < len(messages_of(pristine))
    judged = cli(["verify", str(store), "--fail-on", "error"])  # offsets of groups may lead to what was deleted
    for point in kills(words, store, in_memory, lambda: fresh(pristine, store)):
        if (store / ".mqtool").exists():
            assert cli(["undo", str(store), "--yes"]) == 0, point
            assert contents(store) == contents(pristine), point
        elif (store / "abort").exists():
            recover(store)
        assert cli(fill(words, store, in_memory)) == 0, point
        assert messages_of(store) == expected, point
        assert cli(["verify", str(store), "--fail-on", "error"]) == judged, point


CONVERSIONS = {"dledger": "dledger-5.5.0"}
if importlib.util.find_spec("rocksdict") is not None:
    CONVERSIONS |= {"rocksdb-queues": "rocksdb-cq-5.5.0", "file-queues": "orders-5.5.0"}


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("what", [what if what == "dledger" else night(what) for what in CONVERSIONS])
def test_a_conversion_killed_between_two_calls_leaves_no_store_of_its_name_and_is_made_again(in_memory, what):
    small_copy(CONVERSIONS[what], in_memory / "store")
    command = [sys.executable, "-m", "tests.support.conversion_kills", what, str(in_memory)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    print(ended.stdout)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "killed at" in ended.stdout


@pytest.mark.long
@pytest.mark.slow
def test_a_replay_killed_between_two_calls_goes_on_and_nothing_is_missing_or_there_twice(store, in_memory):
    out = in_memory / "out"
    words = ["replay", "STORE", "--into", "OUT/new", "--ids", "OUT/ids", "--state", "OUT/state"]

    def empty():
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()

    empty()
    assert cli(fill(words, store, out)) == 0
    expected, ids = messages_of(out / "new"), (out / "ids").read_bytes().count(b"\n")
    before = contents(store)
    for point in kills(words, store, out, empty):
        assert cli(fill(words, store, out)) == 0, point
        assert messages_of(out / "new") == expected, point
        assert (out / "ids").read_bytes().count(b"\n") == ids, point
        assert cli(["verify", str(out / "new"), "--fail-on", "error"]) == 0, point
        assert contents(store) == before, point


@pytest.mark.slow
def test_a_second_export_killed_between_two_calls_adds_what_is_new_once(store, in_memory):
    out, first = in_memory / "out", in_memory / "first"
    words = ["export", "STORE", "--output", "OUT/lake", "--state", "OUT/state"]
    first.mkdir()
    assert cli(fill(words, store, first)) in {0, 1}
    recover(store)
    assert cli(fill(["append", "STORE", "--from", "ROWS"], store, in_memory)) == 0

    def again():
        fresh(first, out)

    def rows():
        tables = [pq.read_table(path) for path in sorted((out / "lake" / "messages").rglob("*.parquet"))]
        return sorted(at for table in tables for at in table["physical_offset"].to_pylist())

    again()
    assert cli(fill(words, store, out)) in {0, 1}
    expected = rows()
    for point in kills(words, store, out, again):
        assert cli(fill(words, store, out)) in {0, 1}, point
        assert rows() == expected, point


QUIRKS = {"ha-4.9.7": {("queue-wrong-tags", "SCHEDULE_TOPIC_XXXX")}, "ha-5.5.0": set()}
"""Errors that a broker of the release itself leaves: 4.9 recovers before it has read the delay levels."""


def errors_of(root):
    """Code and topic of each error."""
    with mqtool.open(root) as opened:
        findings = verify(opened).findings
    return {(item.code, item.topic) for item in findings if item.severity is Severity.ERROR}


def _play(master, pipe):
    """A master in a process of its own."""

    async def main():
        async with playing(Master(master)) as address:
            pipe.send(address)
            await asyncio.Event().wait()

    asyncio.run(main())


@contextlib.contextmanager
def played(name):
    """Address of a master."""
    context = get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=_play, args=(name, theirs), daemon=True)
    process.start()
    try:
        yield ours.recv()
    finally:
        process.kill()
        process.join()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ha-4.9.7", "ha-5.5.0"])
def test_a_mirror_killed_between_two_calls_goes_on_to_the_end_of_its_master(in_memory, name):
    copy, master = in_memory / "copy", Master(name)
    with played(name) as address:
        words = ["mirror", address, "-o", "OUT", "--once"]
        for point in kills(words, copy, copy, lambda: shutil.rmtree(copy, ignore_errors=True)):
            assert cli(fill(words, copy, copy)) == 0, point
            log = b"".join(path.read_bytes() for path in sorted((copy / "commitlog").iterdir()))
            assert log[: master.end] == master.log[: master.end], point
            assert errors_of(copy) <= QUIRKS[name], point
