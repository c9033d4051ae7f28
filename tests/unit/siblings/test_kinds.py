"""The interface of kinds: what is recognised, that rows are what columns declare, and that export keeps them."""

import errno
import json
import os
import shlex
import shutil
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from mqtool.cli.app import run
from mqtool.cli.exits import ExitCode
from mqtool.errors import CorruptionError, ExportError, UnreadableError
from mqtool.records.damage import Damage
from mqtool.siblings import arrow
from mqtool.siblings.base import OpenedStore
from mqtool.siblings.equeue.listing import EQueueSettings
from mqtool.siblings.equeue.writer import EQueueWriter
from mqtool.siblings.frames import FrameFile
from mqtool.siblings.registry import KINDS, VERBS, recognise
from mqtool.siblings.tfchunk.kind import OpenedTFChunk
from mqtool.siblings.tfchunk.store import TFChunkDb, is_database
from mqtool.siblings.tiered.store import is_tiered
from mqtool.verify.findings import Severity
from tests.support.chunks import EQUEUE_STORES, TFCHUNK_STORES, damaged, equeue_store, lines, tfchunk_store
from tests.support.dledger_cases import overwrite
from tests.support.stores import STORES, copy_store, copy_tree, fixture
from tests.support.unreadable import unlistable, unreadable

PYTHON = {"int32": int, "int64": int, "time": int, "boolean": bool, "string": str, "bytes": bytes}
ROOTS = [equeue_store(name) for name in EQUEUE_STORES] + [tfchunk_store(name) for name in TFCHUNK_STORES]


@pytest.mark.parametrize("root", ROOTS, ids=lambda root: root.parent.name)
def test_a_store_is_recognised_as_its_own_kind_only(root):
    assert [kind.name for kind in KINDS if kind.recognises(root)] == [
        "equeue" if root.parent.name.startswith("equeue-") else "tfchunk"
    ]


@pytest.mark.parametrize("store", STORES, ids=str)
def test_a_store_of_rocketmq_is_none_of_these_kinds(store):
    assert store.directory is None or recognise(store.directory) is None


@pytest.mark.parametrize("path", ["equeue-small", "README.md", "equeue-small/store/message-chunks", "nothing"])
def test_another_path_is_none_of_these_kinds(path, tmp_path):
    assert recognise(tmp_path if path == "nothing" else fixture(path)) is None


@pytest.mark.parametrize("root", ROOTS, ids=lambda root: root.parent.name)
def test_every_row_has_the_columns_and_types_that_its_table_declares(root):
    kind = recognise(root)
    assert kind is not None
    with kind.open(root) as opened:
        assert opened.tables == kind.tables
        for table in opened.tables:
            rows = list(opened.rows(table.name))
            assert rows
            for row in rows:
                assert list(row) == [column.name for column in table.columns]
                for column in table.columns:
                    assert row[column.name] is None or type(row[column.name]) is PYTHON[column.type]


@pytest.mark.parametrize("root", ROOTS, ids=lambda root: root.parent.name)
def test_a_table_in_parquet_has_the_rows_of_the_store(root, tmp_path):
    kind = recognise(root)
    assert kind is not None
    with kind.open(root) as opened:
        for table in opened.tables:
            target = tmp_path / f"{table.name}.parquet"
            rows = list(opened.rows(table.name))
            assert arrow.export(opened, target, table.name) == len(rows)
            found = pq.read_table(target)
            assert found.schema.names == [column.name for column in table.columns]
            plain = [column.name for column in table.columns if column.type != "time"]
            assert found.select(plain).to_pylist() == [{name: row[name] for name in plain} for row in rows]
            with pytest.raises(ExportError):
                arrow.export(opened, target, table.name)


def test_an_export_tells_of_damage_and_goes_on(tmp_path):
    damage: list[Damage] = []
    with KINDS[0].open(damaged("done-record-suffix", tmp_path / "store")) as opened:
        assert arrow.export(opened, tmp_path / "rows.parquet", at_damage=damage.append) == 61
    assert [one.kind for one in damage] == ["lengths-differ"]


def test_a_message_is_found_by_position_place_and_id():
    with KINDS[0].open(equeue_store("equeue-unicode")) as opened:
        for line in lines("equeue-unicode", "messages")[::17]:
            addresses = [str(line["position"]), line["messageId"]]
            assert [row["position"] for one in addresses for row in opened.get(one)] == [line["position"]] * 2
        for line in lines("equeue-unicode", "queue-entries")[::17]:
            (row,) = opened.get(f"{line['topic']}/{line['queueId']}@{line['queueOffset']}")
            assert row["message_id"] == line["messageId"]
        assert opened.get("nowhere") == []
        assert opened.get("订单/9@0") == []
        with pytest.raises(CorruptionError):
            opened.get("1")


@pytest.mark.parametrize("root", [equeue_store("equeue-small"), tfchunk_store("plain")])
def test_verify_goes_through_the_interface(root):
    kind = recognise(root)
    assert kind is not None
    with kind.open(root) as opened:
        assert [finding for finding in opened.verify() if finding.severity is not Severity.UNKNOWN] == []


def test_every_kind_has_known_verbs_and_a_page():
    pages = fixture(".").parent / "docs" / "formats"
    for kind in KINDS:
        assert set(kind.verbs) <= set(VERBS)
        assert (pages / kind.page).is_file()


@pytest.mark.slow
def test_the_python_of_the_page_about_kinds_runs():
    root = fixture(".").parent
    page = (root / "docs" / "kinds.md").read_text("utf-8")
    source = page.split("```python\n")[1].split("```")[0]
    result = subprocess.run(
        [sys.executable, "-c", source],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(root)},
    )
    assert result.stderr == ""
    assert result.stdout == "None False [8139, 10149]\n"


@pytest.mark.slow
def test_the_commands_of_the_page_about_kinds_run(tmp_path):
    root = fixture(".").parent
    page = (root / "docs" / "kinds.md").read_text("utf-8")
    commands = [line for line in page.splitlines() if line.startswith("mqtool ")]
    assert len(commands) == 10
    (tmp_path / "fixtures").symlink_to(root / "fixtures")  # some write beside it
    environment = os.environ | {"PYTHONPATH": str(root)}
    for command in commands:
        arguments = [sys.executable, "-m", *shlex.split(command)]
        result = subprocess.run(arguments, cwd=tmp_path, capture_output=True, check=False, env=environment)
        assert (result.returncode, bool(result.stdout)) == (0, True), command


def test_a_store_of_equeue_that_cannot_be_listed_is_not_taken_for_something_else(tmp_path, monkeypatch, capsys):
    root = copy_tree(fixture("equeue-small/store"), tmp_path / "store")
    with unlistable(monkeypatch, root / "message-chunks"):
        for command in ("info", "verify", "dump"):
            assert run([command, str(root)]) == ExitCode.REFUSED
            assert f"{root / 'message-chunks'}: cannot be listed: Permission denied" in capsys.readouterr().err


@pytest.mark.parametrize("address", ["x", "-1", "1.5", "1" * 5000])
def test_an_address_that_is_no_position_of_a_database_is_of_nothing(address, capsys):
    assert run(["get", str(tfchunk_store("plain")), "--", address]) == ExitCode.NO
    assert capsys.readouterr().err == f"mqtool: {address}: nothing found\n"


def test_a_directory_between_chunks_is_no_chunk(tmp_path, capsys):
    root = copy_tree(fixture("equeue-small/store"), tmp_path / "store")
    for name in ("message-chunks/message-chunk-000000009", "queue-chunks/orders/0/queue-chunk-000000009"):
        (root / name).mkdir()
    assert run(["verify", str(root)]) == ExitCode.OK
    assert "clean: nothing is wrong" in capsys.readouterr().out
    assert run(["dump", str(root), "--format", "jsonl"]) == ExitCode.OK
    assert len(capsys.readouterr().out.splitlines()) == len(lines("equeue-small", "messages"))


def test_a_queue_offset_of_thousands_of_digits_is_of_nothing(capsys):
    assert run(["get", str(fixture("equeue-small/store")), "orders/0@" + "1" * 5000]) == ExitCode.NO
    assert capsys.readouterr().err.endswith("nothing found\n")


def test_a_directory_named_like_a_chunk_is_none_of_a_database(tmp_path, capsys):
    root = copy_tree(tfchunk_store("plain"), tmp_path / "store")
    (root / "chunk-000009.000000").mkdir()
    (root / "chunk-000008.000000").symlink_to(root / "nothing")
    assert run(["verify", str(root)]) == ExitCode.OK
    assert "clean: nothing is wrong" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("store", "chunk", "code"),
    [
        (tfchunk_store("plain"), "chunk-000001.000000", "tfchunk-unreadable"),
        (equeue_store("equeue-small"), "message-chunks/message-chunk-000000001", "equeue-unreadable"),
        (equeue_store("equeue-small"), "queue-chunks/orders/0/queue-chunk-000000001", "equeue-unreadable"),
    ],
    ids=["tfchunk", "messages", "queue"],
)
def test_a_chunk_that_may_not_be_read_is_unknown_and_the_others_are_read(store, chunk, code, monkeypatch, capsys):
    with unreadable(monkeypatch, store / chunk):
        kind = recognise(store)
        assert kind is not None
        with kind.open(store) as opened:
            found = {(one.code, one.severity, one.file) for one in opened.verify()}
            assert (code, Severity.UNKNOWN, str(store / chunk)) in found
            assert opened.layout().get("start", "unknown") == "unknown"
            reports = {row["file"]: row for row in opened.salvage(None)}
    assert sum(row["forwards"] for row in reports.values()) > 0
    assert run(["verify", str(store)]) == ExitCode.OK


def written_equeue(root):
    """A store with a completed chunk of 64 KiB and a current one."""
    with EQueueWriter(root, EQueueSettings(message_chunk_size=1 << 16, queue_chunk_entries=1000)) as writer:
        for number in range(400):
            writer.put("Orders", 0, b"%d " % number + bytes(100))
    return root


@pytest.mark.parametrize(
    ("chunk", "table", "code"),
    [
        ("chunk-000001.000000", "tfchunk-record", "tfchunk-unreadable"),
        ("message-chunks/message-chunk-000000000", "equeue-message", "equeue-unreadable"),
    ],
    ids=["tfchunk", "equeue"],
)
def test_what_is_around_a_bad_sector_is_read_and_what_is_lost_is_said(
    chunk, table, code, monkeypatch, capsys, tmp_path
):
    store = tfchunk_store("plain") if table.startswith("tfchunk") else written_equeue(tmp_path / "store")
    path, sector = store / chunk, 4096
    kind = recognise(store)
    assert kind is not None
    with kind.open(store) as opened:
        every = [row for row in opened.rows(table) if not isinstance(row, Damage)]
        whole = {row["file"]: row for row in opened.salvage(None)}[path.name]
    with unreadable(monkeypatch, path, from_position=sector, until=sector + 512):
        with kind.open(store) as opened:
            rows = list(opened.rows(table))
            codes = {(one.code, one.severity) for one in opened.verify()}
            report = {row["file"]: row for row in opened.salvage(tmp_path / "saved")}[path.name]
        assert run(["dump", str(store), "--format", "jsonl"]) == ExitCode.NO
        dumped = capsys.readouterr()
    found = [row for row in rows if not isinstance(row, Damage)]
    damage = [row for row in rows if isinstance(row, Damage)]
    assert [one.kind for one in damage] == ["unreadable"]
    assert damage[0].path == path
    assert damage[0].detail.endswith("Input/output error")
    assert 0 < len(every) - len(found) < whole["forwards"]
    assert all(row in every for row in found)
    assert (code, Severity.UNKNOWN) in codes
    assert Severity.ERROR not in {severity for _, severity in codes}
    kept = report["forwards"] + report["backwards"] + report["between"]
    assert whole["forwards"] - kept == len(every) - len(found)
    assert report["damaged_bytes"] >= 512
    assert len(dumped.out.splitlines()) == len(found)
    assert "Input/output error" in dumped.err


@pytest.mark.parametrize("table", ["tfchunk-record", "equeue-message"])
@pytest.mark.parametrize("number", [0, 20, -1], ids=["first", "inner", "last"])
def test_a_record_whose_body_was_not_read_completely_is_damage(number, table, monkeypatch, tmp_path):
    store = tfchunk_store("plain") if table.startswith("tfchunk") else written_equeue(tmp_path / "store")
    kind = recognise(store)
    assert kind is not None
    with kind.open(store) as opened:
        path = next(store.rglob(opened.parts(table)[min(number, 0)]))
        every = [row for row in opened.rows(table) if not isinstance(row, Damage)]
        of_file = opened.rows_of_file(path)
        assert of_file is not None
        of_chunk = [row for row in of_file[1] if not isinstance(row, Damage)]
    bad = [row for row in of_chunk if len(row["body"] or b"") >= 16][number]
    monkeypatch.setattr("mqtool.store.log.readable_parts.PAGE", 8)
    at = path.read_bytes().index(bad["body"], bad["position"] - of_chunk[0]["position"]) // 8 * 8 + 8
    with unreadable(monkeypatch, path, from_position=at, until=at + 1), kind.open(store) as opened:
        rows = list(opened.rows(table))
        assert [row for row in rows if not isinstance(row, Damage)] == [row for row in every if row != bad]
        (damage,) = (row for row in rows if isinstance(row, Damage))
        assert (damage.start, damage.kind) == (bad["position"], "unreadable")
        with pytest.raises(UnreadableError, match="Input/output error"):
            opened.get(str(bad["position"]))
        report = {row["file"]: row for row in opened.salvage(tmp_path / "saved")}[path.name]
        codes = {one.code: one.severity for one in opened.verify()}
    assert report["damaged_bytes"] > 0
    assert set(codes.values()) == {Severity.UNKNOWN}


def test_verify_of_eventstore_checks_what_follows_a_bad_sector(monkeypatch, tmp_path):
    root = copy_tree(tfchunk_store("plain"), tmp_path / "store")
    path = root / "chunk-000001.000000"
    with OpenedTFChunk(root) as opened:
        place = next(row["position"] for row in opened.rows("tfchunk-record") if row["position"] > 16384 + 12000)
    overwrite(path, 128 + place - 16384, (0).to_bytes(4, "little"))
    with unreadable(monkeypatch, path, from_position=4096, until=4608), OpenedTFChunk(root) as opened:
        found = {(one.code, one.severity, one.position) for one in opened.verify() if one.file == str(path)}
    assert found >= {
        ("tfchunk-unreadable", Severity.UNKNOWN, 4096),
        ("tfchunk-frames", Severity.ERROR, 128 + place - 16384),
    }
    assert {code for code, *_ in found} == {"tfchunk-unreadable", "tfchunk-frames", "tfchunk-frames-backward"}


def test_verify_of_eventstore_opens_each_chunk_once(monkeypatch):
    opened, opens = [], FrameFile.__init__

    def counts(self, path):
        opened.append(path.name)
        opens(self, path)

    monkeypatch.setattr(FrameFile, "__init__", counts)
    assert run(["verify", str(tfchunk_store("plain"))]) == ExitCode.OK
    assert sorted(opened) == [f"chunk-{number:06d}.000000" for number in range(4)]


def test_a_record_that_cannot_be_read_is_no_damaged_one(monkeypatch):
    store = tfchunk_store("plain")
    kind = recognise(store)
    assert kind is not None
    path = store / "chunk-000001.000000"
    with unreadable(monkeypatch, path, from_position=4096, until=4608), kind.open(store) as opened:
        (damage,) = (row for row in opened.rows("tfchunk-record") if isinstance(row, Damage))
        with pytest.raises(UnreadableError, match="Input/output error"):
            opened.get(str(damage.start))


def test_what_a_start_does_is_unknown_if_only_it_reads_what_cannot_be_read(monkeypatch):
    """A bad sector after what tells the layout of the records."""
    store = equeue_store("equeue-small")
    chunk = store / "message-chunks/message-chunk-000000002"

    def start(*_):
        raise UnreadableError("cannot be read at position 2000000: Input/output error", chunk)

    monkeypatch.setattr("mqtool.siblings.equeue.kind.start", start)
    kind = recognise(store)
    assert kind is not None
    with kind.open(store) as opened:
        layout = opened.layout()
    assert layout["start"] == "unknown"
    assert layout["oddities"] == [
        f"what a start does is unknown: {chunk}: cannot be read at position 2000000: Input/output error"
    ]


@pytest.mark.parametrize(("changed", "kind"), [("missing", "missing-chunk"), ("cut", "no-chunk")])
def test_entries_of_a_chunk_that_is_not_read_are_damage_of_their_table(changed, kind, tmp_path, capsys):
    root = copy_tree(fixture("equeue-small/store"), tmp_path / "store")
    chunk = root / "queue-chunks/orders/0/queue-chunk-000000001"
    if changed == "cut":
        os.truncate(chunk, 50)
    else:
        chunk.unlink()
    assert run(["export", str(root), "-o", str(tmp_path / "lake"), "--format", "jsonl"]) == ExitCode.NO
    rows = {row["table"]: row for row in map(json.loads, capsys.readouterr().out.splitlines())}
    assert (rows["equeue-entry"]["damage"], rows["equeue-message"]["damage"]) == (1, 0)
    assert run(["dump", str(root), "--table", "equeue-entry", "--format", "jsonl"]) == ExitCode.NO
    captured = capsys.readouterr()
    assert len(captured.out.splitlines()) == rows["equeue-entry"]["rows"]
    assert f"{chunk} position 0: {kind}" in captured.err
    assert run(["verify", str(root), "--format", "jsonl"]) == ExitCode.NO
    assert str(chunk) in {json.loads(line)["file"] for line in capsys.readouterr().out.splitlines()}


def test_a_file_of_a_store_without_rows_of_its_own_is_refused(tmp_path, capsys):
    root = copy_tree(fixture("equeue-small/store"), tmp_path / "store")
    path = root / "queue-chunks/orders/0/queue-chunk-notes"
    path.write_text("x")
    assert run(["dump", str(path)]) != ExitCode.OK
    assert str(path) in capsys.readouterr().err


def test_a_kind_has_one_part_and_no_rows_of_single_files_unless_it_says_so(tmp_path):
    class Plain(OpenedStore):
        __init__ = recognises = layout = rows = get = verify = close = lambda self, *_: None

    Plain.__abstractmethods__ = frozenset()
    opened = Plain(tmp_path)
    assert opened.parts("any") == ("",)
    assert opened.rows_of_file(tmp_path) is None
    assert opened.batches("any") is None


def test_a_file_of_equeue_that_is_no_chunk_has_no_rows(tmp_path):
    root = copy_tree(fixture("equeue-small/store"), tmp_path / "store")
    chunk = next((root / "queue-chunks/orders/0").glob("queue-chunk-*"))
    with KINDS[0].open(root) as opened:
        assert list(opened.rows_of_file(chunk)[1])
        assert opened.rows_of_file(chunk.with_name("queue.setting")) is None


def dumped(path, capsys):
    """Exit code, rows and notes of the dump of a file."""
    code = run(["dump", str(path), "--format", "jsonl"])
    printed = capsys.readouterr()
    return code, [row for line in printed.out.splitlines() if "error" not in (row := json.loads(line))], printed.err


def test_a_queue_chunk_has_the_entries_of_its_header_whatever_its_name(tmp_path, capsys):
    root = copy_tree(fixture("equeue-small/store"), tmp_path / "store")
    first, second = (root / f"queue-chunks/orders/0/queue-chunk-00000000{number}" for number in (0, 1))
    rows = [dumped(path, capsys)[1] for path in (first, second)]
    assert [one["queue_offset"] for one in rows[0] + rows[1]] == list(range(16))
    first.rename(tmp_path / "other")
    second.rename(first)
    (tmp_path / "other").rename(second)
    assert [dumped(path, capsys) for path in (first, second)] == [(0, rows[1], ""), (0, rows[0], "")]


UNREAD = {
    "cut": ("no-chunk at physical offset 0", lambda path: os.truncate(path, 50)),
    "no-header": ("no-chunk at physical offset 0", lambda path: overwrite(path, 0, bytes(8))),
    "copy": ("states chunk number 0", lambda path: shutil.copy(path.with_name(path.name[:-1] + "0"), path)),
}


@pytest.mark.parametrize("change", UNREAD)
@pytest.mark.parametrize(
    "name", ["message-chunks/message-chunk-000000001", "queue-chunks/orders/0/queue-chunk-000000001"]
)
def test_the_dump_of_a_chunk_that_is_not_read_says_why(name, change, tmp_path, capsys):
    path = copy_tree(fixture("equeue-small/store"), tmp_path / "store") / name
    words, make = UNREAD[change]
    make(path)
    code, rows, notes = dumped(path, capsys)
    assert (code, rows) == (ExitCode.NO, [])
    assert notes.startswith(f"mqtool: damage: {path} position 0: no-chunk")
    assert words in notes
    assert all(line.startswith(f"mqtool: damage: {path} ") for line in notes.splitlines())


@pytest.mark.parametrize("data", [bytes(1), bytes(50)], ids=["header", "empty"])
def test_the_dump_of_a_tfchunk_that_is_not_read_says_why(data, tmp_path, capsys):
    path = copy_tree(tfchunk_store("plain"), tmp_path / "store") / "chunk-000001.000000"
    overwrite(path, 0, data)
    if len(data) == 50:
        os.truncate(path, 50)
    code, rows, notes = dumped(path, capsys)
    assert (code, rows) == (ExitCode.NO, [])
    assert notes.startswith(f"mqtool: damage: {path} position 0: no-chunk")
    assert notes.count("\n") == 1


def test_the_dump_of_a_chunk_that_may_not_be_read_says_so(tmp_path, monkeypatch, capsys):
    root = copy_tree(fixture("equeue-small/store"), tmp_path / "store")
    for name in ("message-chunks/message-chunk-000000001", "queue-chunks/orders/0/queue-chunk-000000001"):
        with unreadable(monkeypatch, root / name):
            code, rows, notes = dumped(root / name, capsys)
        assert (code, rows) == (ExitCode.NO, [])
        assert "Permission denied" in notes


def test_a_chunk_without_an_entry_yet_has_no_rows_and_no_damage(tmp_path, capsys):
    root = tmp_path / "store"
    with EQueueWriter(root, EQueueSettings(message_chunk_size=1 << 16, queue_chunk_entries=10)) as writer:
        for _ in range(11):
            writer.put("Orders", 0, b"x")
    path = root / "queue-chunks/Orders/0/queue-chunk-000000001"
    assert len(dumped(path, capsys)[1]) == 1
    overwrite(path, 128, bytes(12))
    assert dumped(path, capsys) == (ExitCode.OK, [], "")


def test_a_directory_of_which_the_disk_says_nothing_is_not_taken_for_something_else(tmp_path, monkeypatch):
    root, system = copy_tree(fixture("equeue-small/store"), tmp_path / "store"), Path.is_dir
    shutil.rmtree(root / "message-chunks")

    def failing(self):
        if self.name == "queue-chunks":
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(self))
        return system(self)

    assert recognise(root).name == "equeue"
    monkeypatch.setattr(Path, "is_dir", failing)
    with pytest.raises(OSError, match="Input/output error"):
        recognise(root)


def test_a_directory_that_cannot_be_searched_is_of_no_kind(tmp_path, monkeypatch):
    """The error is that of whoever opens it as a store of RocketMQ."""
    root = copy_store("tieredstore-5.5.0", tmp_path) / "tiered"
    assert is_tiered(root)
    with unlistable(monkeypatch, root):
        assert not is_tiered(root)
    for path in list(root.glob("*/*/*/*/*")):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for path in list(root.glob("*/*/*/*")):
        path.rmdir()
    assert not is_tiered(root)


@pytest.mark.parametrize("harmed", ["chunk-000000.000000", "chunk-000001.000000"])
def test_a_chunk_that_cannot_be_read_does_not_hide_the_database(harmed, tmp_path, monkeypatch):
    root = copy_tree(tfchunk_store("plain"), tmp_path / "store")
    with unreadable(monkeypatch, root / harmed):
        assert is_database(root)
    for path in root.glob("chunk-*"):
        path.unlink() if path.name != harmed else None
    with unreadable(monkeypatch, root / harmed):
        assert not is_database(root)


def test_lengths_around_a_record_that_do_not_agree_are_found_from_its_end_too(tmp_path):
    """The length before it fits another end, at which the same length is again."""
    frame = (2).to_bytes(4, "little") + b"ab" + (2).to_bytes(4, "little")
    rest = b"xyz"
    whole = len(frame) + len(rest) - 4
    data = frame + rest + whole.to_bytes(4, "little")
    (tmp_path / "file").write_bytes(bytes(128) + data)
    file = FrameFile(tmp_path / "file")
    try:
        assert file.frame_at(0, len(data), 100).end == len(frame)
        assert file.frame_before(len(frame), 0, 100).record == b"ab"
        found = file.frame_before(len(data), 0, 100)
        assert (found.kind, found.detail) == ("lengths-differ", f"length 2 before the record, {whole} after it")
    finally:
        file.close()


def test_an_export_that_fails_leaves_no_file(tmp_path, monkeypatch, capsys):
    root = copy_tree(tfchunk_store("plain"), tmp_path / "store")
    runs = TFChunkDb.runs

    def fails(self, name=""):
        yield from islice(runs(self, name), 1)
        raise UnreadableError("cannot be read at position 5000", root)

    monkeypatch.setattr(TFChunkDb, "runs", fails)
    assert run(["export", str(root), "--output", str(tmp_path / "lake")]) == ExitCode.IO_ERROR
    assert "cannot be read at position" in capsys.readouterr().err
    assert list((tmp_path / "lake").iterdir()) == []
