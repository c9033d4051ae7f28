"""Moves of positions and what they do, on queues that are only numbers."""

import pytest

from mqtool.errors import UsageError
from mqtool.store.groups.offset_moves import (
    Move,
    QueueMessage,
    Scope,
    Target,
    TargetKind,
    effect_of,
    move_from_json,
    moves_of,
    words_of,
)

K = TargetKind


class Queues:
    """Queues by topic and queue id; a message's store time is ten times its offset."""

    def __init__(self, bounds):
        self._bounds = bounds

    def topics(self):
        return {
            topic: tuple(sorted(queue for name, queue in self._bounds if name == topic)) for topic, _ in self._bounds
        }

    def bounds(self, topic, queue_id):
        return self._bounds.get((topic, queue_id))

    def at_time(self, topic, queue_id, time):
        low, high = self._bounds[topic, queue_id]
        return min(max(-(-time // 10), low), high)

    def messages(self, topic, queue_id, start, end):
        low, high = self._bounds[topic, queue_id]
        for offset in range(max(low, start), min(high, end)):
            yield QueueMessage(offset, offset * 10, f"k{offset}", "")

    def message(self, topic, queue_id, offset):
        return next(self.messages(topic, queue_id, offset, offset + 1), None)


QUEUES = Queues({("T", 0): (10, 20), ("T", 1): (0, 5), ("U", 0): (0, 3)})
NOW = {"g": {"T": {0: 15}, "Gone": {0: 7}}, "G": {"U": {0: 1}}, "ahead": {"T": {0: 99}}, "old": {"T": {0: 3}}}


def after(scope, target, now=NOW, known=()):
    """New positions by queue."""
    found = moves_of(scope, target, now, known, QUEUES)
    return {(one.group, one.topic, one.queue_id): one.after for one in found}


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (Target(K.EARLIEST), {0: 10, 1: 0}),
        (Target(K.LATEST), {0: 20, 1: 5}),
        (Target(K.TIME, 121), {0: 13, 1: 5}),
        (Target(K.SHIFT, -2), {0: 13}),
        (Target(K.SHIFT, -100), {0: 10}),
        (Target(K.SHIFT, 100), {0: 20}),
        (Target(K.DELETE), {0: None}),
    ],
)
def test_each_target_in_a_named_topic(target, expected):
    found = after(Scope(("g",), ("T",)), target)
    assert {queue: offset for (_, _, queue), offset in found.items()} == expected


def test_without_a_topic_only_topics_with_positions_move_in_all_their_queues():
    assert after(Scope(("G",)), Target(K.LATEST)) == {("G", "U", 0): 3}


def test_clamp_moves_only_what_lies_outside():
    found = after(Scope(("*",), ("T",)), Target(K.CLAMP))
    assert found == {("ahead", "T", 0): 20, ("old", "T", 0): 10}


def test_clamp_moves_a_position_of_a_missing_queue_to_0():
    assert after(Scope(("g",), ("Gone",)), Target(K.CLAMP)) == {("g", "Gone", 0): 0}


def test_an_offset_outside_of_a_queue_is_refused():
    with pytest.raises(UsageError, match=r"T/0: expected a queue offset of 10 to 20, found 21"):
        after(Scope(("g",), ("T",), 0), Target(K.OFFSET, 21))
    assert after(Scope(("g",), ("T",), 0), Target(K.OFFSET, 20)) == {("g", "T", 0): 20}


def test_a_group_without_positions_can_be_given_some_but_not_be_shifted():
    assert after(Scope(("new",), ("U",)), Target(K.LATEST)) == {("new", "U", 0): 3}
    with pytest.raises(UsageError, match="no group new"):
        after(Scope(("new",), ("U",)), Target(K.SHIFT, 1))


def test_a_name_that_differs_by_case_is_named():
    with pytest.raises(UsageError, match="ahead differs only by case"):
        after(Scope(("AHEAD",)), Target(K.CLAMP))


def test_a_group_is_copied_without_its_retry_topics():
    retries = ("%RETRY%a", "%RETRY%a_T", "%RETRY%a+T")
    now = {"a": {"T": {0: 12}, **{name: {0: 4} for name in retries}}, "b": {"T": {0: 15, 1: 2}}}
    target = Target(K.GROUP, group="a", positions=now)
    assert after(Scope(("b",)), target, now) == {("b", "T", 0): 12}


@pytest.mark.parametrize(
    ("before", "new", "again", "never", "certain", "ahead"),
    [
        (15, 12, (12, 15), None, True, 8),
        (15, 18, None, (15, 18), True, 2),
        (99, 12, (12, 20), None, True, 8),  # the broker sets a position past the end to the end
        (3, 12, None, (10, 12), True, 8),  # messages before the minimum are deleted
        (3, 10, None, None, True, 10),
        (None, 12, None, (10, 12), False, 8),
        (15, None, (10, 15), (15, 20), False, 0),
    ],
)
def test_what_a_move_does(before, new, again, never, certain, ahead):
    found = effect_of(Move("g", "T", 0, before, new), QUEUES)
    spans = [one and (one.start, one.end) for one in (found.again, found.never)]
    assert (spans, found.certain, found.ahead) == ([again, never], certain, ahead)


def test_the_words_have_counts_times_and_keys():
    found = words_of(effect_of(Move("g", "T", 0, 15, 12), QUEUES), str)
    assert found == ("group g, T/0: position 15 → 12; 3 message(s) delivered again (12 120 key k12 to 14 140 key k14)")
    assert "; 10 message(s) will be delivered; " in words_of(effect_of(Move("g", "T", 0, None, 10), QUEUES), str)
    assert "the queue is missing" in words_of(effect_of(Move("g", "Gone", 0, 7, 0), QUEUES), str)


MOVE = {"group": "g", "topic": "T", "queue_id": 0, "before": None, "after": 3}


def test_a_move_is_read_from_its_attributes():
    assert move_from_json(MOVE) == Move("g", "T", 0, None, 3)


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        "moves",
        7,
        {},
        MOVE | {"more": 1},
        MOVE | {"group": None},
        MOVE | {"queue_id": True},
        MOVE | {"after": -1},
    ],
    ids=str,
)
def test_anything_else_is_no_move(value):
    with pytest.raises(UsageError, match="moves: found"):
        move_from_json(value)
