"""`verify` says what the next start of a broker would do, and when not to start it."""

import shutil
import sys
from types import SimpleNamespace

import pytest

import mqtool
from mqtool.errors import UsageError
from mqtool.recovery.losses import LossCount
from mqtool.verify import NextStart, Options, State, verify
from mqtool.verify import next_start as module
from tests.support.builder import StoreBuilder
from tests.support.damage import base_messages, damage_answers, damage_case, held_lock
from tests.support.stores import copy_store
from tests.support.tiers import one_in

WRONG_NUMBERS = {"properties": b"INNER_NUM\x0170000\x02INNER_BASE\x010\x02"}
"""Of a record of no batch: 5.5 parses them all the same, and takes a record with others for damaged."""


def judged(root, **options) -> NextStart | None:
    with mqtool.open(root) as store:
        return verify(store, Options(**options)).next_start


def recorded_losses(name: str, opened_by: str) -> int | None:
    lost = damage_answers(opened_by, "4.9.7" if "@4.9.7" in name and opened_by == "5.5.0" else None)[name]["lost"]
    return None if lost is None else sum(last - first + 1 for runs in lost.values() for first, last in runs)


@pytest.mark.parametrize(
    ("name", "broker", "headline"),
    [
        (
            "recent-flip-body@4.9.7-clean",
            "4.9.7",
            "a start of 4.9 loses {more} messages; 1 is lost already; do not start the broker",
        ),
        ("recent-flip-body@4.9.7-clean", "5.5.0", "a start of 5.5 loses no message; 1 is lost already"),
        ("tail-torn@5.5.0-crash", "5.5.0", "a start of 5.5 loses no message; 1 is lost already"),
        ("cq-behind@5.5.0-crash", "5.5.0", "a start of 5.5 loses no message"),
    ],
)
def test_the_headline_has_the_losses_that_the_real_broker_had(tmp_path, name, broker, headline):
    found = judged(damage_case(name, tmp_path), broker=broker)
    assert found is not None
    assert found.headline == headline.format(more=recorded_losses(name, broker) - 1)
    assert found.do_not_start is ("do not start" in headline)
    assert found.release_evidence == "given"


def test_messages_in_whose_place_another_brokers_segment_is_are_lost_already(tmp_path):
    with mqtool.open(damage_case("foreign-segment-0@5.5.0-crash", tmp_path)) as store:
        found = verify(store)
    own = [line for line in base_messages("5.5.0-crash") if line["offset"] >= 0 and line["phy"] < 16384]
    assert (found.losses.messages, found.next_start.losses) == (len(own), LossCount(gone=len(own)))


def test_a_broker_that_would_refuse_is_not_to_be_started(tmp_path):
    found = judged(damage_case("segment-short-last@5.5.0-clean", tmp_path))
    assert found is not None
    assert found.headline.startswith("5.5 does not start, exit -3: ")
    assert found.headline.endswith("; do not start the broker")
    assert (found.losses, found.do_not_start) == (None, True)


@pytest.mark.parametrize(("fixture", "release"), [("orders-4.9.7", "4.9"), ("orders-5.5.0", "5.5")])
def test_a_healthy_store_is_judged_by_the_release_that_wrote_it(tmp_path, fixture, release):
    found = judged(copy_store(fixture, tmp_path))
    assert found is not None
    assert (found.release, found.losses, found.do_not_start) == (release, LossCount(), False)
    assert found.release_evidence.startswith("assumed: config/")


def test_no_promise_is_made_where_waiting_messages_are_lost(tmp_path):
    root = copy_store("timer-5.5.0", tmp_path)
    whole = judged(root)
    assert whole is not None
    assert whole.headline == "a start of 5.5 loses no message"
    shutil.rmtree(root / "timerlog")
    found = judged(root)
    assert found is not None
    assert found.headline.startswith("what a start of 5.5 loses is unknown: the timer's files are damaged")
    assert (found.losses, found.do_not_start) == (None, None)


def test_only_losses_of_the_topics_asked_for_count(tmp_path):
    root = damage_case("recent-flip-body@4.9.7-clean", tmp_path)
    whole, narrow = judged(root), judged(root, topics=("Orders",))
    assert whole is not None
    assert narrow is not None
    assert 0 < narrow.losses.by_start < whole.losses.by_start


def test_damage_of_another_topic_is_reported_and_its_messages_are_not_counted(tmp_path):
    """The damaged record is one of Payments; 4.9 cuts the log there and loses intact messages of Audit after it."""
    with mqtool.open(damage_case("recent-flip-body@4.9.7-clean", tmp_path)) as store:
        found = verify(store, Options(topics=("Audit",)))
    assert [(one.code, one.topic) for one in found.findings] == [("log-bad-body", "Payments")]
    assert found.state is State.CORRUPT
    assert (found.losses.queues, found.losses.groups, found.losses.bytes > 0) == ((), (), True)
    assert found.next_start is not None
    assert found.next_start.do_not_start is True


@pytest.mark.parametrize(
    ("broker", "release", "evidence"), [(None, "5.5", "assumed: config"), ("4.9.7", "4.9", "given")]
)
def test_what_the_next_start_does_is_unknown_while_a_broker_is_running(broker, release, evidence, tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    with held_lock(root / "lock"):
        found = judged(root, broker=broker)
    assert found is not None
    assert found.release == release
    assert found.release_evidence.startswith(evidence)
    assert (found.losses, found.do_not_start) == (None, None)
    assert found.headline.startswith(f"what a start of {release} loses is unknown: a broker is running")
    assert "a second broker would fail to get the lock" in found.verdict


def test_a_log_that_is_too_long_or_throttled_is_not_read_again(tmp_path, monkeypatch):
    root = damage_case("recent-flip-body@4.9.7-clean", tmp_path)
    unread = [judged(root, throttle=1 << 30)]
    for limit in ("DAMAGED_LOG", "MAX_RECORDS"):
        with monkeypatch.context() as changed:
            changed.setattr(module, limit, 1)
            unread.append(judged(root))
    for found in unread:
        assert found is not None
        assert (found.losses, found.do_not_start) == (None, None)
        assert found.headline.startswith("what a start of 4.9 loses is unknown: ")


def test_a_store_whose_start_is_not_followed_is_unknown(tmp_path):
    found = judged(copy_store("rocksdb-cq-5.5.0", tmp_path))
    assert found is not None
    assert found.do_not_start is None
    assert "RocksDB" in found.headline


def test_a_release_that_is_not_known_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match=r"RocketMQ 5\.1 starts is not known"):
        judged(copy_store("orders-5.5.0", tmp_path), broker="5.1")


def test_a_verdict_of_clean_has_no_reason_not_to_start(tmp_path):
    with mqtool.open(copy_store("orders-5.5.0", tmp_path)) as store:
        found = verify(store)
    assert found.state is State.CLEAN
    assert found.next_start is not None
    assert found.next_start.headline == "a start of 5.5 loses no message"


@pytest.mark.parametrize("broker", [None, "4.9", "5.5"])
@pytest.mark.parametrize("name", one_in(3, ["orders-4.9.7", "orders-5.5.0", "crash-5.5.0", "bcq-5.5.0", "timer-5.5.0"]))
def test_what_a_start_loses_is_the_same_without_reading_a_sound_log_again(name, broker, tmp_path, monkeypatch):
    root = copy_store(name, tmp_path)
    found = judged(root, broker=broker)
    monkeypatch.setattr(module, "_is_plain", lambda facts: False)
    assert found == judged(root, broker=broker)


def test_a_sound_log_is_read_once(tmp_path, monkeypatch):
    root = copy_store("orders-5.5.0", tmp_path)
    monkeypatch.setattr(
        sys.modules["mqtool.recovery.predict"], "prove", lambda *_: pytest.fail("the log is read again")
    )
    monkeypatch.setattr(module, "CLEAN_LOG", 1)
    found = judged(root, throttle=1 << 40)
    assert found is not None
    assert found.headline == "a start of 5.5 loses no message"


@pytest.mark.parametrize(
    ("properties", "release", "lost"), [({}, "5.5", 0), (WRONG_NUMBERS, "5.5", 3), (WRONG_NUMBERS, "4.9", 0)]
)
def test_records_that_only_the_brokers_own_test_refuses_are_seen(properties, release, lost, tmp_path):
    builder = StoreBuilder(segment_size=1 << 22)
    for number in range(5):  # several buckets, so that the scan would begin after the third record
        builder.put(bytes(600_000), **(properties if number == 2 else {}))
    found = judged(builder.write(tmp_path / "store"), broker=release)
    assert found is not None
    assert found.losses.by_start == lost


@pytest.mark.parametrize(
    ("after", "queues", "expected"),
    [
        ((0, 100), {"T/0": (0, 5)}, True),
        ((0, 120), {"T/0": (0, 6), "U/0": (0, 1)}, True),
        (None, {"T/0": (0, 5)}, False),
        ((0, 100), None, False),
        ((10, 100), {"T/0": (0, 5)}, False),
        ((0, 99), {"T/0": (0, 5)}, False),
        ((0, 100), {}, False),
        ((0, 100), {"T/0": (1, 5)}, False),
        ((0, 100), {"T/0": (0, 4)}, False),
    ],
)
def test_a_start_keeps_all_if_log_and_queues_reach_at_least_as_far(after, queues, expected):
    def queue(topic, low, high):
        return SimpleNamespace(topic=topic, queue_id=0, min_offset=low, max_offset=high)

    facts = SimpleNamespace(
        survey=SimpleNamespace(min_offset=0, end=100), queues=[queue("T", 0, 5), queue("Empty", None, 0)]
    )
    named = None if queues is None else {name: queue(name, *bounds) for name, bounds in queues.items()}
    assert module._keeps_all(SimpleNamespace(after_start=after, queues=named), facts) is expected
