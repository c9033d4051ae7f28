"""What is lost already, what a start loses, and what no consumer gets, told apart and counted alike everywhere."""

import shutil
from pathlib import Path

import pytest

import mqtool
from mqtool.recovery import predict
from mqtool.recovery.losses import LossCount
from mqtool.repair.outlook import Preview
from mqtool.repair.salvage import salvage
from mqtool.verify import Verification, verify
from tests.support.damage import damage_answers, damage_case
from tests.support.stores import copy_store, shape_keys, store_fixture
from tests.unit.recovery.stores import SEGMENT, StoreWriter, patch

UNSERVED = "still in the log, but no consumer gets them"
LIGHT = {"%LMQ%dev-1/0": ((0, 11),), "%LMQ%dev-2/0": ((0, 11),), "%LMQ%dev-3/0": ((0, 3),), "%LMQ%dev-4/0": ((0, 3),)}
"""Queue offsets of the light queues of the orders fixtures."""


def verified(root: Path) -> Verification:
    with mqtool.open(root) as store:
        return verify(store)


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (LossCount(), "loses no message"),
        (LossCount(gone=1), "loses no message; 1 is lost already"),
        (LossCount(gone=2, by_start=1), "loses 1 message; 2 are lost already"),
        (LossCount(unserved=1), "loses no message; 1 is not served: still in the log, but no consumer gets it"),
        (
            LossCount(3, 4, 5, 6),
            "loses 4 messages; this change loses 6 messages that are still in the store; 3 are lost already; 5 are not "
            "served: " + UNSERVED,
        ),
    ],
)
def test_losses_in_words(count, words):
    assert count.start_words == words


def test_messages_of_a_lost_batch_are_in_the_forecast(tmp_path):
    """Four records of five messages each are zeroed: their units of 46 bytes prove them. 42 messages follow them."""
    root = copy_store("bcq-5.5.0", tmp_path)
    with mqtool.open(root) as store:
        places = [message.physical_offset for message in store.messages() if message.queue_id == 0]
    log = root / "commitlog" / f"{0:020d}"
    patch(log, places[3], bytes(places[7] - places[3]))
    outcome = predict(root)
    assert outcome.gone == {"BatchTopic/0": ((15, 34),)}
    assert outcome.count() == LossCount(gone=20, by_start=42)
    result = verified(root)
    assert (result.losses.messages, result.next_start.losses) == (20, LossCount(gone=20, by_start=42))
    with mqtool.open(root) as store:
        assert Preview(store).unchanged.already_lost == 20


@pytest.mark.parametrize("fixture", ["orders-4.9.7", "orders-5.5.0"])
def test_light_queues_that_are_missing_are_reported_and_not_served(fixture, tmp_path):
    root = copy_store(fixture, tmp_path)
    for path in (root / "consumequeue").glob("%LMQ%*"):
        shutil.rmtree(path)
    result = verified(root)
    assert {finding.code for finding in result.findings} == {"queue-missing"}
    assert {f"{finding.topic}/{finding.queue_id}" for finding in result.findings} == LIGHT.keys()
    assert result.next_start.losses == LossCount(unserved=32)
    assert predict(root).unserved == LIGHT


def test_light_queues_are_not_expected_where_they_are_switched_off(tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    for path in (root / "consumequeue").glob("%LMQ%*"):
        shutil.rmtree(path)
    off = {**shape_keys(store_fixture("orders-5.5.0").config), "enableMultiDispatch": "false"}
    with mqtool.open(root, off) as store:
        assert [finding.code for finding in verify(store).findings] == []
    assert predict(root, config=off).count() == LossCount()


def test_a_record_that_states_the_place_of_another_in_a_light_queue_leaves_none_unserved(tmp_path):
    """A digit of its offset is flipped. No repair corrects that, and the new store is ready to start."""
    root = copy_store("orders-5.5.0", tmp_path)
    with mqtool.open(root) as store:
        named = (message for message in store.messages() if "INNER_MULTI_DISPATCH" in message.properties)
        message = next(one for one in named if one.properties["INNER_MULTI_QUEUE_OFFSET"] == "1,2")
        raw = store.commit_log.read(message.physical_offset, 400)
        segment = store.commit_log.segments[store.commit_log.segment_at(message.physical_offset)]
    patch(segment.path, message.physical_offset - segment.base + raw.index(b"OFFSET\x011,2") + 7, b"3")
    salvage(root, tmp_path / "new")
    outcome = predict(tmp_path / "new")
    assert (outcome.count(), outcome.do_not_start) == (LossCount(), False)


def test_messages_of_a_missing_queue_are_not_served(tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    with mqtool.open(root) as store:
        count = store.queue("Orders", 0).max_offset
    shutil.rmtree(root / "consumequeue" / "Orders" / "0")
    outcome = predict(root)
    assert outcome.unserved == {"Orders/0": ((0, count - 1),)}
    assert outcome.count() == LossCount(unserved=count)


@pytest.mark.parametrize("release", ["4.9", "5.5"])
def test_segments_that_are_all_named_one_too_far_lose_their_messages(release, tmp_path):
    """Nothing is lost already, and the messages of the first segment are not expired.

    The broker looks for the record at physical offset 0 in its first segment, whatever that is named
    (CommitLog.getMessage), and finds it there.
    """
    writer = StoreWriter(tmp_path / "store")
    for number in range(100):
        writer.put(bytes(60 + number * number % 101))
    writer.queue()
    log = writer.root / "commitlog"
    for path in sorted(log.iterdir(), reverse=True):
        path.rename(log / f"{int(path.name) + SEGMENT:020d}")
    outcome = predict(writer.root, release)
    assert outcome.runs
    assert outcome.count() == LossCount(by_start=99)


def test_a_message_that_only_the_queue_offsets_around_damage_show_is_lost_already(tmp_path):
    writer = StoreWriter(tmp_path / "store")
    for number in range(100):
        writer.put(b"%03d" % number + bytes(60))
    patch(writer.segment(0), writer.units[20][0] + 4, bytes(4))
    assert predict(writer.root, "5.5").gone == {"Orders/0": ((20, 20),)}


@pytest.mark.parametrize(
    ("name", "release", "expected"),
    [
        ("old-flip-magic@5.5.0-clean", "5.5.0", LossCount(unserved=1)),
        ("old-flip-magic@4.9.7-clean", "4.9.7", LossCount()),
        ("blank-early@5.5.0-crash", "5.5.0", LossCount(unserved=1)),
        ("flip-magic@5.5.0-clean", "5.5.0", LossCount(by_start=10)),
        ("flip-size@4.9.7-crash", "4.9.7", LossCount(by_start=10)),
        ("flip-physical-offset@5.5.0-crash", "5.5.0", LossCount()),
        ("flip-physical-offset-huge@4.9.7-crash", "4.9.7", LossCount()),
        ("flip-body@5.5.0-clean", "5.5.0", LossCount(gone=1, by_start=9)),
    ],
)
def test_a_message_that_its_unit_confirms_is_not_lost(name, release, expected, tmp_path):
    """Its body is intact. The real broker served it or not, and salvage brings it back."""
    root = damage_case(name, tmp_path)
    lost = damage_answers(release)[name]["lost"]
    assert sum(last - first + 1 for runs in lost.values() for first, last in runs) == sum(
        (expected.gone, expected.by_start, expected.unserved)
    )
    result = verified(root)
    assert (result.losses.messages, result.next_start.losses) == (expected.gone, expected)
    assert predict(root).count() == expected
    with mqtool.open(root) as store:
        assert Preview(store).unchanged.already_lost == expected.gone
    assert salvage(root, tmp_path / "new").lost == expected.gone


@pytest.mark.parametrize(
    ("name", "release"),
    [("none@4.9.7-crash", "4.9.7"), ("none@5.5.0-crash", "5.5.0"), ("abort-added@5.5.0-clean", "5.5.0")],
)
def test_index_entries_that_the_real_broker_deleted_for_good_are_counted(name, release, tmp_path):
    """After a crash a start deletes the index file that is not full, and indexes only what it scans again."""
    root = damage_case(name, tmp_path)
    with mqtool.open(root) as store:
        before = sum(file.header.index_count - 1 for file in store.disk_index_files())
    left = sum(count - 1 for *_, count in damage_answers(release)[name]["index_after"])
    assert predict(root, release).index_lost == before - left > 0
