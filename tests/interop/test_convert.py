"""The real RocketMQ opens what was a DLedger log, without DLedger: every message, its queue, its body, its keys."""

import base64

import pytest

import mqtool
from mqtool.convert.dledger import convert
from tests.support.stores import STORES, answers, shape_keys, store_fixture
from tests.support.tiers import night

pytestmark = [pytest.mark.interop, pytest.mark.slow]

NAMES = [store.name for store in STORES if store.name.startswith("dledger") and not store.name.endswith(("n1", "n2"))]
SIBLINGS = ("dledger-5.5.0", "dledger-mixed-4.9.7")


def keys_of(fixture):
    """The broker's keys without those of DLedger."""
    return {key: value for key, value in shape_keys(fixture.config).items() if key != "enableDLegerCommitLog"}


def plain_store(name, tmp_path):
    """A real ledger as an ordinary store below a directory."""
    with mqtool.open(store_fixture(name).directory, store_fixture(name).config) as store:
        convert(store, tmp_path / "store")
    return tmp_path / "store"


@pytest.mark.parametrize("name", [night(name) if name in SIBLINGS else name for name in NAMES])
def test_the_real_store_serves_every_message_that_the_ledger_served(name, rocketmq, tmp_path):
    fixture = store_fixture(name)
    served = [line for line in answers(name, "messages") if line["kind"] == "message"]
    keys = sorted({(line["topic"], word) for line in served for word in line["properties"].get("KEYS", "").split()})
    found = rocketmq(fixture.version).answers(
        plain_store(name, tmp_path),
        keys_of(fixture),
        work=tmp_path / "work",
        gets=[
            {"topic": line["topic"], "queueId": line["queueId"], "offset": line["queueOffset"], "max": 1, "tags": None}
            for line in served
        ],
        queries=[{"topic": topic, "key": word} for topic, word in keys],
    )
    assert found["opened"][0]["loaded"] is True
    places = [(row["topic"], row["queueId"], row["queueOffset"], row["properties"]) for row in found["messages"]]
    in_log_order = sorted(served, key=lambda line: line["phyOffset"])
    assert places == [(s["topic"], s["queueId"], s["queueOffset"], s["properties"]) for s in in_log_order]
    bodies = [base64.b64decode(row["decodedBody"] or row["body"] or "") for row in found["messages"]]
    assert bodies == [base64.b64decode(line["body"]) for line in in_log_order]
    by_offset = {row["physicalOffset"]: row for row in found["messages"]}
    for line, got in zip(served, found["gets"], strict=True):
        assert got["status"] == "FOUND"
        row = by_offset[got["physicalOffsets"][0]]
        assert (row["topic"], row["queueId"], row["queueOffset"]) == (
            line["topic"],
            line["queueId"],
            line["queueOffset"],
        )
    for (topic, word), query in zip(keys, found["queries"], strict=True):
        wanted = sum(word in s["properties"].get("KEYS", "").split() for s in served if s["topic"] == topic)
        assert len(query["physicalOffsets"]) == min(wanted, 32), (topic, word)


@pytest.mark.parametrize("name", ["dledger-4.9.7", night("dledger-mixed-5.5.0")])
def test_a_real_broker_starts_on_it_and_answers(name, rocketmq, tmp_path):
    fixture = store_fixture(name)
    plain_store(name, tmp_path)
    line = next(line for line in reversed(answers(name, "messages")) if line["kind"] == "message")
    broker = rocketmq(fixture.version).start_broker(tmp_path, **keys_of(fixture))
    printed = broker.admin(
        "queryMsgByOffset",
        "-b",
        "broker-a",
        "-t",
        line["topic"],
        "-i",
        str(line["queueId"]),
        "-o",
        str(line["queueOffset"]),
    )
    assert line["properties"]["UNIQ_KEY"] in printed, printed
    assert line["topic"] in broker.admin("topicList")
    broker.stop()
    assert not (broker.store / "abort").exists()
