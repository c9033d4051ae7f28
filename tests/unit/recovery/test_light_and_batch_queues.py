"""A start that dispatches records to light queues and batch queues again: predicted, and done by the engine."""

import json
import shutil

import pytest

from mqtool.engine import StoreOptions, open_store
from mqtool.engine.options import options_from_config
from mqtool.formats.properties import encode
from mqtool.recovery import predict
from mqtool.recovery.settings import read_config

KEYS = {
    "mappedFileSizeCommitLog": 1 << 16,
    "mappedFileSizeConsumeQueue": 20 * 50,
    "mapperFileSizeBatchConsumeQueue": 46 * 50,
    "maxHashSlotNum": 10,
    "maxIndexNum": 20,
    "enableLmq": "true",
    "enableMultiDispatch": "true",
}


@pytest.fixture
def store(tmp_path):
    root = tmp_path / "store"
    (root / "config").mkdir(parents=True)
    batched = {"topicName": "Batched", "attributes": {"queue.type": "BatchCQ"}}
    (root / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": {"Batched": batched}}))
    with open_store(root, options()) as opened:
        for number in range(30):
            names = "%LMQ%a,%LMQ%b" if number % 3 else "%LMQ%b"
            held = encode([("INNER_MULTI_DISPATCH", names), ("KEYS", f"k{number}")])
            assert opened.put("Plain", number % 2, b"light", held).ok
            assert opened.put("Batched", 0, b"one", encode([("KEYS", "k")])).ok
    return root


def options() -> StoreOptions:
    return options_from_config(read_config(KEYS))


@pytest.mark.parametrize(
    "gone", ["consumequeue/%LMQ%a", "consumequeue/%LMQ%b", "batchconsumequeue/Batched", "consumequeue"]
)
def test_the_queues_are_predicted_as_the_engine_then_has_them(store, gone):
    assert (store / gone).is_dir()
    shutil.rmtree(store / gone)
    (store / "abort").touch()
    predicted = predict(store, "5.5", KEYS)
    with open_store(store, options()) as opened:
        queues = opened._components.queues.all()
        bounds = {
            f"{queue.topic}/{queue.queue_id}": opened.queue_bounds(queue.topic, queue.queue_id) for queue in queues
        }
    assert {key: (one.min_offset, one.max_offset) for key, one in predicted.queues.items()} == bounds
    assert [bounds[key] for key in ("%LMQ%a/0", "%LMQ%b/0", "Batched/0")] == [(0, 20), (0, 30), (0, 30)]
