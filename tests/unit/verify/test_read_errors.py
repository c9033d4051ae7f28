"""A file that cannot be read is one finding, its check is unknown, and nothing is concluded from what was not read."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import mqtool
from mqtool.cli.app import run
from mqtool.cli.exits import ExitCode
from mqtool.errors import StoreError
from mqtool.repair.salvage import salvage
from mqtool.store import Message, files
from mqtool.verify import Area, State, Verification, verify
from tests.support.builder import StoreBuilder

SIZE = 1 << 14


@pytest.fixture
def root(tmp_path) -> Path:
    builder = StoreBuilder(segment_size=SIZE, slots=20, entries=300)
    for number in range(500):
        builder.put(b"body %d" % number, topic=("Orders", "Audit")[number % 2], queue_id=number % 3, keys=f"k{number}")
    return builder.write(tmp_path / "store")


def denied(_path: Path) -> int:
    raise StoreError("cannot be opened: Permission denied", _path)


@contextmanager
def unreadable(monkeypatch, path: Path, *, from_position: int | None = None, until: int = 1 << 62) -> Iterator[None]:
    """A file that cannot be opened, or whose bytes from a position on, until another, cannot be read."""
    opened, read, read_into = files.open_regular, files._LocalBytes.read, files._LocalBytes.read_into

    def opens(asked: Path, flags: int) -> int:
        return denied(asked) if asked == path and from_position is None else opened(asked, flags)

    def fails(self, position: int, count: int) -> bool:
        is_there = from_position is not None and position < until and position + count > from_position
        return self._path == path and is_there

    def reads(self, position: int, count: int) -> bytes:
        if fails(self, position, min(count, self.size - position)):
            raise StoreError(f"cannot be read at position {position}: {os.strerror(5)}", path)
        return read(self, position, count)

    def reads_into(self, position: int, target: memoryview) -> int:
        if fails(self, position, min(len(target), self.size - position)):
            raise StoreError(f"cannot be read at position {position}: {os.strerror(5)}", path)
        return read_into(self, position, target)

    with monkeypatch.context() as patch:
        patch.setattr(files, "open_regular", opens)
        patch.setattr(files._LocalBytes, "read", reads)
        patch.setattr(files._LocalBytes, "read_into", reads_into)
        yield


def verified(root: Path) -> Verification:
    with mqtool.open(root, {"maxHashSlotNum": "20", "maxIndexNum": "300"}) as store:
        return verify(store)


def every_file(root: Path) -> list[str]:
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())


CODES = {"commitlog": "log-unreadable", "consumequeue": "queue-unreadable", "index": "index-unreadable"} | {
    "checkpoint": "checkpoint-unreadable"
}


@pytest.mark.parametrize("from_position", [None, 200], ids=["denied", "bad sector"])
def test_a_file_that_cannot_be_read_is_one_finding_and_unknown(from_position, root, monkeypatch):
    tried = set()
    for name in every_file(root):
        tree = name.partition("/")[0]
        if tree not in CODES:
            continue
        with unreadable(monkeypatch, root / name, from_position=from_position):
            found = verified(root)
        assert [(one.code, one.file) for one in found.findings] == [(CODES[tree], name)], name
        assert found.state is State.UNKNOWN, name
        assert found.losses.messages == found.losses.bytes == 0, name
        tried.add(tree)
    assert tried == set(CODES)


def test_after_a_crash_no_unreadable_segment_keeps_verify_from_answering(root, monkeypatch):
    (root / "abort").touch()
    segments = sorted((root / "commitlog").iterdir())
    assert len(segments) > 3
    for segment in segments:
        with unreadable(monkeypatch, segment):
            found = verified(root)
        assert [(one.code, one.file) for one in found.findings] == [("log-unreadable", f"commitlog/{segment.name}")]
        assert found.state is State.UNKNOWN
        assert found.losses.messages == found.losses.bytes == 0


def test_after_a_crash_no_unreadable_queue_file_keeps_verify_from_answering(root, monkeypatch):
    (root / "abort").touch()
    tried = sorted((root / "consumequeue/Orders/0").iterdir())
    assert len(tried) > 1
    for path in tried:
        with unreadable(monkeypatch, path):
            found = verified(root)
        codes = {one.code: one.file for one in found.findings}
        assert codes == {"queue-unreadable": path.relative_to(root).as_posix(), "abort-present": "abort"}
        assert Area.CONSUME_QUEUE in {check.area for check in found.checks if check.state is State.UNKNOWN}


def test_the_headline_names_a_check_that_found_something_and_could_not_read_all(root, monkeypatch, capsys):
    queues = root / "consumequeue/Orders"
    hit, damaged = min((queues / "0").iterdir()), min((queues / "1").iterdir())
    damaged.write_bytes(bytes(20) + damaged.read_bytes()[20:])
    with unreadable(monkeypatch, hit):
        assert run(["verify", str(root)]) == ExitCode.NO
    head = capsys.readouterr().out.partition("\n\n")[0]
    assert "unknown: consumequeue" in head


@pytest.mark.parametrize("crashed", [False, True])
@pytest.mark.parametrize("from_position", [None, 200], ids=["denied", "bad sector"])
def test_info_and_report_go_on_without_an_unreadable_segment(
    crashed, from_position, root, tmp_path, monkeypatch, capsys
):
    if crashed:
        (root / "abort").touch()
    segments = sorted((root / "commitlog").iterdir())
    for segment in segments:
        page = tmp_path / f"{segment.name}.html"
        with unreadable(monkeypatch, segment, from_position=from_position):
            assert run(["info", str(root), "--format", "json"]) == ExitCode.OK
            found = json.loads(capsys.readouterr().out)
            assert run(["report", str(root), "-o", str(page)]) == ExitCode.NO
        capsys.readouterr()
        assert sum(topic["messages"] for topic in found["topics"]) == 500
        unknown = [oddity for oddity in found["oddities"] if str(segment) in oddity]
        assert bool(unknown) == (crashed or segment == segments[-1])
        assert all("is unknown: " in oddity for oddity in unknown)
        assert (found["commit_log"]["tail"]["kind"] == "unreadable") == (segment == segments[-1])
        assert "log-unreadable" in page.read_text()


def records(root: Path) -> set[int]:
    with mqtool.open(root) as store:
        return {one.physical_offset for one in store.messages() if isinstance(one, Message) and "HOLE" not in one.topic}


@pytest.mark.parametrize("crashed", [False, True])
@pytest.mark.parametrize("segment", [0, 1, -1])
@pytest.mark.parametrize("page", [None, 4096], ids=["denied", "bad sector"])
def test_salvage_keeps_what_can_be_read_and_takes_the_rest_from_a_copy(
    page, segment, crashed, root, tmp_path, monkeypatch, capsys
):
    if crashed:
        (root / "abort").touch()
    whole, path = records(root), sorted((root / "commitlog").iterdir())[segment]
    copy = shutil.copytree(root, tmp_path / "copy")
    base, size = int(path.name), SIZE
    bad = (base, base + size) if page is None else (base + page, base + page + 4096)
    with mqtool.open(root) as store:  # what lies behind the copy's end may have been a record
        both = ExitCode.NO if bad[1] > store.commit_log.max_offset else ExitCode.OK
    with unreadable(monkeypatch, path, from_position=page, until=bad[1] - base):
        assert run(["salvage", str(root), str(tmp_path / "new"), "--format", "json"]) == ExitCode.NO
        alone = json.loads(capsys.readouterr().out)
        assert run(["salvage", str(root), str(tmp_path / "both"), "--with", str(copy)]) == both
    assert [note for note in alone["notes"] if note.startswith(f"{path}: {bad[1] - bad[0]} byte(s) could not be read")]
    left = records(tmp_path / "new")
    assert left < whole
    assert all(bad[0] - 200 < offset < bad[1] for offset in whole - left)
    assert records(tmp_path / "both") == whole


def test_salvage_is_not_complete_where_the_end_cannot_be_read_and_nothing_tells_what_was_there(
    root, tmp_path, monkeypatch
):
    shutil.rmtree(root / "consumequeue")
    shutil.rmtree(root / "index")
    with unreadable(monkeypatch, max((root / "commitlog").iterdir())):
        assert not salvage(root, tmp_path / "new").is_complete


def test_damage_elsewhere_is_still_found(root, monkeypatch):
    segments = sorted((root / "commitlog").iterdir())
    data = bytearray(segments[0].read_bytes())
    data[90] ^= 1
    segments[0].write_bytes(data)
    with unreadable(monkeypatch, segments[1]):
        found = verified(root)
    assert [(one.code, one.file) for one in found.findings] == [
        ("log-bad-body", f"commitlog/{segments[0].name}"),
        ("log-unreadable", f"commitlog/{segments[1].name}"),
    ]
    assert found.state is State.CORRUPT
