"""What becomes of a built result in a plan: steps, files that were read, and notes."""

import os
import shutil

import pytest

from mqtool.errors import LayoutError
from mqtool.rebuild.sink import Result
from mqtool.records.dispatch import Oddity
from mqtool.recovery import predict
from mqtool.repair import RebuildQueues, make_plan
from mqtool.repair.derived import _add_notes, _replace_queue
from mqtool.repair.plan_builder import _described, steps_of
from mqtool.repair.staged_files import StagedFiles
from mqtool.store.store import open_store
from tests.support.stores import copy_store, store_fixture


def test_an_extension_whose_queue_has_no_message_stays_and_its_queue_says_so(tmp_path):
    config = store_fixture("cqext-5.5.0").config
    root = copy_store("cqext-5.5.0", tmp_path)
    for kind in ("consumequeue", "consumequeue_ext"):
        topic = next(path for path in (root / kind).iterdir() if (path / "0").is_dir() and any((path / "0").iterdir()))
        shutil.copytree(topic / "0", topic / "77")
        for path in (topic / "77").iterdir():
            path.write_bytes(bytes(path.stat().st_size))
    with open_store(root, config) as store:
        staged = StagedFiles(root)
        for kind in ("consumequeue", "consumequeue_ext"):
            directory = next((root / kind).glob("*/77"))
            _replace_queue(store, kind, directory, tmp_path / "out", staged, is_foreign=False)
    (note,) = staged.notes
    assert note.startswith("consumequeue/")
    assert note.endswith("/77: the log contains no message of this queue; it is not changed")
    assert (staged.removed, staged.files) == (set(), {})


def test_what_dispatch_finds_odd_in_a_record_is_a_note_of_the_plan(tmp_path):
    staged, result = StagedFiles(tmp_path), Result()
    result.oddities.add(Oddity(4711, "its light queues are not named"))
    _add_notes(result, staged)
    assert staged.notes == ["physical offset 4711: its light queues are not named"]


def test_a_size_of_queue_files_that_nothing_states_is_a_note_of_the_plan(tmp_path):
    root = copy_store("txbits-4.9.7", tmp_path)
    shutil.rmtree(next((root / "consumequeue").glob("*/0")))
    plan = make_plan(root, RebuildQueues())
    assert not any("broker's default" in note for note in plan.notes)
    shutil.rmtree(root / "consumequeue")
    plan = make_plan(root, RebuildQueues())
    assert any(note.startswith("queue files of 6000000 bytes, the broker's default") for note in plan.notes)


def test_queues_are_not_rebuilt_in_a_size_that_may_be_that_of_the_damaged_file(tmp_path):
    root = copy_store("timer-5.5.0", tmp_path)
    os.truncate(root / "consumequeue/Timer/0/00000000000000000000", 2020)
    words = "2020 bytes may be the wrong file size: 1 of 2 consumequeue files, and as many have 2000 bytes"
    with pytest.raises(LayoutError, match=words):
        make_plan(root, RebuildQueues())
    assert any(one.startswith(words) for one in predict(root, "5.5").undecided)
    config = store_fixture("timer-5.5.0").config
    assert [step.path for step in make_plan(root, RebuildQueues(), config=config).steps] == [
        "consumequeue/Timer/0/00000000000000000000"
    ]


def test_a_file_that_is_neither_there_nor_made_is_no_step_and_nothing_that_was_read(tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    with open_store(root) as store:
        staged = StagedFiles(root, removed={"config/nothing.json", "checkpoint"})
        staged.reads |= {"config/nothing.json": True, "checkpoint": True, "config/topics.json": True}
        steps = steps_of(staged)
        plan = _described(store, (), staged, steps, None, None)
    assert [step.path for step in steps] == ["checkpoint"]
    assert [read.path for read in plan.reads] == ["config/topics.json"]
