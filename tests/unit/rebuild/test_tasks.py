"""A rebuild in tasks gives the files and the result of one process, and nothing at all if it does not end."""

import shutil
from itertools import pairwise

import pytest
from msgspec.structs import replace

import mqtool
from mqtool.errors import StoreError
from mqtool.rebuild import tasks
from mqtool.rebuild.files import OutputFiles
from mqtool.rebuild.job import rebuild
from mqtool.rebuild.metadata import Surveyor, survey_log
from mqtool.rebuild.parts import RebuildScope
from mqtool.rebuild.placement import NoteKind
from mqtool.rebuild.settings import settings_of
from mqtool.records import segment_bytes
from tests.support.stores import copy_store
from tests.support.task_rebuild import rebuild_by_tasks, run_here
from tests.unit.rebuild.model import record
from tests.unit.rebuild.test_job import SIZES, make_store, numbered, tree

SEGMENT = 1 << 13
ODD = [
    *numbered(60),
    record("a/b"),
    record("SCHEDULE_TOPIC_XXXX", 1, 0, props={"DELAY": "soon", "REAL_TOPIC": "T"}),
    *numbered(70, "U", body=bytes(50)),
    record("../c"),
    *numbered(30, first=80),
    record("a/b"),
    *numbered(40, "U", first=60),
    record("T", 0, 500),
]
"""Topics that are no paths, holes, queue offsets that come again, and a delay that is no number."""


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    """Each walk has several windows and writes its units in several parts; few keys are read at a time."""
    monkeypatch.setattr(segment_bytes, "WINDOW", 4096)
    monkeypatch.setattr(tasks, "_BUFFERED", 1000)
    monkeypatch.setattr(tasks, "_STEP", 25)


def both(root, out, scope=None, **settings):
    """Rebuilds both ways; returns the result of each, with what it wrote and what its surveyor saw."""
    found = []
    for name, way in (("one", rebuild), ("tasks", rebuild_by_tasks)):
        surveyor = Surveyor()
        with mqtool.open(root, {**SIZES, **settings}) as store:
            result = way(store, out / name, settings_of(store), scope, surveyor=surveyor)
            survey = surveyor.finish() if surveyor.is_complete else survey_log(store, settings_of(store).rules)
        found.append((result, tree(out / name), survey))
    return found


@pytest.mark.parametrize(
    "scope",
    [
        RebuildScope(),
        RebuildScope(index=False, topics=("U",), queue_id=0),
        RebuildScope(queues=False),
        RebuildScope(start=SEGMENT + 100, end=2 * SEGMENT - 100),
        RebuildScope(start=1 << 40),
    ],
    ids=["all", "one queue", "index", "a range", "nothing"],
)
def test_files_and_result_are_those_of_one_process(tmp_path, scope):
    root = make_store(tmp_path / "s", ODD, segment=SEGMENT)
    one, in_tasks = both(root, tmp_path, scope)
    assert in_tasks == one
    if scope == RebuildScope():
        result, files, _ = one
        assert len(list((root / "commitlog").iterdir())) > 2
        assert (result.unwritable.count, result.oddities.count, len(result.index_files)) == (2, 1, 7)
        assert {note.kind for _, note in result.notes.items} == {NoteKind.HOLE, NoteKind.RESTARTED}
        assert [name for name in files if "/a" in name or ".." in name] == []


def test_damage_is_listed_once_and_in_order(tmp_path):
    root = make_store(tmp_path / "s", numbered(300), segment=SEGMENT)
    first, second, *_ = sorted((root / "commitlog").iterdir())
    data = bytearray(first.read_bytes())
    data[4:8] = data[3004:3008] = bytes(4)
    first.write_bytes(data)
    second.unlink()
    one, in_tasks = both(root, tmp_path)
    assert in_tasks == one
    starts = [damage.start for damage in one[0].damage.items]
    assert all(low < high for low, high in pairwise(starts))
    assert SEGMENT in starts


@pytest.mark.parametrize("with_keys", [59, 60, 118, 119])
@pytest.mark.parametrize("without", [0, 1])
def test_an_index_file_begins_with_the_record_after_a_full_one(tmp_path, with_keys, without):
    """Even with one that has no key, and then it stays empty at the end."""
    keyed = [record("T", 0, n, props={"KEYS": "k"}, stored=1_700_000_000_000 + n) for n in range(with_keys)]
    plain = [record("T", 0, with_keys + n, stored=1_800_000_000_000) for n in range(without)]
    one, in_tasks = both(make_store(tmp_path / "s", [*keyed, *plain], segment=SEGMENT), tmp_path)
    assert in_tasks == one
    assert len(one[0].index_files) == -(-with_keys // 59) + (without and with_keys % 59 == 0)


def test_names_of_index_files_ascend_where_times_do_not(tmp_path):
    made = [record("T", 0, n, props={"KEYS": " ".join("abcdefgh")}, stored=1_700_000_000_000 - n) for n in range(40)]
    one, in_tasks = both(make_store(tmp_path / "s", made), tmp_path)
    assert in_tasks == one
    assert len(one[0].index_files) == 6


def test_a_message_parked_in_one_segment_and_delivered_in_the_next_is_known_to_be_delivered(tmp_path):
    def of(number, topic, queue_id, offset):
        properties = {"UNIQ_KEY": f"{number:032}", "DELAY": "2", "REAL_TOPIC": "T"}
        return record(topic, queue_id, offset, props=properties, body=bytes(5000))

    parked = [of(number, "SCHEDULE_TOPIC_XXXX", 1, number) for number in range(3)]
    root = make_store(tmp_path / "s", [*parked, of(0, "T", 0, 0), of(1, "T", 0, 1)], segment=SEGMENT)
    one, in_tasks = both(root, tmp_path)
    assert in_tasks == one
    assert one[2].served == {1: 2}


def test_batch_queues_that_only_records_show_are_known_to_all_tasks(tmp_path):
    root = copy_store("bcq-5.5.0", tmp_path)
    for kind in ("batchconsumequeue", "config"):
        shutil.rmtree(root / kind)
    one, in_tasks = both(root, tmp_path)
    assert in_tasks == one
    assert {name.split("/")[0] for name in one[1]} == {"batchconsumequeue", "index"}


def test_more_holes_than_one_process_would_fill_are_refused(tmp_path):
    """Each task could fill the hole of its queue: what they filled is added up."""
    jumps = [record(topic, 0, offset) for topic in "TU" for offset in (0, 1, 700_000, 700_001)]
    root = make_store(tmp_path / "s", jumps)
    with mqtool.open(root) as store, pytest.raises(StoreError, match=f"{root}: its queues lack .*; leave out --spark"):
        rebuild_by_tasks(store, tmp_path / "new", settings_of(store))
    assert [path.name for path in tmp_path.iterdir()] == ["s"]
    result, _, _ = both(make_store(tmp_path / "t", jumps[:4]), tmp_path)[1]
    assert result.notes.count == 1


def test_attempts_that_do_not_count_leave_no_trace(tmp_path):
    """Spark may run a task twice at a time, or again after a kill in the middle of writing."""

    def twice(job, work, what, on_progress):
        abandoned = run_here(job, work, what, on_progress)
        for number, answer in enumerate(abandoned):
            path = next(path for path in sorted(answer.attempt.rglob("*")) if path.is_file())
            path.write_bytes(path.read_bytes()[: number % 20])
        return run_here(job, work, what, on_progress)

    root = make_store(tmp_path / "s", ODD, segment=SEGMENT)
    with mqtool.open(root, SIZES) as store:
        expected = rebuild(store, tmp_path / "one", settings_of(store))
        assert rebuild_by_tasks(store, tmp_path / "new", settings_of(store), run=twice) == expected
    assert tree(tmp_path / "new") == tree(tmp_path / "one")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "one", "s"]


@pytest.mark.parametrize("failing", [1, 2])
def test_a_failure_in_either_round_leaves_nothing(tmp_path, failing):
    rounds = []

    def fail(job, work, what, on_progress):
        rounds.append(what)
        answers = run_here(job, work, what, on_progress)
        if len(rounds) == failing:
            raise StoreError("no space", job.attempts)
        return answers

    root = make_store(tmp_path / "s", ODD, segment=SEGMENT)
    with mqtool.open(root, SIZES) as store:
        with pytest.raises(StoreError, match="no space"):
            rebuild_by_tasks(store, tmp_path / "new", settings_of(store), run=fail)
        assert [path.name for path in tmp_path.iterdir()] == ["s"]
        rebuild_by_tasks(store, tmp_path / "new", settings_of(store))


def test_a_task_whose_directory_was_removed_makes_it_no_more(tmp_path):
    (tmp_path / "work" / "attempt").mkdir(parents=True)
    with OutputFiles(tmp_path / "work" / "attempt") as output:
        output.write("consumequeue/T/0/a", 1, 0, b"a")
        shutil.rmtree(tmp_path / "work")
        with pytest.raises(StoreError, match="cannot be written"):
            output.write("consumequeue/T/1/a", 1, 0, b"a")
    job = tasks.Job(tmp_path, None, None, None, 0, tmp_path / "work" / "attempts")
    with pytest.raises(StoreError, match="cannot be written"):
        job.begin()
    assert list(tmp_path.iterdir()) == []


def test_the_progress_of_both_rounds_is_one(tmp_path):
    seen = []
    root = make_store(tmp_path / "s", numbered(300), segment=SEGMENT)
    with mqtool.open(root, SIZES) as store:
        settings = replace(settings_of(store), index_entries=400)
        rebuild_by_tasks(store, tmp_path / "new", settings, on_progress=lambda done, total: seen.append(done / total))
    assert seen == sorted(seen)
    assert (0.5 in seen, seen[-1]) == (True, 1.0)
