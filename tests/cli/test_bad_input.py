"""Whatever is at the path: one clear line or damage, never a traceback, a hang, or a changed byte."""

import errno
import json
import os
import random
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mqtool.choices import FileKind
from mqtool.jobs.atomic import staged_directory
from tests.support.damage import CASES, damage_case, held_locks
from tests.support.stores import copy_store, copy_tree, fixture, tree_digest
from tests.support.tables import combined, in_parts
from tests.support.tiers import NIGHT, some
from tests.support.unreadable import unlistable

ORDERS = fixture("orders-5.5.0/store")
COMMANDS = {
    "info": lambda path: ["info", path],
    "info --deep": lambda path: ["info", path, "--deep"],
    "dump": lambda path: ["dump", path],
    "dump jsonl": lambda path: ["dump", path, "--format", "jsonl"],
    "get": lambda path: ["get", path, "0"],
    "find": lambda path: ["find", path, "--key", "k"],
}
OTHERS = {
    "verify": lambda path, new: ["verify", path, "--format", "json"],
    "report": lambda path, new: ["report", path, "-o", new],
    "diff": lambda path, new: ["diff", ORDERS, path],
    "rebuild": lambda path, new: ["rebuild", "consumequeue", path, "--output", new],
    "plan": lambda path, new: ["plan", "rebuild", "consumequeue", path, "-o", new],
    "undo": lambda path, new: ["undo", path, "--yes"],
    "discard-undo": lambda path, new: ["discard-undo", path, "--yes"],
    "salvage": lambda path, new: ["salvage", path, "-o", new],
    "salvage --with": lambda path, new: ["salvage", ORDERS, "-o", new, "--with", path],
    "backup": lambda path, new: ["backup", path, "-o", new],
    "restore": lambda path, new: ["restore", path, "-o", new],
    "runbook": lambda path, new: ["runbook", "run", "RB-03", path],
    "clean": lambda path, new: ["clean", path, "--dry-run"],
    "recover": lambda path, new: ["plan", "recover", path, "-o", new],
    "convert": lambda path, new: ["convert", "dledger", path, "-o", new],
}
EXPECTED = {0, 1, 2, 4, 74}
HOSTILE = [b"\xff", b"\x00", b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\xff\xff\xff\xff"]


def nothing(path: Path) -> Path:
    return path / "absent"


def empty_directory(path: Path) -> Path:
    return path


def other_directory(path: Path) -> Path:
    (path / "photos").mkdir()
    (path / "notes.txt").write_text("hello")
    return path


def link_in_a_circle(path: Path) -> Path:
    (path / "a").symlink_to(path / "b")
    (path / "b").symlink_to(path / "a")
    return path / "a"


def link_to_itself_inside(path: Path) -> Path:
    (path / "commitlog").symlink_to(path / "commitlog")
    (path / "consumequeue").symlink_to(path)
    return path


def fifo(path: Path) -> Path:
    os.mkfifo(path / "pipe")
    return path / "pipe"


def fifo_for_a_segment(path: Path) -> Path:
    (path / "commitlog").mkdir()
    os.mkfifo(path / "commitlog" / ("0" * 20))
    return path


def empty_file(path: Path) -> Path:
    (path / "file").touch()
    return path / "file"


def text_file(path: Path) -> Path:
    (path / "file").write_text("a shopping list\n" * 100)
    return path / "file"


def device(_: Path) -> Path:
    return Path("/dev/zero")


def name_with_escapes(path: Path) -> Path:
    return path / "\x1b[31mred\nline"


def name_too_long(path: Path) -> Path:
    return path / ("x" * 300)


NO_STORES = [
    nothing,
    empty_directory,
    other_directory,
    link_in_a_circle,
    fifo,
    empty_file,
    text_file,
    device,
    name_with_escapes,
    name_too_long,
]


def check(result, codes=EXPECTED):
    """Holds every run to the manners of bad input."""
    assert result.code in codes, result.stderr
    assert "Traceback" not in result.stderr
    assert "this is a bug" not in result.stderr
    assert result.stderr.replace("\n", "").isprintable()


@pytest.mark.parametrize("make", NO_STORES, ids=lambda make: make.__name__)
@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_no_store_is_refused_in_one_line(mqtool, tmp_path, make, command):
    result = mqtool(*COMMANDS[command](make(tmp_path)))
    check(result, {1, 4, 74})
    if result.code == 4 and "jsonl" not in command:
        assert result.stdout == b""
        assert result.stderr.count("\n") == 1


@in_parts("make, command", combined(NO_STORES, OTHERS))
def test_a_command_that_writes_makes_nothing_of_what_is_no_store(mqtool, tmp_path, make, command):
    (tmp_path / "given").mkdir()
    path, new = make(tmp_path / "given"), tmp_path / "new"
    result = mqtool(*OTHERS[command](path, new))
    check(result, {4, 74})
    assert result.stderr.count("\n") == 1
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["given"]


@pytest.mark.parametrize(
    "command", ["report", "diff", "plan", "salvage --with", "backup", "runbook", "clean", "recover", "convert"]
)
def test_a_store_of_another_system_is_called_by_its_name(mqtool, tmp_path, command):
    result = mqtool(*OTHERS[command](fixture("equeue-small/store"), tmp_path / "new"))
    assert (result.code, "kind equeue" in result.stderr, result.stderr.count("\n")) == (4, True, 1)


@pytest.mark.parametrize("make", NO_STORES, ids=lambda make: make.__name__)
def test_json_says_that_it_is_no_store(mqtool, tmp_path, make):
    path = make(tmp_path)
    for command in (["info", path], ["dump", path], ["get", path, "0"]):
        result = mqtool(*command, "--format", "json")
        assert result.document["ok"] is False


@pytest.mark.parametrize("make", [fifo_for_a_segment, link_to_itself_inside], ids=lambda make: make.__name__)
def test_parts_that_are_not_what_they_should_be_block_nothing(mqtool, tmp_path, make):
    path = make(tmp_path)
    for command in COMMANDS.values():
        check(mqtool(*command(path)))


LOOPS = [
    ("orders-5.5.0/store", ["loop", "dledger-x", "consumequeue/loop", "config/loop.json"]),
    ("tieredstore-5.5.0/store", ["rocksdbstore/loop"]),
    ("tieredstore-5.5.0/store/tiered", ["loop", "00000000_loop", "212d6b50_DefaultCluster/loop"]),
    ("equeue-small/store", ["loop", "message-chunks/message-chunk-000000009", "queue-chunks/orders/9"]),
    ("tfchunk/plain/store", ["loop", "chunk-000009.000000"]),
]


@pytest.mark.parametrize(("store", "names"), LOOPS, ids=lambda value: value if isinstance(value, str) else value[0])
def test_links_that_lead_in_a_circle_change_no_answer(mqtool, tmp_path, store, names):
    """Java and .NET take them for neither a file nor a directory."""
    path = copy_tree(fixture(store), tmp_path / "store")
    commands = [["info"], ["dump"], ["explain-start"], ["find", "--grep", "a"], ["verify"], ["info", "--deep"]]

    def answers():
        results = [mqtool(command, path, *options, "--format", "json") for command, *options in commands]
        return [result.code for result in results], [result.stdout for result in results[1:4]]

    before = answers()
    for name in names:
        (path / name).symlink_to(Path(name).name)
    assert answers() == before
    saved = mqtool("salvage", path, "-o", tmp_path / "saved")
    assert saved.code == (4 if store.endswith("tiered") else 0), saved.stderr


@pytest.mark.parametrize("name", ["commitlog", "consumequeue", "index"])
def test_what_may_not_be_read_makes_the_answer_incomplete(mqtool, monkeypatch, name):
    os_open = os.open

    def refusing(path, *arguments, **options):
        if f"/{name}/" in str(path):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return os_open(path, *arguments, **options)

    monkeypatch.setattr(os, "open", refusing)
    for kind in ([], ["--kind", {"consumequeue": "consume-queue", "index": "index-file"}.get(name, "commit-log")]):
        result = mqtool("dump", ORDERS, *kind)
        check(result)
        if kind:
            assert result.code == 1
            words = "unreadable at physical offset" if name == "commitlog" else "cannot be opened: Permission denied"
            assert f"{name}/" in result.stderr
            assert words in result.stderr
    check(mqtool("info", ORDERS))


def test_a_file_cannot_be_served(mqtool, tmp_path):
    result = mqtool("serve", text_file(tmp_path))
    assert (result.code, result.stderr) == (4, f"mqtool: {tmp_path / 'file'}: expected a directory, found a file\n")


def test_a_hint_names_the_store_below(mqtool, tmp_path):
    shutil.copytree(ORDERS, tmp_path / "store")
    assert f"did you mean {tmp_path / 'store'}?" in mqtool("info", tmp_path).stderr


def test_the_result_of_an_interrupted_command_is_said_to_be_unfinished(mqtool, tmp_path):
    with staged_directory(tmp_path / "new") as work:
        shutil.copytree(ORDERS, work / "store", dirs_exist_ok=True)
        for path in (work, work / "store"):
            for command in ("verify", "info"):
                result = mqtool(command, path)
                assert result.code not in (0, 1)
                assert "the unfinished result of a command" in result.stderr
                assert "did you mean" not in result.stderr
    assert mqtool("verify", tmp_path / "new").code == 0


SIZES = (0, 1, 7, 8, 19, 20, 39, 40, 45, 46, 52, 91, 100, 4095, 4096, 65536)


@in_parts("size, kind", combined(SIZES, [None, *FileKind]), size=32)
def test_random_bytes_are_no_rows_or_damage(mqtool, tmp_path, size, kind):
    path = tmp_path / ("0" * 20)
    path.write_bytes(random.Random(size).randbytes(size))
    before = tree_digest(tmp_path)
    for view in ([], ["--hex"]):
        result = mqtool("dump", path, *(["--kind", kind] if kind else []), *view, "--format", "json")
        check(result)
        json.loads(result.stdout)
    assert tree_digest(tmp_path) == before


SMALL = {
    "commit-log": "txbits-4.9.7/store/commitlog/00000000000000000000",
    "consume-queue": "txbits-4.9.7/store/consumequeue",
    "batch-consume-queue": "bcq-5.5.0/store/batchconsumequeue",
    "consume-queue-ext": "cqext-5.5.0/store/consumequeue_ext",
    "index-file": "txbits-4.9.7/store/index",
    "checkpoint": "txbits-4.9.7/store/checkpoint",
    "timer-log": "timer-5.5.0/store/timerlog",
    "config": "metadata-5.5.0/store/config/topics.json",
    "epoch-file": "controller-5.5.0/store-x/epochFileCheckpoint",
}


def sample(kind: str) -> Path:
    """One small real file of a kind."""
    path = fixture(SMALL[kind])
    return path if path.is_file() else min((p for p in path.rglob("*") if p.is_file()), key=lambda p: p.as_posix())


@pytest.mark.long
@pytest.mark.parametrize("kind", SMALL)
def test_a_file_cut_anywhere_gives_its_first_rows(mqtool, tmp_path, kind):
    source = sample(kind)
    data = source.read_bytes()
    path = tmp_path / source.name
    whole = mqtool("dump", source, "--kind", kind, "--format", "json").document["rows"]
    used = len(data.rstrip(b"\0"))
    for size in sorted({*range(0, min(used, 200), 1 if NIGHT else 3), *range(0, used, max(1, used // 60))}):
        path.write_bytes(data[:size])
        result = mqtool("dump", path, "--kind", kind, "--format", "json")
        check(result)
        if kind in {"commit-log", "consume-queue", "timer-log"}:
            complete = [{**row, "topic": None, "queue_id": None} if kind == "consume-queue" else row for row in whole]
            rows = [
                {**row, "topic": None, "queue_id": None} if kind == "consume-queue" else row
                for row in result.document.get("rows", [])
            ]
            assert rows == complete[: len(rows)]


@pytest.mark.long
@pytest.mark.parametrize("kind", SMALL)
@settings(max_examples=400 if NIGHT else 20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_change_of_a_file_does_more_than_change_the_answer(mqtool, tmp_path, kind, data):
    source = sample(kind)
    stored = bytearray(source.read_bytes())
    used = max(1, len(stored.rstrip(b"\0")))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, used - 1))
        value = data.draw(st.sampled_from(HOSTILE))
        stored[at : at + len(value)] = value
    path = tmp_path / source.name
    path.write_bytes(stored)
    for view in ([], ["--hex"]):
        result = mqtool("dump", path, "--kind", kind, "--format", "json", *view)
        check(result)
        json.loads(result.stdout)


@pytest.mark.long
@in_parts("case", some(3, [case for case in CASES.values() if case.base == "5.5.0-clean"]), size=6)
def test_every_damaged_store_gets_an_answer_and_keeps_its_bytes(mqtool, tmp_path, case):
    store = damage_case(case, tmp_path)
    with held_locks(case, store):
        before = tree_digest(store)
        for arguments in COMMANDS.values():
            check(mqtool(*arguments(store)))
        for kind in ("consume-queue", "index-file", "config"):
            check(mqtool("dump", store, "--kind", kind))
        assert tree_digest(store) == before


def test_a_file_that_shrinks_while_it_is_read_is_reported(mqtool, tmp_path, monkeypatch):
    store = copy_store("orders-5.5.0", tmp_path)
    second = sorted((store / "commitlog").iterdir())[1]
    os_pread = os.pread

    def shrinking(descriptor, count, position):
        if second.stat().st_size and count > 4096:
            os.truncate(second, 0)
        return os_pread(descriptor, count, position)

    monkeypatch.setattr(os, "pread", shrinking)
    result = mqtool("dump", store, "--format", "jsonl")
    check(result, {1})
    assert "missing" in result.stderr
    assert [row["physical_offset"] for row in result.lines][-1] > 131072 * 2


def test_a_store_without_a_log_is_described(mqtool, tmp_path):
    store = copy_store("orders-5.5.0", tmp_path)
    shutil.rmtree(store / "commitlog")
    assert mqtool("info", store, "--format", "json").document["commit_log"]["files"] == 0
    assert mqtool("dump", store, "--format", "jsonl").stdout == b""


def test_a_rocksdb_is_refused_by_name(mqtool):
    result = mqtool("dump", fixture("rocksdb-cq-5.5.0/store/rocksdbstore/CURRENT"))
    assert (result.code, result.stdout) == (4, b"")
    assert "RocksDB" in result.stderr


@pytest.mark.parametrize("config", ["absent.conf", "."])
def test_a_configuration_that_cannot_be_read_is_a_usage_error(mqtool, tmp_path, config):
    result = mqtool("info", ORDERS, "--config", tmp_path / config)
    assert (result.code, result.stdout) == (2, b"")


def test_a_configured_size_that_is_no_number_is_ignored_as_the_broker_does_and_reported(mqtool, tmp_path):
    path = tmp_path / "broker.conf"
    path.write_text("mappedFileSizeCommitLog=big\n")
    result = mqtool("info", ORDERS, "--config", path)
    assert (result.code, result.stdout) == (0, mqtool("info", ORDERS).stdout)
    assert f"{path}: mappedFileSizeCommitLog='big': the broker ignores it" in result.stderr


@pytest.mark.parametrize(
    ("path", "root", "kind"),
    [
        ("equeue-small", "equeue-small/store", "equeue"),
        ("equeue-small/store/message-chunks", "equeue-small/store", "equeue"),
        ("equeue-small/store/queue-chunks/orders/0", "equeue-small/store", "equeue"),
        ("tfchunk/plain", "tfchunk/plain/store", "tfchunk"),
        ("tieredstore-5.5.0/store/tiered/212d6b50_DefaultCluster/broker-a", "tieredstore-5.5.0/store/tiered", "tiered"),
    ],
)
def test_the_store_of_another_system_around_a_path_is_named(mqtool, path, root, kind):
    result = mqtool("verify", fixture(path))
    assert result.code == 4
    assert f"did you mean {fixture(root)}, a store of kind {kind}?" in result.stderr


def test_an_unlistable_store_of_another_system_is_no_bug(mqtool, tmp_path, monkeypatch):
    root = copy_tree(fixture("equeue-small/store"), tmp_path / "store")
    with unlistable(monkeypatch, root / "message-chunks"):
        for command in (["backup", root, "-o", tmp_path / "new"], ["pending", root], ["offsets", root]):
            check(mqtool(*command), {4, 74})
