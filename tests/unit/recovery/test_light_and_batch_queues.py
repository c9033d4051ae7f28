"""A start that dispatches records to light queues and batch queues again: predicted, and done by the engine."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mqtool.engine import StoreOptions, open_store
from mqtool.engine.options import options_from_config
from mqtool.formats.properties import encode
from mqtool.recovery import predict
from mqtool.store import Message, Store
from mqtool.store.config.broker_config import load
from tests.support.stores import answers, copy_store, store_fixture
from tests.unit.recovery.stores import patch

KEYS = {
    "mappedFileSizeCommitLog": 1 << 16,
    "mappedFileSizeConsumeQueue": 20 * 50,
    "mapperFileSizeBatchConsumeQueue": 46 * 50,
    "maxHashSlotNum": 10,
    "maxIndexNum": 20,
    "enableLmq": "true",
    "enableMultiDispatch": "true",
}


SMALL_SEGMENTS = KEYS | {"mappedFileSizeCommitLog": 1 << 12}


@pytest.fixture
def store(tmp_path):
    return written(tmp_path / "store", KEYS)


def written(root: Path, keys: Mapping[str, Any]) -> Path:
    """A store with thirty messages in light queues and thirty in a batch queue."""
    (root / "config").mkdir(parents=True)
    batched = {"topicName": "Batched", "attributes": {"queue.type": "BatchCQ"}}
    (root / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": {"Batched": batched}}))
    with open_store(root, options(keys)) as opened:
        for number in range(30):
            names = "%LMQ%a,%LMQ%b" if number % 3 else "%LMQ%b"
            held = encode([("INNER_MULTI_DISPATCH", names), ("KEYS", f"k{number}")])
            assert opened.put("Plain", number % 2, b"light", held).ok
            assert opened.put("Batched", 0, b"one", encode([("KEYS", "k")])).ok
    return root


def options(keys: Mapping[str, Any]) -> StoreOptions:
    return options_from_config(load(keys))


def batched(store: Path) -> list[Message]:
    with Store(store) as opened:
        return [found for found in opened.messages() if found.topic == "Batched"]


def bounds_after_start(store: Path, keys: Mapping[str, Any] = KEYS) -> dict[str, tuple[int, int]]:
    """Bounds of the queues after a start by the engine, which are those that were predicted."""
    predicted = predict(store, "5.5", keys)
    with open_store(store, options(keys)) as opened:
        queues = opened._components.queues.all()
        bounds = {
            f"{queue.topic}/{queue.queue_id}": opened.queue_bounds(queue.topic, queue.queue_id) for queue in queues
        }
    assert {key: (one.min_offset, one.max_offset) for key, one in predicted.queues.items()} == bounds
    return bounds


@pytest.mark.parametrize(
    "gone", ["consumequeue/%LMQ%a", "consumequeue/%LMQ%b", "batchconsumequeue/Batched", "consumequeue"]
)
def test_the_queues_are_predicted_as_the_engine_then_has_them(store, gone):
    assert (store / gone).is_dir()
    shutil.rmtree(store / gone)
    (store / "abort").touch()
    bounds = bounds_after_start(store)
    assert [bounds[key] for key in ("%LMQ%a/0", "%LMQ%b/0", "Batched/0")] == [(0, 20), (0, 30), (0, 30)]


def with_a_place_that_is_no_number(store: Path) -> tuple[Message, int]:
    """Returns a message whose second light queue has no valid queue offset, and its number in its queue."""
    with Store(store) as opened:
        light = [found for found in opened.messages() if found.topic == "Plain" and found.queue_id == 1]
    bad = light[9]
    assert bad.properties["INNER_MULTI_DISPATCH"] == "%LMQ%a,%LMQ%b"
    path = store / "commitlog" / f"{0:020}"
    data = path.read_bytes()
    at = data.index(b"INNER_MULTI_QUEUE_OFFSET", bad.physical_offset)
    places = bad.properties["INNER_MULTI_QUEUE_OFFSET"]
    patch(path, data.index(places.encode(), at), places[:-1].encode() + b"x")
    return bad, int(places.partition(",")[0])


def test_dispatch_stops_at_a_record_whose_place_in_a_light_queue_is_no_number(store):
    bad, place = with_a_place_that_is_no_number(store)
    shutil.rmtree(store / "consumequeue")
    found = predict(store, "4.9", KEYS)
    assert found.hung == (
        f"start() waits for dispatch, which keeps failing at {bad.physical_offset}: load exception "
        f'java.lang.NumberFormatException: For input string: "{bad.properties["INNER_MULTI_QUEUE_OFFSET"].partition(",")[2][:-1]}x"'
    )
    assert found.plan is not None
    assert found.plan.dispatch_from == bad.physical_offset
    ends = {key: plan.files[-1].end // 20 for key, plan in found.plan.queues.items() if plan.files}
    assert ends["Plain", 1] == bad.queue_offset + 1
    assert ends["%LMQ%a", 0] == place + 1


@pytest.mark.parametrize("crashed", [False, True])
def test_units_past_the_end_of_a_torn_log_are_cut(store, crashed):
    torn = batched(store)[12]
    patch(store / "commitlog" / f"{0:020}", torn.physical_offset, bytes(8))
    if crashed:
        (store / "abort").touch()
    assert bounds_after_start(store)["Batched/0"] == (0, 12)


def test_messages_of_deleted_segments_have_expired(tmp_path):
    store = written(tmp_path / "store", SMALL_SEGMENTS)
    (store / "commitlog" / f"{0:020}").unlink()
    first = batched(store)[0].queue_offset
    assert first > 0
    assert bounds_after_start(store, SMALL_SEGMENTS)["Batched/0"] == (first, 30)


def test_a_batch_queue_with_a_gap_begins_after_the_last_expired_unit(tmp_path):
    store = written(tmp_path / "store", SMALL_SEGMENTS)
    (store / "commitlog" / f"{0:020}").unlink()
    first = batched(store)[0].queue_offset
    base_queue_offset = 46 * (first - 1) + 28  # of the last unit that has expired
    patch(store / "batchconsumequeue/Batched/0" / f"{0:020}", base_queue_offset, (first - 4).to_bytes(8, "big"))
    with Store(store) as read:
        queues = {queue.topic: queue.min_offset for queue in read.queues()}
    assert queues["Batched"] == first - 3
    assert bounds_after_start(store, SMALL_SEGMENTS)["Batched/0"] == (first - 3, 30)


def test_without_a_log_the_files_of_all_queues_are_deleted(store):
    shutil.rmtree(store / "commitlog")
    predicted = predict(store, "5.5", KEYS)
    assert {(one.min_offset, one.max_offset) for one in predicted.queues.values()} == {(0, 0), (-1, 0)}
    open_store(store, options(KEYS)).close()
    kept = [
        path for name in ("consumequeue", "batchconsumequeue") for path in (store / name).rglob("0*/") if path.is_file()
    ]
    assert kept == []


@pytest.mark.parametrize("part", ["BatchTopic", "BatchTopic/1"])
def test_a_batch_queue_whose_directory_is_a_file_gets_no_units(part, tmp_path):
    root = copy_store("bcq-5.5.0", tmp_path)
    path = root / "batchconsumequeue" / part
    shutil.rmtree(path)
    path.touch()
    found = predict(root, "5.5", store_fixture("bcq-5.5.0").config)
    words = f"queue BatchTopic/1 gets no file, because batchconsumequeue/{part} is not a directory"
    assert sum(one.startswith(words) for one in found.accepted) == 1
    units = [row for row in answers("bcq-5.5.0", "batchqueue") if row["kind"] == "unit" and row["queueId"] == 1]
    last = units[-1]["baseOffset"] + units[-1]["batchSize"] - 1
    assert found.lost is not None
    assert found.lost["BatchTopic/1"] == ((units[0]["baseOffset"], last),)
    assert ("BatchTopic/0" in found.lost) is (part == "BatchTopic")


def test_a_batch_queue_with_a_directory_in_place_of_its_file_gets_no_units(tmp_path):
    root = copy_store("bcq-5.5.0", tmp_path)
    path = root / "batchconsumequeue/BatchTopic/1/00000000000000000000"
    path.unlink()
    path.mkdir()
    found = predict(root, "5.5", store_fixture("bcq-5.5.0").config)
    name = "batchconsumequeue/BatchTopic/1/00000000000000000000"
    assert (
        sum(one.startswith(f"queue BatchTopic/1 gets no file, because {name} is a directory") for one in found.accepted)
        == 1
    )
    queue = found.queues["BatchTopic/1"]
    assert (queue.min_offset, queue.max_offset) == (-1, 0)  # as the real 5.5.0 answers
    assert found.lost == {"BatchTopic/1": ((0, 16),)}
    assert not any(one.startswith("batchconsumequeue") for one in found.files.created)


@pytest.mark.parametrize("name", ["consumequeue/Plain/0", "consumequeue/%LMQ%a/0"])
def test_a_queue_with_a_directory_in_place_of_its_file_gets_no_units(name, store):
    path = store / name / f"{0:020}"
    path.unlink()
    path.mkdir()
    (store / "abort").touch()
    found = predict(store, "5.5", KEYS)
    assert found.runs
    queue = name.removeprefix("consumequeue/")
    assert (found.queues[queue].min_offset, found.queues[queue].max_offset) == (0, 0)
    assert any(f"{path.relative_to(store)} is a directory" in one for one in found.accepted)
