"""The real RocketMQ opens what was salvaged, goes across the filled holes, and serves every message that is left."""

import shutil

import pytest

import mqtool
from mqtool.recovery import predict
from mqtool.repair.salvage import SalvageOptions, salvage
from tests.golden.test_compaction import STARTS
from tests.support.damage import base_config, base_messages, damage_case, foreign_segment
from tests.support.stores import copy_store, copy_tree, fixture, shape_keys, store_fixture
from tests.support.tiers import night

pytestmark = [pytest.mark.interop, pytest.mark.slow]

KINDS = ("tail-page-hole", "segment-missing-middle", "old-flip-magic", "old-zero-segment", "third-last-flip-magic")
VERSIONS = ("4.9.7", "5.5.0")


def mostly_at_night(*always):
    """Each kind of damage with each release; all but some pairs for the night."""
    pairs = [(kind, version) for kind in KINDS for version in VERSIONS]
    return [pair if pair in always else night(*pair) for pair in pairs]


def served(found):
    """Physical offsets that a consumer gets, by queue."""
    return {(row["topic"], row["queueId"]): row["served"] for row in found["queues"] if row["served"]}


def salvaged_offsets(store):
    """The same of the new store, by the units that mqtool wrote; a hole's unit is the one behind it."""
    with mqtool.open(store) as opened:
        return {
            (queue.topic, queue.queue_id): sorted(set(queue.units()["physical_offset"][queue.min_offset :].tolist()))
            for queue in opened.disk_queues()
        }


@pytest.mark.parametrize(
    ("kind", "version"), mostly_at_night(("tail-page-hole", "4.9.7"), ("segment-missing-middle", "5.5.0"))
)
def test_the_real_store_serves_everything_that_was_salvaged(kind, version, rocketmq, tmp_path):
    base = f"{version}-crash"
    found = salvage(damage_case(f"{kind}@{base}", tmp_path), tmp_path / "new")
    real = rocketmq(version).answers(tmp_path / "new", base_config(base), work=tmp_path / "work")
    assert real["opened"][0]["loaded"] is True
    by_queue = {key: sorted(set(offsets)) for key, offsets in served(real).items()}
    assert by_queue == salvaged_offsets(tmp_path / "new")
    known = {row["phy"] for row in base_messages(base) if row["offset"] >= 0}
    assert {offset for offsets in by_queue.values() for offset in offsets} <= known
    assert sum(map(len, by_queue.values())) + found.lost == len(known)


@pytest.mark.parametrize("version", [night("4.9.7"), "5.5.0"])
@pytest.mark.parametrize("kind", ["old-zero-segment", night("tail-page-hole")])
def test_a_consumer_of_a_tag_gets_each_message_behind_a_hole_once(kind, version, rocketmq, tmp_path):
    base = f"{version}-crash"
    salvage(damage_case(f"{kind}@{base}", tmp_path), tmp_path / "new")
    behind, asked = [], []
    with mqtool.open(tmp_path / "new") as store:
        for message in store.messages():
            queue = store.queue(message.topic, message.queue_id)
            holes = 0 if queue is None else int((queue.units()["physical_offset"] == message.physical_offset).sum()) - 1
            if holes > 0 and message.tags:
                behind.append((message, message.queue_offset - holes))
                asked += [
                    {
                        "topic": message.topic,
                        "queueId": message.queue_id,
                        "offset": offset,
                        "max": 1,
                        "tags": message.tags,
                    }
                    for offset in range(message.queue_offset - holes, message.queue_offset + 1)
                ]
    assert behind
    real = rocketmq(version).answers(tmp_path / "new", base_config(base), work=tmp_path / "work", gets=asked)
    gets = {(row["topic"], row["queueId"], row["offset"]): row for row in real["gets"]}
    for message, first in behind:
        got, offset = [], first
        while offset <= message.queue_offset:  # a pull ends with its queue file, so there may be several
            row = gets[message.topic, message.queue_id, offset]
            got, offset = got + row["physicalOffsets"], row["nextBeginOffset"]
        assert (got, offset) == ([message.physical_offset], message.queue_offset + 1)


@pytest.mark.parametrize("version", ["4.9.7", night("5.5.0")])
@pytest.mark.parametrize("kind", [night("old-zero-segment"), "tail-page-hole"])
def test_a_recovery_from_the_first_segment_goes_across_the_holes(kind, version, rocketmq, tmp_path):
    base, new = f"{version}-crash", tmp_path / "new"
    salvage(damage_case(f"{kind}@{base}", tmp_path), new)
    with mqtool.open(new) as store:
        end = store.commit_log.max_offset
    expected = salvaged_offsets(new)
    (new / "abort").touch()
    (new / "checkpoint").write_bytes(bytes(4096))
    shutil.rmtree(new / "consumequeue")  # all queues are made anew by the broker's own dispatch
    real = rocketmq(version).answers(new, base_config(base), work=tmp_path / "work")
    assert real["opened"][0]["maxPhyOffset"] == end
    offsets = {offset for row in real["queues"] for offset in row["served"]}
    assert offsets == {offset for queue in expected.values() for offset in queue}


@pytest.mark.parametrize("version", [night("4.9.7"), "5.5.0"])
def test_the_real_store_serves_a_compacted_salvage(version, rocketmq, tmp_path):
    base, new = f"{version}-crash", tmp_path / "new"
    options = SalvageOptions(compact=True, map_file=tmp_path / "map.csv")
    found = salvage(damage_case(f"old-zero-segment@{base}", tmp_path), new, options)
    real = rocketmq(version).answers(new, base_config(base), work=tmp_path / "work")
    assert len(real["messages"]) == found.records
    assert {key: sorted(set(offsets)) for key, offsets in served(real).items()} == salvaged_offsets(new)


def test_what_a_master_lost_is_served_from_its_slaves_records(rocketmq, tmp_path):
    master = copy_store("ha-5.5.0/store-master", tmp_path)
    slave = copy_tree(fixture("ha-5.5.0/store-slave"), tmp_path / "slave")
    with mqtool.open(master) as store:
        whole = [message.physical_offset for message in store.messages()]
        path = store.commit_log.segments[0].path
    with path.open("r+b") as file:
        file.write(bytes(4096))
    found = salvage(master, tmp_path / "new", SalvageOptions(copies=(slave,)))
    assert found.is_complete
    config = store_fixture("ha-5.5.0/store-master").config
    real = rocketmq("5.5.0").answers(tmp_path / "new", config, work=tmp_path / "work")
    assert [row["physicalOffset"] for row in real["messages"]] == whole


def test_the_real_store_serves_everything_but_the_topic_that_was_left_out(rocketmq, tmp_path):
    root, new = copy_store("lives-5.5.0", tmp_path), tmp_path / "new"
    options = SalvageOptions(compact=True, without_topics=("LivesPlain",), map_file=tmp_path / "map.csv")
    salvage(root, new, options)
    config = store_fixture("lives-5.5.0").config
    before = rocketmq("5.5.0").answers(root, config, work=tmp_path / "before")["messages"]
    real = rocketmq("5.5.0").answers(new, config, work=tmp_path / "after")["messages"]
    names = ("topic", "queueId", "queueOffset", "body", "properties")
    expected = [[row[name] for name in names] for row in before if row["topic"] != "LivesPlain"]
    assert [[row[name] for name in names] for row in real] == expected
    assert len(real) == len(before) - 25


@pytest.mark.parametrize("damage", list(STARTS))
def test_the_broker_loads_compacted_topics_as_the_forecast_says(damage, rocketmq, tmp_path):
    root = copy_store("compaction-5.5.0", tmp_path)
    change, refusal = STARTS[damage]
    change(root)
    asked = [{"topic": "Compact", "queueId": 0, "offset": 50, "max": 1}]
    config = store_fixture("compaction-5.5.0").config
    real = rocketmq("5.5.0").answers(root, config, work=tmp_path / "work", gets=asked)
    assert real["opened"][0]["loaded"] is not bool(refusal)
    assert [row["status"] for row in real["gets"]] == ([] if refusal else ["NO_MATCHED_LOGIC_QUEUE"])


@pytest.mark.parametrize("damage", [night("none"), "record", night("missing")])
def test_a_broker_serves_the_compacted_topic_of_the_new_store(damage, rocketmq, tmp_path):
    """Without `compaction/` it answers NO_MATCHED_LOGIC_QUEUE, and does not fill it from its log."""
    root, new = copy_store("compaction-5.5.0", tmp_path), tmp_path / "new"
    config = store_fixture("compaction-5.5.0").config
    asked = [{"topic": "Compact", "queueId": 0, "offset": offset, "max": 1} for offset in range(103)]
    before = rocketmq("5.5.0").answers(root, config, work=tmp_path / "before", gets=asked)["gets"]
    if damage == "record":
        with (root / "compaction/compactionLog/Compact/0/00000000000000000000").open("r+b") as file:
            file.seek(200)
            file.write(b"\0\1")
    elif damage == "missing":
        shutil.rmtree(root / "compaction")
        unserved = rocketmq("5.5.0").answers(root, config, work=tmp_path / "unserved", gets=asked)["gets"]
        assert {row["status"] for row in unserved} == {"NO_MATCHED_LOGIC_QUEUE"}
        assert predict(root).lost == {"Compact/0": ((0, 102),)}
    salvage(root, new, SalvageOptions(config=shape_keys(config)) if damage == "missing" else None)
    real = rocketmq("5.5.0").answers(new, config, work=tmp_path / "after", gets=asked)["gets"]
    names = ("status", "nextBeginOffset", "minOffset", "maxOffset", "bytes")
    answered = [{name: row[name] for name in names} for row in real]
    if damage == "missing":  # every message of the log, since nothing shows which were compacted away
        assert [(row["status"], row["nextBeginOffset"]) for row in real] == [("FOUND", at + 1) for at in range(103)]
    else:
        assert answered == [{name: row[name] for name in names} for row in before]


@pytest.mark.parametrize("base", [night("4.9.7-clean"), "4.9.7-crash", "5.5.0-clean", night("5.5.0-crash")])
@pytest.mark.parametrize("number", [night(2), 8])
def test_a_segment_of_another_broker_costs_no_message_that_the_broker_alone_serves(base, number, rocketmq, tmp_path):
    root = damage_case(foreign_segment(base, number), tmp_path)
    salvage(root, tmp_path / "new")
    other = base.replace("clean", "crash") if "clean" in base else base.replace("crash", "clean")
    own = {row["phy"]: row for row in base_messages(base) if row["phy"] // 16384 != number}
    intact = own | {row["phy"]: row for row in base_messages(other) if row["phy"] // 16384 == number}

    def intact_and_served(store, work):
        real = rocketmq(base[:5]).answers(store, base_config(base), work=tmp_path / work)
        return {
            physical
            for queue, offsets in served(real).items()
            for physical in offsets
            if physical in intact and (intact[physical]["topic"], intact[physical]["queue"]) == queue
        }

    alone, after = intact_and_served(root, "alone"), intact_and_served(tmp_path / "new", "after")
    assert alone <= after
    assert {row["phy"] for row in own.values() if row["offset"] >= 0} <= after
