"""The real RocketMQ opens, serves and extends what the engine wrote, and the other way round; each keeps the other out."""

import os
import random
import signal
import zlib
from collections import Counter

import pytest

import mqtool
from mqtool.engine import Compat, FlushMode, GetStatus, open_store
from mqtool.engine.start.detect import options_for
from mqtool.engine.write.messages import BatchMessage, delay_message
from mqtool.errors import StoreLockedError
from mqtool.formats import hosts, properties
from mqtool.formats.commit_log import SysFlag
from mqtool.formats.release import MEASURED
from mqtool.ingest import bulk_ingest
from mqtool.store.queues.get_message import TagFilter
from tests.support.engine import findings_of, tree
from tests.support.tiers import night

pytestmark = [pytest.mark.interop, pytest.mark.slow]

SIZES = {"mappedFileSizeCommitLog": 16384, "mappedFileSizeConsumeQueue": 1000, "maxHashSlotNum": 50, "maxIndexNum": 200}
LIGHT = {"enableLmq": True, "enableMultiDispatch": True}
RELEASES = {version: Compat(str(release)) for release, version in MEASURED.items()}


def options_on(root, version, **more):
    return options_for(root, SIZES | LIGHT, RELEASES[version], **more)


def encoded(version, **named):
    return properties.encode(named.items(), trailing_separator=version != "4.9.7")


def fill(store, version, rounds):
    """Messages of every kind that a bare store takes, three clock ticks apart now and then."""
    chance = random.Random(rounds)
    v6 = hosts.build(hosts.parse_text("[2001:db8::7]:1234"))
    for number in range(rounds):
        named = {
            "UNIQ_KEY": f"U{number:06d}",
            "KEYS": f"k{number} shared",
            "TAGS": f"Tag{number % 3}",
            "näme": "wért €",
        }
        body = chance.randbytes(chance.choice([0, 10, 300, 2000]))
        topic, queue_id, flag = f"T{number % 2}", number % 3, 0
        kind = number % 8
        if kind == 1:
            flag, body = int(SysFlag.COMPRESSED | (0 if version == "4.9.7" else 0x300)), zlib.compress(body)
        elif kind == 2:
            flag = chance.choice([int(SysFlag.TRANSACTION_PREPARED), int(SysFlag.TRANSACTION_ROLLBACK)])
        elif kind == 3:
            named |= {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b"}
        elif kind == 4:
            named |= {"DELAY": str(1 + number % 18)}
        elif kind == 5:
            batch = [(body[at : at + 90], encoded(version, KEYS=f"b{number}-{at}"), at) for at in range(0, 360, 90)]
            assert store.put_batch(topic, queue_id, [BatchMessage(*one) for one in batch]).ok
            continue
        host = v6 if kind == 6 else None
        assert store.put(topic, queue_id, body, encoded(version, **named), number, flag, born_host=host).ok
        if number % 20 == 0:
            store.dispatch()


def written(root, version, rounds=160):
    options = options_on(root, version)
    with open_store(root, options, background=False, hooks=[delay_message(options)]) as store:
        fill(store, version, rounds)
    return options


def questions(root, options):
    """Gets, queries and times around every bound of every queue."""
    gets, queries, times = [], [], []
    with mqtool.open(root, SIZES) as reader:
        found = list(reader.messages())
        stored = sorted({message.store_timestamp for message in found})
        for queue in reader.queues():
            ends = {
                -1,
                0,
                1,
                queue.min_offset,
                queue.max_offset // 2,
                queue.max_offset - 1,
                queue.max_offset,
                queue.max_offset + 3,
            }
            place = {"topic": queue.topic, "queueId": queue.queue_id}
            gets += [
                place | {"offset": at, "max": most, "tags": tags}
                for at in sorted(ends)
                for most in (1, 5, 32)
                for tags in (None, "Tag1", "Tag0 || Tag2")
            ]
            times += [place | {"timestamp": at} for at in (0, *stored[:: max(1, len(stored) // 9)], stored[-1] + 1)]
        for message in found[::3]:
            queries += [{"topic": message.topic, "key": key} for key in (*message.keys, message.unique_key) if key]
    with open_store(root, options, background=False) as store:
        return (
            found,
            (gets, queries, times),
            [
                [own_get(store, row) for row in gets],
                [own_query(store, row) for row in queries],
                [store.offset_in_queue_by_time(row["topic"], row["queueId"], row["timestamp"]) for row in times],
            ],
        )


def own_get(store, row):
    wanted = None if row["tags"] is None else TagFilter(row["tags"])
    got = store.get_message(row["topic"], row["queueId"], row["offset"], row["max"], wanted)
    places = [int.from_bytes(record[28:36], "big") for record in got.records]
    return got.status.name, got.next_begin_offset, got.min_offset, got.max_offset, got.size, places


def own_query(store, row):
    got = store.query_message(row["topic"], row["key"])
    return got.physical_offsets, got.index_last_update_physical_offset, got.index_last_update_timestamp


@pytest.mark.parametrize(
    ("version", "opened_by"),
    [
        *(night(release, release) if release in {"5.3.3", "5.4.0"} else (release, release) for release in RELEASES),
        night("4.9.7", "5.5.0"),
    ],
)
def test_the_real_store_answers_about_our_store_as_we_do(version, opened_by, rocketmq, tmp_path):
    root = tmp_path / "store"
    options = written(root, version)
    assert findings_of(root, options) == []
    found, (gets, queries, times), own = questions(root, options_on(root, opened_by))
    output = rocketmq(opened_by).answers(
        root, SIZES | LIGHT, work=tmp_path / "work", gets=gets, queries=queries, times=times
    )
    assert output["opened"][0]["loaded"]
    assert [
        (row["physicalOffset"], row["topic"], row["queueOffset"], row["properties"], row["sysFlag"], row["offsetMsgId"])
        for row in output["messages"]
    ] == [
        (m.physical_offset, m.topic, m.queue_offset, dict(m.properties), m.sys_flag, m.offset_message_id) for m in found
    ]
    fields = ("status", "nextBeginOffset", "minOffset", "maxOffset", "bytes", "physicalOffsets")
    assert [tuple(row[name] for name in fields) for row in output["gets"]] == own[0]
    fields = ("physicalOffsets", "indexLastUpdatePhyOffset", "indexLastUpdateTimestamp")
    assert [tuple(row[name] for name in fields) for row in output["queries"]] == own[1]
    assert [row["offset"] for row in output["times"]] == own[2]
    for row in output["queues"]:
        assert len(row["served"]) == row["maxOffset"] - row["minOffset"], row


def bodies_of(root):
    with mqtool.open(root, SIZES) as store:
        return Counter(m.body.decode() for m in store.messages(topics=["Round"]))


def append_some(root, version, name, *, die):
    """Ten acknowledged messages of ours, from a process that is killed, or closes the store; returns their bodies."""
    sent = [f"ours-{name}-{number}" for number in range(10)]
    child = os.fork()
    if child == 0:
        code = 1
        try:
            options = options_for(root, SIZES, RELEASES[version], flush_mode=FlushMode.SYNC_FLUSH)
            store = open_store(root, options)
            for number, body in enumerate(sent):
                assert store.put("Round", number % 2, body.encode(), encoded(version, KEYS=body)).ok
            bulk_ingest.add_topics(store, {"Round": 2})
            if die:
                os.kill(os.getpid(), signal.SIGKILL)
            store.close()
            code = 0
        finally:
            os._exit(code)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == (-signal.SIGKILL if die else 0)
    return sent


@pytest.mark.parametrize(
    "versions",
    [("4.9.7", "5.5.0"), night(("4.9.7", "4.9.7", "5.5.0")), night(("5.5.0", "5.5.0", "5.5.0"))],
    ids="-".join,
)
def test_a_store_goes_to_and_fro_between_us_and_a_broker(versions, rocketmq, tmp_path):
    root = tmp_path / "store"
    expected = Counter()
    for number, version in enumerate(versions):
        expected.update(append_some(root, version, number, die=number == 1))
        broker = rocketmq(version).start_broker(tmp_path, **SIZES)
        served = broker.admin("consumeMessage", "-t", "Round")
        for body in expected:
            assert f"BODY: {body}\n" in served, (body, served[-3000:])
        sent = f"theirs-{number}"
        assert "SEND_OK" in broker.admin("sendMessage", "-t", "Round", "-p", sent, "-k", sent)
        expected[sent] += 1
        broker.stop(kill=number == 0)
        assert (root / "abort").exists() == (number == 0)
    expected.update(append_some(root, versions[-1], "last", die=False))
    assert bodies_of(root) == expected
    options = options_for(root, SIZES, RELEASES[versions[-1]])
    assert findings_of(root, options) == []
    with open_store(root, options, background=False) as store:
        served = Counter()
        for queue_id in range(2):
            low, high = store.queue_bounds("Round", queue_id)
            got = store.get_message("Round", queue_id, low, 32)
            assert (got.status, got.next_begin_offset) == (GetStatus.FOUND, high)
            served.update(range(low, high))
        assert served.total() == expected.total()
        for body in expected:
            assert len(store.query_message("Round", body).records) >= 1, body


@pytest.mark.parametrize("version", ["4.9.7", night("5.5.0")])
def test_a_running_broker_keeps_us_out_and_nothing_changes(version, rocketmq, tmp_path):
    broker = rocketmq(version).start_broker(tmp_path, **SIZES)
    before = {name: data for name, data in tree(broker.store).items() if name != "checkpoint"}
    with pytest.raises(StoreLockedError, match="has the store open"):
        open_store(broker.store, options_for(broker.store, SIZES, RELEASES[version]), background=False)
    after = tree(broker.store)
    assert {name: after.get(name) for name in before} == before
    broker.stop()


@pytest.mark.parametrize("version", [night("4.9.7"), "5.5.0"])
def test_we_keep_a_broker_out(version, rocketmq, tmp_path):
    root = tmp_path / "store"
    options = options_for(root, SIZES, RELEASES[version])
    with open_store(root, options, background=False) as store:
        assert store.put("T", 0, b"before", encoded(version, KEYS="a")).ok
        store.dispatch()
        bulk_ingest.add_topics(store, {"T": 1})
        with pytest.raises(AssertionError, match=r"(?s)did not start: exit status 255.*Lock failed"):
            rocketmq(version).start_broker(tmp_path, **SIZES)
        assert store.put("T", 0, b"after", encoded(version, KEYS="b")).ok
        assert store.dispatch() == 1
    with open_store(root, options, background=False) as store:
        assert store.queue_bounds("T", 0) == (0, 2)
        assert [len(store.query_message("T", key).records) for key in "ab"] == [1, 1]
    assert findings_of(root, options) == []
