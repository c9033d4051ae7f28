"""Files of a part of a store that cannot be read: they are damage or an error, never just missing from the answer."""

import os
import shutil
from pathlib import Path

import pytest

from mqtool.choices import FileKind
from mqtool.cli.app import run
from mqtool.cli.exits import ExitCode
from mqtool.errors import StoreError, UnreadableError
from mqtool.records.damage import Damage, DamageKind
from mqtool.store import Store, open_readable, open_store
from mqtool.store.known_file import kind_of, recognise_all
from mqtool.store.target import LogFiles, open_target
from mqtool.verify import Severity, verify
from tests.support.builder import StoreBuilder
from tests.support.unreadable import unreadable

SIZE = 1 << 12


@pytest.fixture
def root(tmp_path) -> Path:
    builder = StoreBuilder(segment_size=SIZE, slots=20, entries=300)
    for number in range(60):
        builder.put(b"body %d" % number, queue_id=number % 2, keys=f"k{number}")
    return builder.write(tmp_path / "store")


def segments(root: Path) -> list[Path]:
    return sorted((root / "commitlog").iterdir())


def opened(path: Path) -> Store:
    (store,) = open_target(path).stores
    return store


def ranges(store: Store) -> list[tuple[DamageKind, int, int]]:
    store.skip_unreadable()
    return [(item.kind, item.start, item.end) for item in store.messages() if isinstance(item, Damage)]


@pytest.mark.parametrize("at", [0, 1, -1])
@pytest.mark.parametrize("place", ["commitlog", "copies"])
def test_an_unreadable_segment_in_a_directory_of_them_is_damage(root, monkeypatch, at, place):
    (root / "commitlog").rename(root / place)
    path = sorted((root / place).iterdir())[at]
    with unreadable(monkeypatch, path), opened(root / place) as store:
        assert ranges(store) == [(DamageKind.UNREADABLE, int(path.name), int(path.name) + SIZE)]


@pytest.mark.parametrize("kind", [None, FileKind.CONSUME_QUEUE])
def test_an_unreadable_queue_file_is_an_error_of_whoever_reads_it(root, monkeypatch, kind):
    path = root / "consumequeue/Topic/1" / f"{0:020}"
    with unreadable(monkeypatch, path):
        found = recognise_all(root if kind else root / "consumequeue", kind)
        assert [(one.topic, one.queue_id) for one in found] == [("Topic", 0), ("Topic", 1)]
        assert run(["dump", str(root / "consumequeue")]) != ExitCode.OK


def test_foreign_files_that_cannot_be_read_are_left_out(root, monkeypatch):
    expected = recognise_all(root / "index")
    for name in ("notes.txt", "000012.sst"):
        path = root / "index" / name
        path.touch()
        with unreadable(monkeypatch, path):
            assert recognise_all(root / "index") == expected
    os.mkfifo(root / "index" / "pipe")
    assert recognise_all(root / "index") == expected


def dangling(path: Path) -> None:
    path.symlink_to("/nonexistent/disk/segment")


@pytest.mark.parametrize("block", [dangling, os.mkfifo])
@pytest.mark.parametrize("at", [0, 1, -1])
def test_a_segment_s_name_without_a_file_is_an_unreadable_range(root, block, at):
    path = segments(root)[at]
    path.unlink()
    block(path)
    expected = [(DamageKind.UNREADABLE, int(path.name), int(path.name) + SIZE)]
    with open_readable(root) as store:
        assert ranges(store) == expected
    with opened(root / "commitlog") as store:
        assert ranges(store) == expected
    with open_store(root) as store, pytest.raises(StoreError, match=path.name):
        list(store.messages())


def test_verify_says_what_is_in_the_place_of_a_segment(root):
    path = segments(root)[-1]
    path.unlink()
    dangling(path)
    with open_readable(root) as store:
        found = {one.code: one for one in verify(store).findings}
    assert "found a broken link" in found["log-stray-file"].evidence
    assert "log-segment-size" not in found
    assert found["log-unreadable"].severity is Severity.UNKNOWN


def test_a_name_whose_place_another_segment_has_blocks_nothing(root):
    path, other = segments(root)[1], root / "other"
    other.mkdir()
    shutil.move(path, other / path.name)
    dangling(path)
    keys = {"storePathCommitLog": f"{root / 'commitlog'},{other}"}
    with open_store(root, keys) as store:
        assert store.layout.blocked == ()
        assert not [item for item in store.messages() if isinstance(item, Damage)]


def test_a_directory_that_cannot_be_searched_is_unreadable(root, monkeypatch):
    real = Path.stat

    def denied(self, **options):
        if self == path:
            raise PermissionError(13, "Permission denied", str(self))
        return real(self, **options)

    path = segments(root)[0]
    monkeypatch.setattr(Path, "stat", denied)
    with pytest.raises(UnreadableError, match="Permission denied"):
        open_target(path)


def test_a_file_that_can_be_read_no_longer_when_its_kind_is_asked_has_none(root, monkeypatch):
    (index,) = (root / "index").iterdir()
    head = index.read_bytes()[:4096]
    assert kind_of(index, head) is FileKind.INDEX_FILE
    with unreadable(monkeypatch, index):
        assert kind_of(index, head) is None


def test_a_segment_that_is_deleted_after_it_was_recognised_is_named(root):
    files = recognise_all(root / "commitlog")
    segments(root)[1].unlink()
    with pytest.raises(StoreError, match="cannot be opened: No such file or directory") as caught:
        LogFiles(root / "commitlog", files)
    assert caught.value.path == files[1].path


def test_a_stray_file_that_cannot_be_read_is_not_taken_for_a_segment(root, monkeypatch):
    stray = segments(root)[1].rename(root / "commitlog" / "copy")
    with open_store(root) as store:
        assert [(file.path, file.base) for file in store.layout.misplaced] == [(stray, SIZE)]
        assert store.commit_log.max_offset > SIZE
    with unreadable(monkeypatch, stray), open_store(root) as store:
        assert store.layout.misplaced == ()
        assert store.commit_log.max_offset < SIZE
        assert [one.file for one in verify(store).findings if one.code == "log-stray-file"] == ["commitlog/copy"]


def test_a_walk_that_uses_its_memory_again_finds_the_same_around_what_the_disk_does_not_give(root, monkeypatch):
    with open_store(root) as store:
        store.skip_unreadable()
        with unreadable(monkeypatch, segments(root)[0], from_position=2000, until=2001):
            alone = walked(store, refills=False)
            assert walked(store, refills=True) == alone
    assert [item for item in alone if isinstance(item, tuple)] == [(DamageKind.UNREADABLE, segments(root)[0])]


def walked(store: Store, *, refills: bool) -> list[object]:
    found: list[object] = []
    for item in store.commit_log.walk(refills=refills):
        found += [(item.kind, item.path)] if isinstance(item, Damage) else (item.positions + item.base).tolist()
    return found
