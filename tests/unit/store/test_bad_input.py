"""Whatever lies at a path, it is answered or refused with an error of ours: no traceback, no hang, nothing written."""

import json
import os
import random
import socket
import struct
from pathlib import Path

import pytest

import mqtool
from mqtool.errors import ConfigFileError, LayoutError, MqtoolError, NotAStoreError, UsageError
from mqtool.store import Message
from mqtool.store.describe import describe, oddities
from mqtool.store.files import copy_tree
from tests.support.builder import StoreBuilder
from tests.support.exercise import ask_everything
from tests.support.stores import STORES, answered, copy_store, tree_digest
from tests.support.unreadable import unreadable

SIZE = 1 << 12


def small(root):
    """A store of three segments with every kind of file."""
    builder = StoreBuilder(segment_size=SIZE, queue_file_units=20, slots=10, entries=40)
    for number in range(60):
        builder.put(b"message %d" % number, topic=f"T{number % 2}", tags="ab"[number % 2], keys=f"k{number % 5}")
    builder.write(root)
    (root / "config").mkdir()
    for name, content in {
        "topics.json": {"topicConfigTable": {"T0": {"topicName": "T0", "perm": 6, "readQueueNums": 1}}},
        "consumerOffset.json": {"offsetTable": {"T0@group": {"0": 3, "1": 9}}},
        "subscriptionGroup.json": {"subscriptionGroupTable": {"group": {"groupName": "group"}}},
        "delayOffset.json": {"offsetTable": {"1": 4}},
    }.items():
        (root / "config" / name).write_text(json.dumps(content))
    (root / "abort").touch()
    return builder


def files_of(root):
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    root = tmp_path_factory.mktemp("names") / "store"
    small(root)
    return files_of(root)


def test_a_sound_store_answers_everything(tmp_path):
    builder = small(tmp_path / "store")
    before = tree_digest(tmp_path)
    answers = ask_everything(tmp_path / "store")
    assert [name for name, answer in answers.items() if isinstance(answer, MqtoolError)] == []
    assert answers["messages"] == ([put.physical_offset for put in builder.puts], [])
    assert answers["index"][0][0] == 10
    assert tree_digest(tmp_path) == before


# --- not a store -----------------------------------------------------------------------------------------------------


def test_what_is_no_store_is_refused_in_one_line_with_a_next_step(tmp_path):
    small(tmp_path / "outer" / "store")
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "fifo")
    said = {}
    names = ["outer", "outer/store/commitlog", "empty", "other", "file", "loop", "fifo", "absent", "a" * 5000, "n\0l"]
    for name in names:
        with pytest.raises(NotAStoreError) as caught:
            mqtool.open(tmp_path / name)
        said[name] = str(caught.value)
    assert [text for text in said.values() if "\n" in text] == []
    assert f"did you mean {tmp_path}/outer/store?" in said["outer"]
    assert f"did you mean {tmp_path}/outer/store?" in said["outer/store/commitlog"]
    assert "the directory is empty" in said["empty"]
    assert "`mqtool dump` reads single files" in said["file"]
    assert "no such directory" in said["absent"]


@pytest.mark.parametrize("name", ["commitlog", "consumequeue", "index", "config", "checkpoint", "timerlog"])
def test_a_store_of_one_empty_part_answers_everything(name, tmp_path):
    (tmp_path / name).mkdir()
    answers = ask_everything(tmp_path)
    assert answers["messages"] == ([], [])
    assert answers["bounds"][:2] == (0, 0)


@pytest.mark.parametrize(
    "name", ["commitlog", "consumequeue", "batchconsumequeue", "index", "config", "timerlog", "consumequeue_ext"]
)
def test_a_file_in_place_of_a_directory_is_an_answer_or_an_error_of_ours(name, tmp_path):
    (tmp_path / "checkpoint").touch()
    (tmp_path / name).write_bytes(b"x" * 100)
    assert ask_everything(tmp_path)


# --- strange things in place of files --------------------------------------------------------------------------------


def make_socket(path):
    here = Path.cwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


STRANGE = {
    "directory": Path.mkdir,
    "FIFO": os.mkfifo,
    "socket": make_socket,
    "circle": lambda path: path.symlink_to(path.name),
    "dangling link": lambda path: path.symlink_to("nowhere"),
    "device": lambda path: path.symlink_to(os.devnull),
    "empty": Path.touch,
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", STRANGE)
def test_strange_things_in_place_of_any_file_are_survived(kind, names, tmp_path):
    for number, name in enumerate(names):
        root = tmp_path / str(number)
        small(root)
        (root / name).unlink()
        STRANGE[kind](root / name)
        assert ask_everything(root), name


@pytest.mark.slow
@pytest.mark.parametrize("kind", STRANGE)
def test_strange_things_in_place_of_any_directory_are_survived(kind, tmp_path):
    directories = ["commitlog", "consumequeue", "consumequeue/T0", "consumequeue/T0/0", "index", "config"]
    for number, name in enumerate(directories):
        root = tmp_path / str(number)
        small(root)
        (root / name).rename(tmp_path / f"moved-{number}")
        STRANGE[kind](root / name)
        assert ask_everything(root), name


def test_a_queue_directory_that_contains_itself_is_survived(tmp_path):
    small(tmp_path / "store")
    (tmp_path / "store/consumequeue/again").symlink_to("..")
    (tmp_path / "store/commitlog/again").symlink_to("..")
    answers = ask_everything(tmp_path / "store")
    assert len(answers["messages"][0]) == 60


# --- broken files ----------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.slow
def test_every_file_cut_at_many_lengths_is_survived(names, tmp_path):
    root = tmp_path / "store"
    small(root)
    for name in names:
        path = root / name
        whole = path.read_bytes()
        lengths = {0, 1, 7, 8, 9, 19, 20, 21, 39, 40, 41, 90, 91, len(whole) // 2, len(whole) - 1} | set(
            range(0, len(whole), max(1, len(whole) // 12))
        )
        for length in sorted(cut for cut in lengths if 0 <= cut < len(whole)):
            path.write_bytes(whole[:length])
            answers = ask_everything(root)
            assert "messages" in answers, (name, length)
        path.write_bytes(whole)


CONTENT = {
    "zeros": bytes,
    "ones": lambda size: b"\xff" * size,
    "random": lambda size: random.Random(size).randbytes(size),
    "text": lambda size: (b"not what you think " * size)[:size],
    "longest": lambda size: b"\x7f\xff\xff\xff" * (size // 4),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", CONTENT)
def test_other_bytes_in_place_of_any_file_are_survived(kind, names, tmp_path):
    root = tmp_path / "store"
    small(root)
    for name in names:
        path = root / name
        whole = path.read_bytes()
        for size in (len(whole), len(whole) + 13, 5):
            path.write_bytes(CONTENT[kind](size))
            assert "messages" in ask_everything(root), (name, size)
        path.write_bytes(whole)


HOSTILE = [-(1 << 31), -1, 0, 1, 19, 0x7FFF, 1 << 20, (1 << 31) - 1]
LENGTH_FIELDS = {"total_size": 0, "body_length": 84, "sys_flag": 36, "topic": 88 + 9 - 3, "properties": 88 + 9 + 1}


@pytest.mark.slow
@pytest.mark.parametrize("value", HOSTILE)
def test_hostile_lengths_in_any_record_are_survived(value, tmp_path):
    root = tmp_path / "store"
    builder = small(root)
    for put in (builder.puts[0], builder.puts[7], builder.puts[-1]):
        path = root / f"commitlog/{put.physical_offset // SIZE * SIZE:020}"
        whole = path.read_bytes()
        for offset in LENGTH_FIELDS.values():
            at = put.physical_offset % SIZE + offset
            path.write_bytes(whole[:at] + struct.pack(">i", value) + whole[at + 4 :])
            found = ask_everything(root)["messages"][0]
            assert set(found) >= {other.physical_offset for other in builder.puts if other is not put}
        path.write_bytes(whole)


@pytest.mark.slow
@pytest.mark.parametrize("value", HOSTILE)
@pytest.mark.parametrize("offset", [0, 4, 8, 12, 16])
def test_hostile_numbers_in_every_unit_are_survived(value, offset, tmp_path):
    root = tmp_path / "store"
    small(root)
    for path in (root / "consumequeue").rglob("0" * 20):
        data = bytearray(path.read_bytes())
        for at in range(offset, len(data), 20):
            data[at : at + 4] = struct.pack(">i", value)
        path.write_bytes(data)
    answers = ask_everything(root)
    assert len(answers["messages"][0]) == 60


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "null",
        "7",
        '"text"',
        "{}",
        '{"offsetTable": 7}',
        '{"offsetTable": {"a": 1}}',
        "\0" * 512,
        '{"offsetTable": {"a@b": {"x": "y"}}}',
        '{"topicConfigTable": []}',
        '{"topicConfigTable": {"T": null}}',
        '{"subscriptionGroupTable": {"g": 3}}',
        "[" * 100_000,
        '{"offsetTable": {"1": 1e400}}',
        '{"offsetTable": {"1": 99999999999999999999}}',
        '{"offsetTable": {"T0@group": {"0": 99999999999999999999}}}',
    ],
)
def test_garbage_in_the_configuration_is_a_problem_and_no_failure(content, tmp_path):
    root = tmp_path / "store"
    small(root)
    for path in (root / "config").iterdir():
        path.write_text(content)
    answers = ask_everything(root)
    assert len(answers["messages"][0]) == 60
    assert not isinstance(answers["plain"], MqtoolError)


# --- configurations --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "error", "words"),
    [
        ({"maxHashSlotNum": "many"}, UsageError, "maxHashSlotNum: expected a whole number, found 'many'"),
        ({"mappedFileSizeCommitLog": "1G"}, UsageError, "expected a whole number"),
        ({"storePathCommitLog": "/nowhere/at/all"}, LayoutError, "names this CommitLog directory"),
    ],
)
def test_a_configuration_that_cannot_be_is_refused(config, error, words, tmp_path):
    small(tmp_path / "store")
    with pytest.raises(error, match=words):
        mqtool.open(tmp_path / "store", config).index_files()


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: None, lambda path: path.symlink_to(path.name)])
def test_a_configuration_file_that_is_none_is_refused(make, tmp_path):
    small(tmp_path / "store")
    make(tmp_path / "broker.conf")
    with pytest.raises(ConfigFileError, match="expected a properties file"):
        mqtool.open(tmp_path / "store", tmp_path / "broker.conf")


@pytest.mark.parametrize("value", ["0", "-1", "-2147483648", "2147483647", "99999999999999999999"])
@pytest.mark.parametrize(
    "key",
    [
        "mappedFileSizeCommitLog",
        "mappedFileSizeConsumeQueue",
        "maxHashSlotNum",
        "maxIndexNum",
        "mapperFileSizeBatchConsumeQueue",
        "mappedFileSizeConsumeQueueExt",
    ],
)
def test_hostile_sizes_in_a_configuration_are_survived(key, value, tmp_path):
    small(tmp_path / "store")
    assert ask_everything(tmp_path / "store", {key: value})


@pytest.mark.parametrize(
    "wanted",
    [
        {"start": 9, "end": 3},
        {"begin_time": 9, "end_time": 3},
        {"limit": -1},
        {"grep": "("},
        {"nonsense": 1},
        {"topics": ["["], "grep": "*"},
    ],
)
def test_a_selection_that_makes_no_sense_is_refused_before_anything_is_read(wanted, tmp_path):
    small(tmp_path / "store")
    with mqtool.open(tmp_path / "store") as store, pytest.raises(UsageError):
        list(store.messages(**wanted))


# --- real stores -----------------------------------------------------------------------------------------------------


COMMON = answered("gets", "queries", "times", "messages", "queues")


@pytest.mark.slow
@pytest.mark.parametrize("name", [store.name for store in STORES if store not in COMMON])
def test_a_store_of_a_less_common_feature_answers_everything_and_is_not_written_to(name, tmp_path):
    root = copy_store(name, tmp_path)
    before = tree_digest(root)
    assert ask_everything(root)
    assert tree_digest(root) == before


# --- next to the store's files ---------------------------------------------------------------------------------------


def test_directories_of_other_names_are_part_of_the_log_only_if_they_hold_records(tmp_path, monkeypatch):
    builder = small(tmp_path / "store")
    root = tmp_path / "store"
    for name, data in (
        ("short", b"1234"),
        ("text", b"x" * 100),
        ("denied", (root / "commitlog" / f"{0:020}").read_bytes()),
    ):
        (root / name).mkdir()
        (root / name / f"{SIZE:020}").write_bytes(data)
    with unreadable(monkeypatch, root / "denied" / f"{SIZE:020}"), mqtool.open(root) as store:
        assert store.layout.commit_log_dirs == (root / "commitlog",)
        assert sum(isinstance(message, Message) for message in store.messages()) == len(builder.puts)


def test_a_ledger_without_data_and_a_timer_checkpoint_that_cannot_be_read_are_described(tmp_path, monkeypatch):
    root = tmp_path / "store"
    small(root)
    (root / "dledger-n0" / "index").mkdir(parents=True)
    (root / "timerlog").mkdir()
    (root / "timerlog" / f"{0:020}").write_bytes(bytes(520))
    (root / "config" / "timercheck").write_bytes(bytes(56))
    with mqtool.open(root) as store:
        assert "dledger-n0/ exists, but contains no data file of a DLedger log in use" in oddities(store)
        assert describe(store)["timer"]["last_read_time"] == 0
    with unreadable(monkeypatch, root / "config" / "timercheck"), mqtool.open(root) as store:
        assert describe(store)["timer"] == {
            "log_files": 1,
            "waiting": None,
            "last_read_time": None,
            "last_queue_offset": None,
        }


def test_a_copy_of_a_directory_has_its_files_and_nothing_else(tmp_path):
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "inner").mkdir(parents=True)
    (source / "inner" / "file").write_bytes(b"content")
    (source / "link").symlink_to("inner/file")
    (source / "loop").symlink_to(".")
    (source / "gone").symlink_to("nowhere")
    os.mkfifo(source / "fifo")
    target.mkdir()
    copy_tree(source, target)
    assert {path.relative_to(target).as_posix() for path in target.rglob("*")} == {"inner", "inner/file", "link"}
    assert (target / "link").read_bytes() == b"content"
    assert not (target / "link").is_symlink()
