"""A backup comes back byte for byte or is refused by name; what has not changed is stored once."""

import hashlib
import json
import os
import shutil
import sys

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import mqtool
from mqtool.cli.app import run as cli
from mqtool.engine import open_store
from mqtool.engine.options import options_from_config
from mqtool.errors import RefusedError, StoreError, UnsupportedFormatError, UsageError
from mqtool.jobs import atomic
from mqtool.repair.backup import backup, create, restore, snapshots
from mqtool.repair.backup.create import list_files
from mqtool.repair.backup.snapshots import PIECE, Pieces, load
from mqtool.store.config import broker_config
from mqtool.verify import verify
from tests.cli.answers import problems
from tests.support.damage import held_lock
from tests.support.engine import open_small
from tests.support.stores import copy_store, copy_tree, store_fixture, tree_digest
from tests.support.tiers import one_in
from tests.support.unreadable import unlistable


def contents(root):
    """Path to mode, time and bytes of every file but the lock, and directories."""
    return {
        path.relative_to(root).as_posix(): (path.stat().st_mode, path.stat().st_mtime_ns, path.read_bytes())
        if path.is_file()
        else None
        for path in root.rglob("*")
        if path.name != "lock"
    }


@pytest.mark.parametrize("name", one_in(2, ["orders-5.5.0", "crash-4.9.7", "bcq-5.5.0", "timer-5.5.0"]))
def test_a_store_comes_back_byte_for_byte(name, tmp_path):
    root = copy_store(name, tmp_path)
    before = tree_digest(root)
    backup(root, tmp_path / "backup")
    found = restore(tmp_path / "backup", tmp_path / "again")
    assert contents(tmp_path / "again") == contents(root)
    with mqtool.open(root) as store:
        assert found.verify == verify(store).state.value
    assert tree_digest(root) == before


def test_a_manifest_that_does_not_state_an_owner_is_read(tmp_path):
    backup(copy_store("orders-5.5.0", tmp_path), tmp_path / "backup")
    snapshot = replace(load(tmp_path / "backup"), owner="")
    path = snapshot.write(tmp_path / "backup")
    assert "owner" not in json.loads(path.read_bytes())
    assert load(tmp_path / "backup") == snapshot


@pytest.mark.slow
def test_zeros_take_no_space(tmp_path):
    root = copy_store("default-sizes", tmp_path)
    made = backup(root, tmp_path / "backup")
    on_disk = sum(path.stat().st_size for path in (tmp_path / "backup").rglob("*") if path.is_file())
    assert made.read > 1 << 30
    assert on_disk < 1 << 20
    restore(tmp_path / "backup", tmp_path / "again")
    taken = sum(path.stat().st_blocks * 512 for path in (tmp_path / "again").rglob("*") if path.is_file())
    assert taken < 64 << 20


@pytest.mark.slow
def test_the_second_backup_stores_only_what_is_new(tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    first = backup(root, tmp_path / "backup")
    assert backup(root, tmp_path / "backup").new_pieces == 0
    (root / "checkpoint").write_bytes(bytes(4095) + b"1")
    third = backup(root, tmp_path / "backup")
    assert third.new_pieces == 1
    restore(tmp_path / "backup", tmp_path / "old", first.snapshot.name)
    assert (tmp_path / "old" / "checkpoint").read_bytes() != (root / "checkpoint").read_bytes()


def test_an_interrupted_backup_is_no_snapshot_and_the_next_run_uses_what_it_stored(tmp_path, monkeypatch):
    root, destination = copy_store("orders-5.5.0", tmp_path), tmp_path / "backup"

    def fail(_self):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Pieces, "sync", fail)
        with pytest.raises(OSError, match="No space"):
            backup(root, destination)
    stored = len(list((destination / "pieces").rglob("*.zst")))
    assert stored
    with pytest.raises(RefusedError, match="incomplete"):
        restore(destination, tmp_path / "again")
    begun = next((destination / "snapshots").iterdir()).name.removesuffix(".incomplete")
    with pytest.raises(RefusedError, match="incomplete"):
        restore(destination, tmp_path / "again", begun)
    made = backup(root, destination)
    assert made.resumed
    assert made.new_pieces == 0
    assert snapshots(destination) == [made.snapshot.name]
    assert not list((destination / "snapshots").glob("*.incomplete"))


@pytest.mark.parametrize("after", [0, 1, 5, 20])
def test_a_backup_that_dies_anywhere_is_finished_by_the_next(after, tmp_path, monkeypatch):
    root, destination = copy_store("rollover-5.5.0", tmp_path), tmp_path / "backup"
    backup(root, destination)
    (root / "commitlog" / f"{0:020}").write_bytes(b"\1" * 4096)
    for path in (root / "consumequeue").rglob("0*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[::-1])
    add, left = Pieces.add, [after]

    def dies(self, data):
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        return add(self, data)

    with monkeypatch.context() as patch:
        patch.setattr(Pieces, "add", dies)
        with pytest.raises(KeyboardInterrupt):
            backup(root, destination)
    assert len(snapshots(destination)) == 1
    made = backup(root, destination)
    assert made.resumed
    restore(destination, tmp_path / "again")
    assert contents(tmp_path / "again") == contents(root)


def test_a_restore_that_dies_leaves_nothing_that_looks_whole(tmp_path, monkeypatch):
    root, destination = copy_store("rollover-5.5.0", tmp_path), tmp_path / "backup"
    backup(root, destination)

    def die(_path):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(atomic, "sync_tree", die)
        patch.setattr(shutil, "rmtree", lambda *_args, **_more: None)  # as after kill -9
        with pytest.raises(KeyboardInterrupt):
            restore(destination, tmp_path / "again")
    assert not (tmp_path / "again").exists()
    restore(destination, tmp_path / "again")
    assert contents(tmp_path / "again") == contents(root)


def test_a_store_error_names_the_file_that_cannot_be_written(tmp_path):
    root, destination = copy_store("orders-5.5.0", tmp_path), tmp_path / "backup"
    backup(root, destination)
    shutil.rmtree(destination / "pieces")
    (destination / "pieces").touch()
    with pytest.raises(StoreError, match="pieces"):
        backup(root, destination)


HARM = {
    "a piece gone": lambda piece, _: piece.unlink(),
    "a directory in a piece's place": lambda piece, _: (piece.unlink(), piece.mkdir()),
    "a piece cut short": lambda piece, _: os.truncate(piece, piece.stat().st_size // 2),
    "a piece empty": lambda piece, _: os.truncate(piece, 0),
    "a bit of a piece": lambda piece, _: piece.write_bytes(
        piece.read_bytes()[:-3] + bytes([piece.read_bytes()[-3] ^ 1]) + piece.read_bytes()[-2:]
    ),
    "another piece in its place": lambda piece, _: piece.write_bytes(
        next(other for other in sorted(piece.parents[1].rglob("*.zst")) if other != piece).read_bytes()
    ),
    "the manifest cut short": lambda _, manifest: os.truncate(manifest, manifest.stat().st_size // 2),
    "the manifest edited": lambda _, manifest: manifest.write_text(
        manifest.read_text().replace('"mode": 420', '"mode": 511', 1).replace('"mode": 436', '"mode": 511', 1)
    ),
}


@pytest.mark.parametrize("harm", HARM)
@pytest.mark.parametrize("check", [True, False], ids=["check", "restore"])
def test_a_damaged_backup_is_refused_by_name_and_nothing_is_made(harm, check, tmp_path):
    root, destination = copy_store("rollover-5.5.0", tmp_path), tmp_path / "backup"
    made = backup(root, destination)
    digest = max((piece for file in made.snapshot.files for piece in file.pieces), key=lambda one: one.length).sha256
    HARM[harm](Pieces(destination).path(digest), made.manifest)
    with pytest.raises(RefusedError, match="backup-damaged") as refused:
        restore(destination, None if check else tmp_path / "again")
    assert digest in str(refused.value) or made.manifest.name in str(refused.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup", "store"]


def test_two_backups_into_one_destination_in_one_second_are_two_snapshots(tmp_path, monkeypatch):
    destination = tmp_path / "backup"
    first = copy_store("rollover-5.5.0", tmp_path / "first")
    second = copy_store("orders-4.9.7", tmp_path / "second")
    moment = create.datetime.now(create.UTC)
    monkeypatch.setattr(create, "datetime", type("Clock", (), {"now": staticmethod(lambda _zone: moment)}))
    add, inner, temporary = Pieces.add, [], destination / "pieces" / "00" / ".00.zst.1-1.part"

    def meanwhile(self, data):
        if not inner:
            inner.append(None)
            temporary.parent.mkdir(parents=True)
            temporary.touch()  # as the first backup writes a piece
            inner[0] = backup(second, destination)
        return add(self, data)

    monkeypatch.setattr(Pieces, "add", meanwhile)
    outer = backup(first, destination)
    assert temporary.exists()
    assert not outer.resumed
    assert not inner[0].resumed
    assert inner[0].snapshot.name == f"{outer.snapshot.name}-2"
    assert load(destination, outer.snapshot.name).store == str(first)
    assert load(destination, inner[0].snapshot.name).store == str(second)
    assert snapshots(destination) == [outer.snapshot.name, inner[0].snapshot.name]
    assert not list((destination / "snapshots").glob("*.incomplete"))
    backup(first, destination)
    assert not temporary.exists()


def test_a_snapshot_that_appears_while_a_backup_begins_keeps_its_name(tmp_path, monkeypatch):
    """The other run has written its manifest and deleted its marker just before this one creates its own."""
    root, destination = copy_store("rollover-5.5.0", tmp_path), tmp_path / "backup"
    mark, seen = create.create_mark, []

    def appears(path):
        if not seen:
            path.with_suffix(".json").write_text("theirs")
        seen.append(path)
        return mark(path)

    monkeypatch.setattr(create, "create_mark", appears)
    made = backup(root, destination)
    assert [path.stem for path in seen] == [made.snapshot.name.removesuffix("-2"), made.snapshot.name]
    assert seen[0].with_suffix(".json").read_text() == "theirs"
    assert not list((destination / "snapshots").glob("*.incomplete"))


@pytest.mark.parametrize("harm", ["a piece gone", "a piece cut short", "a piece empty", "a bit of a piece"])
def test_the_next_backup_stores_a_damaged_piece_again(harm, tmp_path):
    root, destination = copy_store("rollover-5.5.0", tmp_path), tmp_path / "backup"
    first = backup(root, destination)
    digest = max((piece for file in first.snapshot.files for piece in file.pieces), key=lambda one: one.length).sha256
    HARM[harm](Pieces(destination).path(digest), first.manifest)
    second = backup(root, destination)
    assert second.new_pieces == 1
    assert any("1 piece(s) in the destination were damaged" in note for note in second.snapshot.notes) == (
        harm != "a piece gone"
    )
    for snapshot in (first.snapshot, second.snapshot):
        restore(destination, None, snapshot.name)


def test_a_piece_that_claims_to_be_large_is_refused_unread(tmp_path):
    root, destination = copy_store("rollover-5.5.0", tmp_path), tmp_path / "backup"
    made = backup(root, destination)
    piece = Pieces(destination).path(next(file.pieces[0].sha256 for file in made.snapshot.files if file.pieces))
    piece.write_bytes(zstandard.ZstdCompressor().compress(bytes(PIECE + 1)))
    with pytest.raises(
        RefusedError, match=f"cannot be decompressed: expected at most {PIECE} bytes, found {PIECE + 1}"
    ):
        restore(destination, None)


@pytest.mark.parametrize("path", ["../out", "/etc/passwd", "a//b", ".mqtool/journal", "lock", "a\0b", "", 7])
def test_a_manifest_leads_nowhere_outside(path, tmp_path):
    root, destination = copy_store("rollover-5.5.0", tmp_path), tmp_path / "backup"
    made = backup(root, destination)
    document = json.loads(made.manifest.read_text())
    document["files"][0]["path"] = path
    made.manifest.write_text(json.dumps(document))
    with pytest.raises(RefusedError):
        restore(destination, tmp_path / "again")
    assert not (tmp_path / "again").exists()


FORGED = {
    "another version": lambda document: document.update(schema_version=9),
    "no files": lambda document: document.pop("files"),
    "one file twice": lambda document: document["files"].append(document["files"][0]),
    "a mode of text": lambda document: document["files"][0].update(mode="rwx"),
    "a mode that gives rights": lambda document: document["files"][0].update(mode=0o4755),
    "a time of text": lambda document: document["files"][0].update(modified_ns="now"),
    "a piece in the wrong place": lambda document: first_piece(document).update(position=1),
    "a piece that is too long": lambda document: first_piece(document).update(length=PIECE + 1),
    "a piece after the end": lambda document: document["files"][0].update(size=0),
    "a piece without a checksum": lambda document: first_piece(document).update(sha256="../../etc/passwd"),
    "a file with another checksum than its pieces": lambda document: document["files"][0].update(sha256="0" * 64),
    "a field too many": lambda document: document.update(more=1),
}


def first_piece(document):
    return document["files"][0]["pieces"][0]


@pytest.mark.parametrize("forged", FORGED)
def test_a_manifest_that_no_backup_writes_is_refused_though_its_digest_fits(forged, tmp_path):
    root, destination = copy_store("rollover-5.5.0", tmp_path), tmp_path / "backup"
    manifest = backup(root, destination).manifest
    document = json.loads(manifest.read_text())
    assert document["files"][0]["pieces"]
    FORGED[forged](document)
    del document["digest"]
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    manifest.write_text(json.dumps({**document, "digest": hashlib.sha256(text.encode()).hexdigest()}))
    with pytest.raises(RefusedError, match=r"backup-(damaged|version)"):
        restore(destination, tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_a_snapshot_that_is_not_there_is_refused_with_those_that_are(tmp_path):
    root, destination = copy_store("rollover-5.5.0", tmp_path), tmp_path / "backup"
    names = [backup(root, destination).snapshot.name for _ in range(3)]
    assert len(set(names)) == 3
    with pytest.raises(RefusedError, match=f"expected one of {', '.join(sorted(names))}, found 'yesterday'"):
        restore(destination, tmp_path / "again", "yesterday")


@pytest.mark.parametrize(
    ("name", "what"), one_in(2, [("rocksdb-cq-5.5.0", "queues in RocksDB"), ("dledger-5.5.0", "a DLedger log")])
)
def test_what_cannot_be_copied_while_a_broker_runs_is_refused_meanwhile(name, what, tmp_path):
    root = copy_store(name, tmp_path)
    (root / "lock").touch()
    with held_lock(root / "lock"), pytest.raises(RefusedError, match=f"live: .*{what} cannot be copied meanwhile"):
        backup(root, tmp_path / "backup")
    assert not (tmp_path / "backup").exists()
    backup(root, tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "again")
    assert contents(tmp_path / "again") == contents(root)


def test_a_log_outside_of_the_store_is_refused(tmp_path):
    root = copy_store("rollover-5.5.0", tmp_path)
    (root / "commitlog").rename(tmp_path / "log")
    with pytest.raises(UnsupportedFormatError, match="outside"):
        backup(root, tmp_path / "backup", {"storePathCommitLog": str(tmp_path / "log")})
    assert not (tmp_path / "backup").exists()


@pytest.mark.parametrize("name", ["checkpoint", f"commitlog/{0:020}", "rocksdbstore/CURRENT"])
def test_a_file_that_cannot_be_read_ends_the_backup_and_is_named(name, tmp_path, monkeypatch):
    root = copy_store("rollover-5.5.0", tmp_path)
    database(root, 1)
    really = os.open

    def denied(path, *arguments, **named):
        if str(path) == str(root / name):
            raise PermissionError(13, "Permission denied", str(path))
        return really(path, *arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr("mqtool.repair.backup.create.os.open", denied)
        with pytest.raises(StoreError, match=rf"{(root / name).parent}.*cannot be read: Permission denied"):
            backup(root, tmp_path / "backup")
    assert snapshots(tmp_path / "backup") == []
    assert backup(root, tmp_path / "backup").resumed


def test_a_directory_that_cannot_be_listed_ends_the_backup_and_is_named(tmp_path, monkeypatch):
    root = copy_store("rollover-5.5.0", tmp_path)
    (root / "compaction").mkdir(exist_ok=True)
    with (
        unlistable(monkeypatch, root / "compaction"),
        pytest.raises(StoreError, match=f"{root / 'compaction'}: cannot be read: Permission denied"),
    ):
        backup(root, tmp_path / "backup")
    assert snapshots(tmp_path / "backup") == []


def test_a_destination_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot be written: Not a directory"):
        backup(copy_store("rollover-5.5.0", tmp_path), tmp_path / "file" / "backup")


def test_files_that_go_while_a_broker_runs_are_noted_and_what_is_there_is_restored(tmp_path, monkeypatch):
    root = copy_store("rollover-5.5.0", tmp_path)
    first = min((root / "commitlog").iterdir())
    copy, gone = create._SnapshotWriter._copy, []

    def deletes_before(self, name, limit):
        if name.startswith("consumequeue/") and not gone:
            gone.append(first.name)
            first.unlink()
        return copy(self, name, limit)

    monkeypatch.setattr(create._SnapshotWriter, "_copy", deletes_before)
    made = backup(root, tmp_path / "backup")
    assert any(f"commitlog/{first.name} was removed meanwhile" in note for note in made.snapshot.notes)
    restore(tmp_path / "backup", tmp_path / "again")
    assert contents(tmp_path / "again") == contents(root)


def test_a_new_root_that_exists_is_refused(tmp_path):
    root = copy_store("rollover-5.5.0", tmp_path)
    backup(root, tmp_path / "backup")
    with pytest.raises(RefusedError, match="target"):
        restore(tmp_path / "backup", root)


def test_a_destination_with_other_things_is_refused(tmp_path):
    root = copy_store("rollover-5.5.0", tmp_path)
    with pytest.raises(RefusedError, match="backup"):
        backup(root, root.parent)


def test_a_destination_inside_the_store_is_refused(tmp_path):
    root = copy_store("rollover-5.5.0", tmp_path)
    with pytest.raises(UsageError, match="outside"):
        backup(root, root / "backup")


def test_a_link_in_the_store_is_refused(tmp_path):
    root = copy_store("rollover-5.5.0", tmp_path)
    (root / "elsewhere").symlink_to(tmp_path)
    with pytest.raises(RefusedError, match="link"):
        backup(root, tmp_path / "backup")


def test_the_log_is_copied_after_all_that_refers_to_it(tmp_path):
    root = copy_store("orders-4.9.7", tmp_path)
    listed = list_files(root)
    assert listed.first[0] == "checkpoint"
    assert "config/lmqConsumerOffset.json" in listed.first
    assert {name.partition("/")[0] for name in listed.log} == {"commitlog"}
    assert "config/topics.json" in listed.last
    order = [file.path for file in backup(root, tmp_path / "backup").snapshot.files]
    assert order == [*listed.first, *listed.derived, *listed.log, *listed.last]


@pytest.mark.parametrize(
    "keys",
    [pytest.param((), id="log", marks=pytest.mark.slow), pytest.param(("storePathRootDir",), id="root-and-log")],
)
def test_a_log_elsewhere_below_the_root_is_copied_up_to_its_end_and_found_in_the_copy(keys, tmp_path, monkeypatch):
    root = copy_store("crash-5.5.0", tmp_path)
    with mqtool.open(root) as store:
        ends = [message.physical_offset for message in store.messages()]
    (root / "data").mkdir()
    (root / "commitlog").rename(root / "data" / "log")
    config = {"storePathCommitLog": str(root / "data" / "log"), **dict.fromkeys(keys, str(root))}
    made = backup(root, tmp_path / "backup", config)
    order = [file.path.split("/")[0] for file in made.snapshot.files]
    assert order.index("data") > max(number for number, name in enumerate(order) if name == "index")
    with mqtool.open(root, config) as store:
        assert restore(tmp_path / "backup", tmp_path / "again", config=config).verify == verify(store).state.value
    assert contents(tmp_path / "again") == contents(root)
    monkeypatch.setattr(create._SnapshotWriter, "_end", lambda _self: ends[-1])
    (root / "lock").touch()
    with held_lock(root / "lock"):
        backup(root, tmp_path / "backup", config)
    restore(tmp_path / "backup", tmp_path / "live", config=config)
    config = {"storePathCommitLog": str(tmp_path / "live" / "data" / "log")}
    with mqtool.open(tmp_path / "live", config) as again:
        assert [message.physical_offset for message in again.messages()] == ends[:-1]


@pytest.mark.parametrize("name", ["config/consumerOffsets", "config/metadata", "kvStore", "rocksdbstore"])
def test_progress_is_copied_before_the_end_of_the_log_is_fixed(name, tmp_path, monkeypatch):
    root = copy_store("orders-5.5.0", tmp_path)
    shutil.rmtree(root / name, ignore_errors=True)
    copy_tree(store_fixture("rocksdb-cq-5.5.0").directory / "config" / "consumerOffsets", root / name)
    files = ("config/consumerOffset.json", "config/timercheck")
    for file in files:
        (root / file).write_bytes(b"{}")
    events = []
    copy, end = create._SnapshotWriter._copy, create._SnapshotWriter._end

    def copied(self, path, limit):
        events.append(path)
        return copy(self, path, limit)

    def fixed(self):
        events.append("end")
        return end(self)

    monkeypatch.setattr(create._SnapshotWriter, "_copy", copied)
    monkeypatch.setattr(create._SnapshotWriter, "_end", fixed)
    (root / "lock").touch()
    with held_lock(root / "lock"):
        made = backup(root, tmp_path / "backup").snapshot
    own = [path for path in events if path.startswith(f"{name}/")]
    assert len(own) > 2
    assert max(map(events.index, files)) < events.index(own[0])  # progress in files must not be newer than a database's
    assert events.index(own[-1]) < events.index("end")
    assert sorted(own) == sorted(file.path for file in made.files if file.path.startswith(f"{name}/"))


def test_what_is_written_after_the_end_was_noted_is_left_out(tmp_path, monkeypatch):
    root = copy_store("crash-5.5.0", tmp_path)
    with mqtool.open(root) as store:
        ends = [message.physical_offset for message in store.messages()]
    middle = ends[len(ends) // 2]
    monkeypatch.setattr(create._SnapshotWriter, "_end", lambda _self: middle)
    (root / "lock").touch()
    with held_lock(root / "lock"):
        made = backup(root, tmp_path / "backup")
    assert made.snapshot.live
    restore(tmp_path / "backup", tmp_path / "again")
    with mqtool.open(tmp_path / "again") as again:
        assert again.commit_log.max_offset == middle
        assert [message.physical_offset for message in again.messages()] == ends[: ends.index(middle)]


def test_a_live_copy_recovers_to_all_that_was_there_when_its_end_was_noted(tmp_path, monkeypatch):
    root = copy_store("crash-5.5.0", tmp_path)
    with mqtool.open(root) as store:
        messages = list(store.messages())
    middle = messages[len(messages) // 2].physical_offset
    monkeypatch.setattr(create._SnapshotWriter, "_end", lambda _self: middle)
    (root / "lock").touch()
    with held_lock(root / "lock"):
        backup(root, tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "again")
    config = broker_config.load(store_fixture("crash-5.5.0").config)
    open_store(tmp_path / "again", options_from_config(config)).close()
    expected = {}
    for message in messages:
        if message.physical_offset < middle:
            expected[message.topic, message.queue_id] = message.queue_offset + 1
    with mqtool.open(tmp_path / "again") as again:
        found = {(queue.topic, queue.queue_id): queue.max_offset for queue in again.disk_queues() if queue.max_offset}
    assert {key: value for key, value in found.items() if key in expected} == {
        key: value for key, value in expected.items() if key in found
    }
    assert found


def test_a_backup_of_a_store_that_is_written_to_has_no_unit_past_its_log(tmp_path, monkeypatch):
    engine = open_small(tmp_path / "store")
    copy = create._SnapshotWriter._copy

    def append(count):
        for number in range(count):
            engine.put("Orders", number % 4, b"x" * 200, b"KEYS\x01k")
        engine.dispatch()

    def copies_while_messages_arrive(self, name, limit):
        append(3)
        return copy(self, name, limit)

    append(60)
    monkeypatch.setattr(create._SnapshotWriter, "_copy", copies_while_messages_arrive)
    snapshot = backup(tmp_path / "store", tmp_path / "backup").snapshot
    engine.close()
    assert snapshot.live
    assert restore(tmp_path / "backup", tmp_path / "again").verify == "dirty"
    with mqtool.open(tmp_path / "again") as again:
        assert verify(again).losses.messages == 0
        messages = len(list(again.messages()))
    with open_small(tmp_path / "again") as recovered:
        assert sum(recovered.queue_bounds("Orders", queue)[1] for queue in range(4)) == messages > 60


def test_pieces_are_cut_at_fixed_places(tmp_path):
    root = copy_store("rollover-5.5.0", tmp_path)
    (root / "big").write_bytes(b"x" * (PIECE + 5))
    made = backup(root, tmp_path / "backup")
    big = next(file for file in made.snapshot.files if file.path == "big")
    assert [(piece.position, piece.length) for piece in big.pieces] == [(0, PIECE), (PIECE, 5)]


def test_the_commands_keep_to_their_schemas_and_exit_codes(tmp_path, capsysbinary):
    root, kept = copy_store("rollover-5.5.0", tmp_path), str(tmp_path / "backup")

    def call(command, *words):
        code = cli([command, *words, "--format", "json"])
        document = json.loads(capsysbinary.readouterr().out)
        assert code or problems(command, document) == []
        return code, document

    assert call("backup", str(root), "-o", kept, "--check")[1]["checked"] is True
    code, listed = call("restore", kept, "--snapshots")
    assert (code, len(listed["snapshots"]), listed["checked"]) == (0, 1, False)
    assert call("restore", kept, "--check")[1]["target"] is None
    assert call("restore", kept, "-o", str(tmp_path / "again"))[0] == 0
    assert call("restore", kept, "-o", str(tmp_path / "again"))[0] == 4
    assert call("restore", kept)[0] == 2
    assert call("restore", str(tmp_path / "nothing"), "--snapshots")[0] == 4


def test_a_file_that_goes_before_the_command_has_looked_at_it_does_no_harm(tmp_path, monkeypatch, capsys):
    root, walk = copy_store("rollover-5.5.0", tmp_path), os.walk
    monkeypatch.setattr(
        "mqtool.cli.commands.backup.os.walk",
        lambda top: ((at, names, [*files, "gone"]) for at, names, files in walk(top)),
    )
    assert cli(["backup", str(root), "-o", str(tmp_path / "backup")]) == 0, capsys.readouterr().err


@given(st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_manifest_with_a_byte_changed_is_refused_or_the_same(tmp_path_factory, data):
    manifest = kept_manifest(tmp_path_factory)
    text = bytearray(manifest.read_bytes())
    at = data.draw(st.integers(0, len(text) - 1))
    text[at] = data.draw(st.integers(0, 255))
    destination = tmp_path_factory.mktemp("fuzz")
    (destination / "snapshots").mkdir()
    (destination / "snapshots" / "one.json").write_bytes(text)
    try:
        found = load(destination)
    except RefusedError:
        return
    assert found == load(manifest.parents[1])


_KEPT = []


def kept_manifest(factory):
    """A manifest, made once."""
    if not _KEPT:
        work = factory.mktemp("kept")
        _KEPT.append(backup(copy_store("rollover-5.5.0", work), work / "backup").manifest)
    return _KEPT[0]


def database(root, generation: int) -> None:
    """The files of a RocksDB after some flushes: the manifest names the tables and the log that belong to it."""
    directory = root / "rocksdbstore"
    directory.mkdir(exist_ok=True)
    for left in directory.glob("*.log"):
        left.unlink()
    (directory / f"{generation:06}.sst").write_bytes(b"table %d" % generation)
    (directory / f"{generation:06}.log").write_bytes(b"writes after %d" % generation)
    with (directory / "MANIFEST-000001").open("ab") as manifest:
        manifest.write(b"flush %d\n" % generation)
    (directory / "CURRENT").write_bytes(b"MANIFEST-000001\n")


@pytest.mark.slow
@pytest.mark.parametrize("at", one_in(2, ["CURRENT", "MANIFEST-000001", "000001.sst", "000001.log"]))
def test_an_open_database_is_copied_in_one_state(at, tmp_path, monkeypatch):
    root = copy_store("orders-5.5.0", tmp_path)
    database(root, 1)
    copy, flushed = create._SnapshotWriter._copy, []

    def flushes_before(self, name, limit):
        if name == f"rocksdbstore/{at}" and not flushed:
            database(root, 2)
            flushed.append(name)
        return copy(self, name, limit)

    monkeypatch.setattr(create._SnapshotWriter, "_copy", flushes_before)
    backup(root, tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "again")
    assert flushed
    assert contents(tmp_path / "again") == contents(root)


def test_a_database_that_never_rests_is_refused(tmp_path, monkeypatch):
    root = copy_store("orders-5.5.0", tmp_path)
    database(root, 1)
    copy, generations = create._SnapshotWriter._copy, iter(range(2, 1000))

    def flushes_before(self, name, limit):
        if name == "rocksdbstore/CURRENT":
            database(root, next(generations))
        return copy(self, name, limit)

    monkeypatch.setattr(create._SnapshotWriter, "_copy", flushes_before)
    with pytest.raises(RefusedError, match="rocksdbstore"):
        backup(root, tmp_path / "backup")
    assert snapshots(tmp_path / "backup") == []


def test_a_database_whose_files_change_while_they_are_copied_is_copied_again(tmp_path, monkeypatch):
    root = copy_store("orders-5.5.0", tmp_path)
    database(root, 1)
    copy, changed = create._SnapshotWriter._copy, []

    def grows_after(self, name, limit):
        entry = copy(self, name, limit)
        if name == "rocksdbstore/MANIFEST-000001" and not changed:
            changed.append(name)
            with (root / name).open("ab") as manifest:
                manifest.write(b"more\n")
        return entry

    monkeypatch.setattr(create._SnapshotWriter, "_copy", grows_after)
    backup(root, tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "again")
    assert changed
    assert contents(tmp_path / "again") == contents(root)


def test_bytes_after_the_end_of_a_file_that_was_cut_meanwhile_are_zeros(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    descriptor = os.open(path, os.O_RDONLY)
    assert create._read(descriptor, 4, 8, None) == b"456789\0\0"
    assert create._read(descriptor, 4, 8, 6) == b"45\0\0\0\0\0\0"
    os.close(descriptor)


@pytest.mark.parametrize("name", ["consumequeue/Orders/1", "consumequeue/Orders/1/00000000000000000000"])
def test_what_retention_removes_while_the_files_are_listed_is_left_out(name, tmp_path, monkeypatch):
    root = copy_store("orders-5.5.0", tmp_path)
    scan, gone = os.scandir, root / name

    def then_removed(path):
        if path == gone and gone.is_dir():
            gone.rename(tmp_path / "gone")
        entries = list(scan(path))
        if path == gone.parent and gone.is_file():
            gone.unlink()
        return entries

    monkeypatch.setattr(create.os, "scandir", then_removed)
    listed = list_files(root, ["commitlog"])
    assert not [
        one for one in (*listed.first, *listed.derived, *listed.log, *listed.last) if one.startswith(f"{name}/")
    ]
    assert name not in listed.derived
    assert "consumequeue/Orders/2/00000000000000000000" in listed.derived


def test_a_backup_without_a_new_piece_syncs_nothing(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(sys.modules[Pieces.__module__], "sync_directory", synced.append)
    pieces = Pieces(tmp_path)
    pieces.sync()
    assert synced == []
    pieces.add(b"x")
    pieces.sync()
    assert synced
