"""Positions of groups and of delay levels against their queues: findings, and the commands that they name."""

import json
import re
import shlex

import pytest

import mqtool as library
from mqtool.verify import verify
from mqtool.verify.config import check_delay_offsets
from mqtool.verify.consume_queue import QueueFacts
from mqtool.verify.finding_collector import FindingCollector
from mqtool.verify.survey import survey
from tests.support.builder import StoreBuilder
from tests.support.stores import copy_store, tree_digest


@pytest.fixture
def tmp_path(in_memory):
    """Changes sync a great deal."""
    return in_memory


@pytest.fixture(params=["orders-4.9.7", "orders-5.5.0"])
def store(request, tmp_path):
    """A healthy store with delays that were delivered, and some that were not."""
    return copy_store(request.param, tmp_path)


def findings(store):
    """The findings about config/."""
    with library.open(store) as opened:
        return [one for one in verify(opened).findings if one.code.startswith("config-")]


def delays(store):
    """Positions of delay levels."""
    with library.open(store) as opened:
        return dict(opened.metadata.delay_offsets)


def rewrite(store, change):
    """Writes delayOffset.json with other positions."""
    table = delays(store)
    change(table)
    (store / "config" / "delayOffset.json").write_text(json.dumps({"offsetTable": table}))


def typed(step, tmp_path, name):
    """The words of a command that a finding names, with the plan in a directory of the test."""
    words = shlex.split(step)
    assert words[0] == "mqtool"
    return [str(tmp_path / name) if word == "plan.json" else word for word in words[1:]]


@pytest.mark.parametrize(
    ("change", "code", "evidence"),
    [
        (
            lambda table: table.update({1: table[1] + 7}),
            "config-delay-ahead",
            r"level 1: offset \d+, but the queue ends at",
        ),
        (
            lambda table: table.update({1: table[1] - 2}),
            "config-delay-behind",
            r"level 1: offset \d+, but messages up to \d+ have been delivered",
        ),
        (lambda table: table.update({1: -4}), "config-delay-missing", r"level 1: \d+ message\(s\) were due"),
        (lambda table: table.update({40: 3}), "config-delay-orphan", r"level 40: offset 3"),
    ],
)
def test_a_delay_level_against_its_queue_and_the_plan_for_it(mqtool, store, tmp_path, change, code, evidence):
    assert findings(store) == []
    right = delays(store)
    rewrite(store, change)
    (found,) = findings(store)
    assert found.code == code
    assert re.match(evidence, found.evidence)
    before = tree_digest(store)
    assert mqtool(*typed(found.next_step, tmp_path, "plan.json")).code == 0
    assert mqtool("apply", tmp_path / "plan.json", "--yes").code == 0
    assert findings(store) == []
    assert {level: offset for level, offset in delays(store).items() if level in right} == right
    assert mqtool("undo", store, "--yes").code == 0
    assert tree_digest(store) == before
    plan = mqtool("plan", "repair", store, "-o", tmp_path / "repair.json", "--format", "json")
    assert [step["path"] for step in plan.document["steps"]] == ["config/delayOffset.json"]


def test_messages_that_a_crash_made_the_broker_forget_are_no_finding(store):
    rewrite(store, lambda table: table.update({1: table[1] - 2}))
    (store / "abort").touch()
    assert findings(store) == []


def test_lost_positions_of_all_levels_are_found(store):
    rewrite(store, lambda table: table.clear())
    found = findings(store)
    assert found
    assert {one.code for one in found} == {"config-delay-missing"}


def test_one_level_without_a_position_may_have_had_no_delivery(store):
    rewrite(store, lambda table: table.pop(1))
    assert findings(store) == []


def test_a_level_without_deliveries_needs_no_position(store):
    """4.9.7 writes none for it."""
    with library.open(store) as opened:
        end = {queue.queue_id + 1: queue.max_offset for queue in opened.queues() if queue.topic.startswith("SCHEDULE")}
    assert end[18] > 0
    rewrite(store, lambda table: table.pop(18, None))
    assert findings(store) == []


def test_messages_of_a_level_that_expired_are_counted(store):
    rewrite(store, lambda table: table.update({1: 3}))
    facts = QueueFacts("SCHEDULE_TOPIC_XXXX", 0, False, units=15, min_offset=5, max_offset=20)
    collector = FindingCollector(store)
    with library.open(store) as opened:
        check_delay_offsets(survey(opened), opened, {("SCHEDULE_TOPIC_XXXX", 0): facts}, collector)
    found = [one for one in collector.findings() if one.code == "config-delay-expired"]
    assert [one.evidence for one in found] == ["level 1: offset 3, but the queue begins at 5: 2 message(s)"]


@pytest.mark.parametrize(
    ("offset", "code", "after"),
    [(999, "config-offset-ahead", "max_offset"), (-3, "config-offset-negative", "min_offset")],
)
def test_a_position_outside_of_its_queue_names_the_plan_that_moves_it(mqtool, store, tmp_path, offset, code, after):
    path = store / "config" / "lmqConsumerOffset.json"
    document = path.read_text()
    with library.open(store) as opened:
        was = opened.metadata.consumer_offsets["pull-group"]["Keyed"][0]
        expected = getattr(opened.queue("Keyed", 0), after)
    start = document.index('"Keyed@pull-group"')
    path.write_text(document[:start] + document[start:].replace(f"0:{was}", f"0:{offset}", 1))
    (found,) = findings(store)
    assert found.code == code
    assert "--group pull-group --topic Keyed --queue 0 --clamp" in found.next_step
    plan = mqtool(*typed(found.next_step, tmp_path, "plan.json"), "--format", "json")
    (move,) = plan.document["positions"]
    assert (move["before"], move["after"]) == (offset, expected)
    assert mqtool("apply", tmp_path / "plan.json", "--yes").code == 0
    assert findings(store) == []


def test_a_position_of_a_missing_queue_names_the_command_that_shows_it(mqtool, store):
    path = store / "config" / "lmqConsumerOffset.json"
    path.write_text(path.read_text().replace('"Keyed@pull-group"', '"Gone@pull-group"'))
    found = findings(store)
    assert {one.code for one in found} == {"config-offset-orphan"}
    words = shlex.split(found[0].next_step)[1:]
    rows = mqtool(*words, "--format", "jsonl").lines
    assert {(row["topic"], row["max_offset"]) for row in rows if row["kind"] == "committed"} == {("Gone", None)}


def test_no_delivery_is_proved_of_messages_without_a_unique_key(tmp_path):
    builder = StoreBuilder()
    for number in range(5):
        builder.put(b"body %d" % number, topic="SCHEDULE_TOPIC_XXXX", queue_id=1, keys=f"k{number}")
        builder.put(b"body %d" % number, topic="Orders", keys=f"k{number}")
    root = builder.write(tmp_path / "store")
    (root / "config").mkdir()
    (root / "config" / "delayOffset.json").write_text('{"offsetTable":{2:1}}')
    assert findings(root) == []
