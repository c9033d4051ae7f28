"""A file that cannot be read is one finding, its check is unknown, and nothing is concluded from what was not read."""

import errno
import json
import re
import shutil
from pathlib import Path

import pytest

import mqtool
from mqtool.cli.app import run
from mqtool.cli.exits import ExitCode
from mqtool.errors import UnreadableError
from mqtool.repair.salvage import salvage
from mqtool.store import Message, open_readable
from mqtool.verify import Area, Severity, State, Verification, verify
from tests.support.builder import StoreBuilder
from tests.support.stores import copy_store, read_keys, store_fixture
from tests.support.unreadable import unlistable, unreadable

SIZE = 1 << 14


@pytest.fixture
def root(tmp_path) -> Path:
    builder = StoreBuilder(segment_size=SIZE, slots=20, entries=300)
    for number in range(500):
        builder.put(b"body %d" % number, topic=("Orders", "Audit")[number % 2], queue_id=number % 3, keys=f"k{number}")
    made = builder.write(tmp_path / "store")
    (made / "config").mkdir()
    topic = {"readQueueNums": 3, "writeQueueNums": 3, "perm": 6}
    table = {name: {"topicName": name, **topic} for name in ("Orders", "Audit")}
    (made / "config/topics.json").write_text(json.dumps({"topicConfigTable": table}))
    (made / "config/consumerOffset.json").write_text('{"offsetTable": {}}')
    return made


def verified(root: Path) -> Verification:
    with open_readable(root, {"maxHashSlotNum": "20", "maxIndexNum": "300"}) as store:
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


@pytest.mark.parametrize("name", ["commitlog/00000000000000000000", "config"])
def test_what_cannot_be_read_is_unknown_in_severity_counts_and_exit_code(name, root, monkeypatch, capsys):
    deny = unlistable if (root / name).is_dir() else unreadable
    with deny(monkeypatch, root / name):
        assert run(["verify", str(root), "--format", "json"]) == ExitCode.NO
        found = json.loads(capsys.readouterr().out)
        assert ([one["severity"] for one in found["findings"]], found["ok"]) == (["unknown"], False)
        assert (found["status"], found["errors"], found["unknown"], found["warnings"]) == ("unknown", 0, 1, 0)
        assert found["next_steps"]
        assert run(["verify", str(root)]) == ExitCode.NO
        assert capsys.readouterr().out.startswith(f"{root}: unknown: 1 unreadable path\n")


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


DIRECTORIES = {
    "commitlog": "log-not-listed",
    "consumequeue": "queue-not-listed",
    "consumequeue/Orders": "queue-not-listed",
    "consumequeue/Audit/1": "queue-not-listed",
    "index": "index-not-listed",
    "config": "config-not-read",
}


@pytest.mark.parametrize("code", [errno.EACCES, errno.EIO])
@pytest.mark.parametrize("name", DIRECTORIES)
def test_a_directory_that_cannot_be_listed_is_one_finding_and_unknown(name, code, root, monkeypatch):
    with unlistable(monkeypatch, root / name, code):
        found = verified(root)
    assert [(one.code, one.file) for one in found.findings] == [(DIRECTORIES[name], name)]
    assert found.state is State.UNKNOWN
    assert found.losses.messages == found.losses.bytes == 0
    assert found.next_start is not None
    assert found.next_start.do_not_start is None
    looked_at = {check.area for check in found.checks if check.state is State.CLEAN}
    assert name == "commitlog" or Area.COMMIT_LOG in looked_at


def test_damage_next_to_a_directory_that_cannot_be_listed_is_still_found(root, monkeypatch):
    segment = min((root / "commitlog").iterdir())
    data = bytearray(segment.read_bytes())
    data[90] ^= 1
    segment.write_bytes(data)
    for name in ("consumequeue", "index", "config"):
        with unlistable(monkeypatch, root / name):
            codes = {one.code for one in verified(root).findings}
        assert codes == {"log-bad-body", DIRECTORIES[name]}


def test_a_directory_that_cannot_be_listed_is_an_error_for_who_needs_all_of_it(root, monkeypatch):
    with unlistable(monkeypatch, root / "commitlog"), pytest.raises(UnreadableError, match="cannot be listed"):
        mqtool.open(root)


@pytest.mark.parametrize("name", ["topics.json", "consumerOffset.json"])
def test_configuration_that_cannot_be_read_is_unknown_and_not_damaged(name, root, monkeypatch):
    path = root / "config" / name
    for backup in (False, True):
        if backup:
            shutil.copy(path, path.with_name(f"{name}.bak"))
        with unreadable(monkeypatch, path):
            found = verified(root)
        assert [(one.code, one.file) for one in found.findings] == [("config-not-read", f"config/{name}")]
        assert found.state is State.UNKNOWN


def test_a_file_in_the_place_of_config_is_unknown(root):
    shutil.rmtree(root / "config")
    (root / "config").write_text("x")
    found = verified(root)
    assert [(one.code, one.file) for one in found.findings] == [("config-not-read", "config")]
    assert found.state is State.UNKNOWN


@pytest.mark.slow
@pytest.mark.parametrize("crashed", [False, True])
@pytest.mark.parametrize("name", [*DIRECTORIES, "config/topics.json", "segment"])
def test_what_a_start_does_is_unknown_where_it_depends_on_what_cannot_be_read(name, crashed, root, monkeypatch, capsys):
    if crashed:
        (root / "abort").touch()
    path = max((root / "commitlog").iterdir()) if name == "segment" else root / name
    before = {name: (root / name).read_bytes() for name in every_file(root)}
    deny = unlistable if path.is_dir() else unreadable
    end = ExitCode.REFUSED if path.is_dir() else ExitCode.IO_ERROR
    with deny(monkeypatch, path):
        assert run(["explain-start", str(root), "--format", "json"]) == ExitCode.NO
        found = json.loads(capsys.readouterr().out)
        assert re.match(rf"unknown: {re.escape(str(path))}\S*: cannot be ", found["verdict"])
        assert found["exit"] is found["lost"] is found["abort_after"] is found["effort"] is None
        assert str(path) in found["undecided"][0]
        assert run(["explain-start", str(root)]) == ExitCode.NO
        assert " ".join(capsys.readouterr().out.split()).startswith(f"unknown: {path}")
        assert run(["plan", "recover", str(root), "-o", str(root.parent / "plan.json")]) == end
        assert str(path) in capsys.readouterr().err
    assert {name: (root / name).read_bytes() for name in every_file(root)} == before


def asked(capsys, *arguments: str) -> tuple[int, list[dict], str]:
    code = run([*arguments, "--format", "jsonl"])
    out = capsys.readouterr()
    return code, [json.loads(line) for line in out.out.splitlines()], out.err


@pytest.mark.slow
@pytest.mark.parametrize("segment", [0, 1, -1])
@pytest.mark.parametrize("page", [None, 4096], ids=["denied", "bad sector"])
def test_readers_answer_with_what_can_be_read_and_name_the_rest(page, segment, root, monkeypatch, capsys):
    every = sorted(records(root))
    path = sorted((root / "commitlog").iterdir())[segment]
    base = int(path.name)
    bad = (base, base + SIZE) if page is None else (base + page, base + page + 4096)
    inside = next(offset for offset in every if bad[0] <= offset < bad[1])
    outside = every[0] if segment else every[-1]
    with unreadable(monkeypatch, path, from_position=page, until=bad[1] - base):
        code, rows, err = asked(capsys, "dump", str(root))
        assert code == ExitCode.NO
        left = {row["physical_offset"] for row in rows}
        assert left < set(every)
        assert all(bad[0] - 200 < offset < bad[1] for offset in set(every) - left)
        assert f"damage: {path} position " in err
        assert "unreadable at physical offset" in err
        assert asked(capsys, "dump", str(root), "--jobs", "2")[:2] == (code, rows)
        code, rows, err = asked(capsys, "get", str(root), str(outside))
        assert (code, [row["physical_offset"] for row in rows], err) == (ExitCode.OK, [outside], "")
        code, rows, err = asked(capsys, "get", str(root), str(inside))
        assert (code, rows) == (ExitCode.NO, [])
        assert f"cannot read what is at {inside}: {path}: cannot be " in err
        code, rows, err = asked(capsys, "find", str(root), "--key", f"k{every.index(inside)}")
        assert (code, rows) == (ExitCode.NO, [])
        assert "unreadable at physical offset" in err
        assert run(["info", str(root), "--deep", "--format", "json"]) == ExitCode.NO
        deep = json.loads(capsys.readouterr().out)["deep"]
        assert deep["messages"] == len(left)
        assert {part["kind"] for part in deep["damage"]} == {"unreadable"}


def test_readers_answer_with_what_the_listed_directories_hold(root, monkeypatch, capsys):
    with unlistable(monkeypatch, root / "consumequeue"):
        code, rows, _ = asked(capsys, "dump", str(root))
        assert (code, len(rows)) == (ExitCode.OK, 500)
        code, rows, err = asked(capsys, "get", str(root), "Orders/0@3")
        assert (code, rows) == (ExitCode.NO, [])
        assert f"{root / 'consumequeue'} cannot be listed" in err
    with unlistable(monkeypatch, root / "commitlog"):
        for words in (["dump", str(root)], ["find", str(root), "--key", "k1"], ["get", str(root), "Orders/0@3"]):
            code, rows, err = asked(capsys, *words)
            assert (code, rows) == (ExitCode.NO, [])
            assert f"{root / 'commitlog'} cannot be listed" in err
    with unlistable(monkeypatch, root / "index"):
        code, rows, _ = asked(capsys, "find", str(root), "--key", "k1")
        assert (code, len(rows)) == (ExitCode.OK, 1)


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


@pytest.mark.slow
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
        assert run(["salvage", str(root), "-o", str(tmp_path / "new"), "--format", "json"]) == ExitCode.NO
        alone = json.loads(capsys.readouterr().out)
        assert run(["salvage", str(root), "-o", str(tmp_path / "both"), "--with", str(copy)]) == both
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


@pytest.mark.parametrize(
    "what", ["consumequeue_ext/Ext/0/00000000000000000000", "consumequeue_ext/Ext/0", "consumequeue_ext"]
)
@pytest.mark.parametrize("name", ["cqext-4.9.7", "cqext-5.5.0"])
def test_of_tags_in_an_extension_that_cannot_be_read_nothing_is_concluded(name, what, tmp_path, monkeypatch):
    root = copy_store(name, tmp_path)
    deny = unlistable if (root / what).is_dir() else unreadable
    with deny(monkeypatch, root / what), open_readable(root, read_keys(name)) as store:
        found = verify(store)
    assert (found.findings, found.state) == ((), State.UNKNOWN)
    (check,) = [one for one in found.checks if one.state is State.UNKNOWN]
    assert check.area is Area.CONSUME_QUEUE_EXT
    assert re.match(rf"{re.escape(str(root / what))}\S*: cannot be (listed|opened): Permission denied", check.detail)


def test_damage_of_a_queue_whose_extension_cannot_be_read_is_still_found(tmp_path, monkeypatch):
    root = copy_store("cqext-5.5.0", tmp_path)
    queue = min((root / "consumequeue/Ext/0").iterdir())
    units = queue.read_bytes()
    queue.write_bytes(units[:20] + bytes(20) + units[40:])
    extension = min((root / "consumequeue_ext/Ext/0").iterdir())
    with unreadable(monkeypatch, extension), open_readable(root, store_fixture("cqext-5.5.0").config) as store:
        found = verify(store)
    assert [(one.code, one.queue_id, one.position) for one in found.findings] == [("queue-hole", 0, 20)]


@pytest.mark.parametrize("name", ["timerlog/00000000000000000000", "timerlog", "timerwheel", "config/timercheck"])
def test_what_waits_in_a_timer_that_cannot_be_read_is_unknown(name, tmp_path, monkeypatch):
    root = copy_store("timer-5.5.0", tmp_path)
    deny = unlistable if (root / name).is_dir() else unreadable
    with deny(monkeypatch, root / name), open_readable(root, store_fixture("timer-5.5.0").config) as store:
        found = verify(store)
    assert [one.area for one in found.checks if one.state is State.UNKNOWN] == [Area.TIMER]
    assert found.next_start is not None
    assert found.next_start.do_not_start is None
    words = f"{root / name}: cannot be listed" if deny is unlistable else "the timer's files cannot be read"
    assert found.next_start.verdict.startswith(words)


def test_batch_queues_are_not_compared_with_a_log_that_cannot_be_listed(tmp_path, monkeypatch):
    root = copy_store("bcq-5.5.0", tmp_path)
    with unlistable(monkeypatch, root / "commitlog"):
        found = verified(root)
    assert [one.code for one in found.findings] == ["log-not-listed"]
    details = {one.area: one.detail for one in found.checks if one.state is State.UNKNOWN}
    assert details[Area.BATCH_CONSUME_QUEUE] == "not compared: the CommitLog could not be read"


def test_positions_in_queues_that_cannot_be_read_are_not_judged(tmp_path, monkeypatch):
    """A group's offset in a queue that is not listed, and a delay level's in one that is not read."""
    root = copy_store("orders-5.5.0", tmp_path)
    unlisted, level = root / "consumequeue/Keyed", root / "consumequeue/SCHEDULE_TOPIC_XXXX/1"
    denied = unlistable(monkeypatch, unlisted), unreadable(monkeypatch, min(level.iterdir()))
    with denied[0], denied[1], open_readable(root) as store:
        found = verify(store)
    assert [one.code for one in found.findings] == ["queue-not-listed", "queue-unreadable"]


@pytest.mark.parametrize("code", [errno.EACCES, errno.EIO])
@pytest.mark.parametrize("name", ["orders-5.5.0", "cqext-4.9.7"])
def test_a_store_whose_configuration_cannot_be_searched_is_checked_without_it(name, code, tmp_path, monkeypatch):
    """With a timer, whose checkpoint is there, and with filters of consumers."""
    root = copy_store(name, tmp_path)
    with unlistable(monkeypatch, root / "config", code), open_readable(root, read_keys(name)) as store:
        found = verify(store)
    assert {one.code for one in found.findings} == {"config-not-read"}
    assert found.state is State.UNKNOWN


@pytest.mark.parametrize(
    ("name", "path", "code"),
    [
        ("controller-5.5.0/store-x", "epochFileCheckpoint", "epoch-unreadable"),
        ("dledger-5.5.0", "dledger-n0/checkpoint", "dledger-text"),
        ("dledger-5.5.0", "dledger-n0/currterm", "dledger-text"),
    ],
)
def test_small_files_that_cannot_be_read_are_unknown(name, path, code, tmp_path, monkeypatch):
    root = copy_store(name, tmp_path)
    with unreadable(monkeypatch, root / path), open_readable(root, store_fixture(name).config) as store:
        (found,) = verify(store).findings
    assert (found.code, found.severity) == (code, Severity.UNKNOWN)


# --- between two passes ------------------------------------------------------------------------------------------


def differing(root: Path) -> Path:
    """Changes a unit and an index entry, so that queues and index are compared with the log record by record."""
    unit = root / "consumequeue/Orders/0" / f"{0:020}"
    index = min((root / "index").iterdir())
    for path, at in ((unit, 19), (index, 40 + 20 * 4 + 20 + 3)):
        data = bytearray(path.read_bytes())
        data[at] ^= 1
        path.write_bytes(data)
    return root


@pytest.mark.parametrize(
    ("module", "tree", "code", "area", "left"),
    [
        ("unit_detail", "consumequeue", "queue-unreadable", Area.CONSUME_QUEUE, {"index-foreign-entry"}),
        ("index_findings", "index", "index-unreadable", Area.INDEX, {"queue-wrong-tags"}),
        ("checksums", "commitlog", "log-unreadable", Area.COMMIT_LOG, set()),
    ],
)
def test_a_file_that_can_no_longer_be_read_when_differences_are_looked_at_is_unknown(
    module, tree, code, area, left, root, monkeypatch
):
    """A running broker deletes it, or the disk fails: nothing is concluded from what is not there."""
    before = {one.code for one in verified(differing(root)).findings}
    assert {"queue-wrong-tags", "index-foreign-entry"} <= before

    def gone(path):
        raise UnreadableError("cannot be opened: Input/output error", path)

    monkeypatch.setattr(f"mqtool.verify.{module}.ReadFile", gone)
    found = verified(root)
    assert {one.code for one in found.findings} == {code} | left
    assert all(one.severity is Severity.UNKNOWN for one in found.findings if one.code == code)
    assert [check.state for check in found.checks if check.area is area] == [State.UNKNOWN]


def test_a_position_file_of_delay_levels_that_cannot_be_read_is_compared_with_no_queue(root, monkeypatch):
    path = root / "config/delayOffset.json"
    path.write_text('{"offsetTable": {"3": 7}}')
    assert "config-delay-orphan" in {one.code for one in verified(root).findings}
    with unreadable(monkeypatch, path):
        found = verified(root)
    assert "config-delay-orphan" not in {one.code for one in found.findings}
    assert [check.state for check in found.checks if check.area is Area.CONFIG] == [State.UNKNOWN]


def test_an_index_file_with_a_bad_sector_is_unknown_also_where_delayed_messages_are_looked_up(
    tmp_path, monkeypatch, capsys
):
    store = copy_store("orders-5.5.0", tmp_path)
    path = store / "index/20261121003953112"
    with unreadable(monkeypatch, path, from_position=1000, until=1100):
        with open_readable(store) as opened:
            found = verify(opened)
        assert run(["report", str(store), "-o", str(tmp_path / "page.html")]) == ExitCode.NO
        assert "20261121003953112" in (tmp_path / "page.html").read_text()
        capsys.readouterr()
        assert run(["info", str(store), "--format", "json"]) == ExitCode.OK
    info = json.loads(capsys.readouterr().out)
    assert {one["file"]: one["slots"] for one in info["index_files"]}[path.name] is None
    assert any(path.name in oddity and "Input/output error" in oddity for oddity in info["oddities"])
    assert found.state is State.UNKNOWN
    assert {one.file for one in found.findings if one.severity is Severity.UNKNOWN} == {"index/20261121003953112"}


@pytest.mark.parametrize("from_position", [None, 200], ids=["denied", "bad sector"])
def test_a_queue_that_cannot_be_read_is_left_out_of_descriptions(from_position, root, monkeypatch, tmp_path, capsys):
    (root / "config/consumerOffset.json").write_text('{"offsetTable": {"Orders@group": {"0": 3, "1": 2, "2": 1}}}')
    path = min((root / "consumequeue/Orders/0").iterdir())
    with unreadable(monkeypatch, path, from_position=from_position):
        assert run(["info", str(root), "--format", "json"]) == ExitCode.OK
        info = json.loads(capsys.readouterr().out)
        assert run(["offsets", str(root), "--format", "jsonl"]) == ExitCode.NO
        shown = capsys.readouterr()
        assert run(["report", str(root), "-o", str(tmp_path / "page.html")]) == ExitCode.NO
    words = f"queue Orders/0 is left out, because its bounds are unknown: {path}"
    assert any(words in oddity for oddity in info["oddities"])
    assert [one["queue_id"] for one in info["queues"] if one["topic"] == "Orders"] == [1, 2]
    assert words in shown.err
    rows = [json.loads(line) for line in shown.out.splitlines()]
    assert [(one["queue_id"], one["offset"], one["lag"] is None) for one in rows] == [
        (0, 3, True),
        (1, 2, False),
        (2, 1, False),
    ]
