"""Names of files, types of queues, epochs, and units of extensions that contradict what is in them or beside them."""

import json

import pytest

import mqtool
from mqtool.formats import epoch
from mqtool.formats.epoch import EpochEntry
from mqtool.verify import verify
from tests.support.builder import StoreBuilder
from tests.support.stores import copy_store


def findings(root, code):
    """File names and evidence of the findings with a code."""
    with mqtool.open(root) as store:
        return [(one.file.rpartition("/")[2], one.evidence) for one in verify(store).findings if one.code == code]


@pytest.fixture
def root(tmp_path):
    """A store of three segments of 16 KiB."""
    builder = StoreBuilder()
    while len(builder.segments) < 3:
        builder.put(b"x" * 1000, unique_key=f"u{len(builder.puts)}")
    return builder.write(tmp_path / "store")


@pytest.mark.parametrize("data", [bytes(1 << 14), b"\xff" * (1 << 14)], ids=["zeros", "minus one"])
def test_a_file_without_a_record_whose_name_is_no_multiple_is_a_stray_file(data, root):
    name = f"{3 * (1 << 14) + 100:020}"
    (root / "commitlog" / name).write_bytes(data)
    words = f"expected a multiple of {1 << 14}; it has no record"
    assert (name, words) in findings(root, "log-stray-file")


def test_a_number_for_a_name_makes_a_segment_of_a_file_for_the_broker(root):
    (root / "commitlog" / "99").write_bytes(bytes(1 << 14))
    ((name, words),) = findings(root, "log-stray-file")
    assert name == "99"
    assert words.endswith("; the broker reads it as a segment, in the order of the names")


def test_queues_of_another_type_than_the_topic_s_are_reported(root):
    (root / "config").mkdir()
    topic = {"topicName": "Topic", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
    for kind, expected in (("SimpleCQ", []), ("BatchCQ", ["the configuration states BatchCQ, but the queues are in"])):
        table = {"topicConfigTable": {"Topic": {**topic, "attributes": {"queue.type": kind}}}}
        (root / "config" / "topics.json").write_text(json.dumps(table))
        found = [words.partition(" /")[0] for _, words in findings(root, "config-queue-type")]
        assert found == expected


def test_topics_that_a_broker_makes_at_its_start_may_be_missing_in_topics_json(tmp_path):
    builder = StoreBuilder()
    names = ("SELF_TEST_TOPIC", "TBW102", "BenchmarkTest", "%RETRY%G", "rmq_sys_wheel_timer", "RMQ_SYS_OF_USERS")
    for name in names:
        builder.put(topic=name)
    root = builder.write(tmp_path / "store")
    (root / "config").mkdir()
    (root / "config" / "topics.json").write_text('{"topicConfigTable": {}}')
    ((_, words),) = findings(root, "config-topic-missing")
    assert "RMQ_SYS_OF_USERS" in words


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ([(1, 0), (1, 100)], "epoch 1 from 100 follows epoch 1 from 0"),
        ([(1, 100), (2, 0)], "epoch 2 from 0 follows epoch 1 from 100"),
        ([(1, 0), (2, 1 << 40)], f"epoch 2 starts at {1 << 40}, but the log ends at "),
    ],
    ids=["epoch", "offset", "after the end"],
)
def test_epochs_that_are_in_no_order_are_reported(entries, words, tmp_path):
    root = copy_store("controller-5.5.0/store-x", tmp_path)
    path = root / "epochFileCheckpoint"
    path.write_bytes(epoch.build(EpochEntry(*entry) for entry in entries))
    ((name, found),) = findings(root, "epoch-order")
    assert (name, found.startswith(words)) == (path.name, True)


@pytest.mark.parametrize("name", ["cqext-4.9.7", "cqext-5.5.0"])
def test_an_extension_that_cannot_be_read_on_is_reported_with_its_file(name, tmp_path):
    root = copy_store(name, tmp_path)
    path = next(path for path in sorted((root / "consumequeue_ext").rglob("0" * 20)) if any(path.read_bytes()))
    with path.open("r+b") as file:
        file.write((5).to_bytes(2, "big"))
    found = [words for _, words in findings(root, "ext-bad-unit")]
    assert [words.partition(":")[0] for words in found] == [path.name]
    assert findings(root, "ext-dangling-address")
