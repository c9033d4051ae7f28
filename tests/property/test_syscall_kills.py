"""Every command that writes, killed between two system calls: the next run ends as an undisturbed one, or recovers.

MQTOOL_EVERY_KILL=1 kills at every call, in two releases' stores; without it at some calls of each command.
"""

import os
import shutil
import signal

import pytest

from mqtool.cli.app import run as cli
from tests.support.stores import copy_store
from tests.support.syscall_kills import contents, points, run_in_fork

POINTS = 1 << 20 if os.environ.get("MQTOOL_EVERY_KILL") else 4
ROWS = "".join(
    f'{{"topic": "T{number % 3}", "queue_id": 0, "body": "text {number}", "keys": ["k{number}"]}}\n'
    for number in range(40)
)
STORES = {"4.9": "metadata-4.9.7", "5.5": "metadata-5.5.0"}

MAKING = {
    "rebuild": ["rebuild", "all", "STORE", "--out", "OUT/new"],
    "salvage": ["salvage", "STORE", "OUT/new"],
    "restore": ["restore", "BACKUP", "OUT/new"],
    "export": ["export", "STORE", "--to", "OUT/new"],
    "report": ["report", "STORE", "-o", "OUT/new"],
    "plan": ["plan", "rebuild", "all", "STORE", "-o", "OUT/new"],
}
"""Commands that make something new."""


@pytest.fixture(params=STORES)
def store(request, in_memory):
    """A store of a release, a backup of it, and rows to append."""
    root = copy_store(STORES[request.param], in_memory)
    (in_memory / "rows.jsonl").write_text(ROWS)
    return root


def fill(words, root, out):
    """The words with the places of this run."""
    names = {"STORE": root, "ROWS": root.parent / "rows.jsonl", "BACKUP": root.parent / "backup", "OUT": out}
    filled = []
    for word in words:
        first, slash, rest = word.partition("/")
        filled.append(f"{names[first]}{slash}{rest}" if first in names else word)
    return filled


def fresh(pristine, root):
    """The store as it was."""
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(pristine, root)


def kills(words, root, out, before):
    """Yields each point at which the command was killed, on a store as before."""
    before()
    calls = run_in_fork(fill(words, root, out))[1]
    assert calls > 1
    for point in points(calls, POINTS):
        before()
        code, _ = run_in_fork(fill(words, root, out), point)
        if code == -signal.SIGKILL:  # threads of a store make some calls more or fewer
            yield point


@pytest.mark.parametrize("words", [["append", "STORE", "--from", "ROWS"], ["recover", "STORE"]], ids=lambda w: w[0])
def test_a_store_killed_between_two_calls_opens_again_and_is_clean(store, in_memory, words):
    pristine = in_memory / "pristine"
    (store / "abort").touch()
    shutil.copytree(store, pristine)
    for point in kills(words, store, in_memory, lambda: fresh(pristine, store)):
        if (store / ".mqtool").exists():  # recover keeps an undo
            assert cli(["undo", str(store)]) == 0, point
            assert contents(store) == contents(pristine), point
        assert cli(["recover", str(store), "--no-keep", "--yes"]) == 0, point
        assert cli(fill(["append", "STORE", "--from", "ROWS", "--duplicates", "append"], store, in_memory)) == 0, point
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


@pytest.mark.parametrize("name", MAKING)
def test_what_is_made_is_whole_or_made_again(store, in_memory, name):
    words = MAKING[name]
    if name == "restore":
        assert cli(["backup", str(store), str(in_memory / "backup")]) == 0
    before, out = contents(store), in_memory / "out"

    def empty():
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()

    empty()
    ends = cli(fill(words, store, out))
    assert ends in {0, 1}
    for point in kills(words, store, out, empty):
        if name in {"report", "rebuild"} and (out / "new").exists():
            shutil.rmtree(out / "new", ignore_errors=True)
            (out / "new").unlink(missing_ok=True)
        if not (out / "new").exists() or name == "export":
            assert cli(fill(words, store, out)) == ends, point
        assert contents(store) == before, point
    assert {path.name for path in out.iterdir()} <= {"new", "new.incomplete"}  # killed after the last rename


def test_a_backup_killed_between_two_calls_is_made_again(store, in_memory):
    before, out = contents(store), in_memory / "backup"
    for point in kills(["backup", "STORE", "OUT"], store, out, lambda: shutil.rmtree(out, ignore_errors=True)):
        assert cli(["backup", str(store), str(out)]) == 0, point
        assert cli(["restore", str(out), "--check"]) == 0, point
        assert contents(store) == before, point


def test_a_change_killed_between_two_calls_is_finished_or_undone(store, in_memory):
    shutil.rmtree(store / "consumequeue")
    pristine, plan = in_memory / "pristine", in_memory / "plan.json"
    shutil.copytree(store, pristine)

    def planned():
        fresh(pristine, store)
        plan.unlink(missing_ok=True)
        assert cli(["plan", "rebuild", "consumequeue", str(store), "-o", str(plan)]) == 0

    before = contents(store)
    for number, point in enumerate(kills(["apply", "OUT", "--yes"], store, plan, planned)):
        if number % 2:
            assert cli(["apply", str(plan), "--yes"]) == 0, point
        if (store / ".mqtool").exists():
            assert cli(["undo", str(store)]) == 0, point
        assert contents(store) == before, point


@pytest.mark.parametrize("ending", [["undo", "STORE"], ["finalize", "STORE", "--yes"]], ids=lambda words: words[0])
def test_the_end_of_a_change_killed_between_two_calls_is_run_again(store, in_memory, ending):
    shutil.rmtree(store / "consumequeue")
    before = contents(store)
    plan = in_memory / "plan.json"
    pristine = in_memory / "pristine"
    shutil.copytree(store, pristine)

    def applied():
        fresh(pristine, store)
        plan.unlink(missing_ok=True)
        assert cli(["plan", "rebuild", "consumequeue", str(store), "-o", str(plan)]) == 0
        assert cli(["apply", str(plan), "--yes"]) == 0

    applied()
    after = {name: data for name, data in contents(store).items() if not name.startswith(".mqtool")}
    for point in kills(ending, store, in_memory, applied):
        if (store / ".mqtool").exists():
            assert cli(fill(ending, store, in_memory)) == 0, point
        assert contents(store) == (before if ending[0] == "undo" else after), point
