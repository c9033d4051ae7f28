"""What the real broker did with 89 damaged stores and nine healthy ones, foretold without starting it."""

import pytest

from mqtool.formats import equeue
from mqtool.siblings.equeue import explain as serve
from mqtool.siblings.equeue.explain import MAX_UNSERVED, explain
from mqtool.siblings.equeue.listing import EQueueSettings, settings_of
from mqtool.siblings.equeue.start import start
from tests.support.chunks import EQUEUE_CASES, EQUEUE_STORES, answer, case, damaged, equeue_store, opened, settings
from tests.support.stores import copy_tree, tree_digest

REFUSED_IN_ITS_OWN_WORDS = ("ChunkBadDataException", "ArgumentOutOfRangeException", "ArgumentException")


WITHOUT_A_CHUNK = (
    "tail-deleted",
    "tail-header-number",
    "tail-deleted-hole-unicode",
    "tail-deleted-hole-killed",
    "done-deleted-middle",
)
"""Cases in which a message chunk is missing, or states another number, and its messages with it."""
LOSING = (
    "tail-middle-suffix",
    "tail-middle-zeroed",
    "tail-topic-length",
    "tail-bad-ticks",
    "tail-body-length-negative",
    "tail-cut-after-data",
    "tail-cut-in-record",
    "exact-last-cut",
)
"""Cases in which the start leaves out messages that are whole in the last chunk."""


def settings_for(name, config=()):
    """EQueueSettings of a store's last run, with what a case changes."""
    options = {**settings(name), **dict(config or {})}
    defaults = settings_of(equeue_store(name))  # equeue-2.2.0 does not name its message size
    size = options.get("message-size", defaults.message_chunk_size)
    return EQueueSettings(size, int(options["queue-count"]), options.get("max-record", defaults.max_record_size))


def shape_of(name):
    return equeue.OLD if name == "equeue-2.2.0" else equeue.CURRENT


def check(root, expected, chosen, shape):
    """Compares everything that the answer says about a start that succeeded."""
    found = start(root, chosen, shape)
    try:
        assert found.refusal is None
        chunks = found.messages.values()
        assert sorted((c.number, c.capacity, c.completed, c.data_end) for c in chunks) == sorted(
            (line["chunkNumber"], line["capacity"], line["completed"], line["dataPosition"])
            for line in expected["messageChunks"]
        )
        assert found.messages[max(found.messages)].global_end == expected["currentMessagePosition"]
        if "walk" in expected:  # not for 2.2.0
            walked = sorted((w.number, w.records, w.end, w.error) for w in (serve.walk(c, chosen) for c in chunks))
            assert walked == sorted(
                (w["chunkNumber"], w["records"], w["end"], w.get("error", {}).get("message")) for w in expected["walk"]
            )
        assert len(found.queues) == len(expected["queues"])
        for line in expected["queues"]:
            check_queue(found, line, chosen, shape)
    finally:
        found.close()


def check_queue(found, line, chosen, shape):
    queue = found.queues[line["topic"], line["queueId"]]
    assert queue.next_offset == line["nextOffset"]
    line = {"minOffset": 0, "producerVisible": True, "consumerVisible": True, "bad": [], **line}  # as 2.2.0 leaves out
    assert (queue.min_offset, queue.producer_visible, queue.consumer_visible) == (
        line["minOffset"],
        line["producerVisible"],
        line["consumerVisible"],
    )
    unserved = list(serve.unserved_entries(found, queue, chosen, shape))
    assert [(one.queue_offset, one.step, one.exception, one.message) for one in unserved] == [
        (bad["queueOffset"], bad["error"]["step"], bad["error"]["exception"], bad["error"]["message"])
        for bad in line["bad"]
    ]
    assert [one.message_position for one in unserved] == [bad.get("messagePosition") for bad in line["bad"]]
    for chunk in line.get("chunks", ()):
        loaded = queue.chunks[chunk["chunkNumber"]]
        assert (loaded.completed, loaded.data_end) == (chunk["completed"], chunk["dataPosition"])


@pytest.mark.parametrize("name", EQUEUE_STORES)
def test_a_healthy_store_is_opened_as_the_broker_opens_it(name):
    check(equeue_store(name), opened(name), settings_for(name), shape_of(name))


@pytest.mark.parametrize("case_id", EQUEUE_CASES)
def test_a_damaged_store_is_opened_or_refused_as_by_the_broker(case_id, tmp_path):
    root, expected = damaged(case_id, tmp_path / "store"), answer(case_id)
    base = case(case_id)["base"]
    chosen, before = settings_for(base, case(case_id).get("config")), tree_digest(root)
    if expected["open"] == "ok":
        check(root, expected, chosen, shape_of(base))
    else:
        refusal = start(root, chosen, shape_of(base)).refusal
        assert refusal is not None
        assert refusal.exception == expected["open"]["exception"]
        if refusal.exception in REFUSED_IN_ITS_OWN_WORDS:
            assert refusal.message == expected["open"]["message"]
        assert refusal.remedy
    assert tree_digest(root) == before


def test_there_are_cases_of_every_outcome():
    opens = [answer(case_id)["open"] for case_id in EQUEUE_CASES]
    assert len(opens) == 89
    assert sum(one != "ok" for one in opens) == 18


@pytest.mark.parametrize("case_id", ["queue-all-deleted", "messages-all-deleted"])
def test_a_start_that_deletes_everything_is_predicted(case_id, tmp_path):
    found = start(damaged(case_id, tmp_path / "store"), settings_for("equeue-small"), equeue.CURRENT)
    assert found.clears_root
    assert "DELETES everything" in found.notes[0]


@pytest.mark.parametrize(("case_id", "groups"), [("offsets-broken", 2), ("offsets-empty", 0), ("offsets-missing", 0)])
def test_consumed_offsets_come_from_the_backup_only_if_the_first_file_is_broken(case_id, groups, tmp_path):
    found = start(damaged(case_id, tmp_path / "store"), settings_for("equeue-broker"), equeue.CURRENT)
    assert len(found.offsets) == groups
    assert found.notes
    found.close()


@pytest.mark.parametrize("case_id", EQUEUE_CASES)
def test_an_explanation_says_what_the_broker_did(case_id, tmp_path):
    root, expected, base = damaged(case_id, tmp_path / "store"), answer(case_id), case(case_id)["base"]
    found = explain(root, settings_for(base, case(case_id).get("config")))
    if expected["open"] != "ok":
        assert found.verdict.startswith(f"does not start ({expected['open']['exception']}")
        return
    if not expected["append"]:
        assert found.clears_root
        assert "DELETES everything" in found.verdict
        return
    assert found.write_position == expected["currentMessagePosition"]
    assert {key: [one.queue_offset for one in bad] for key, bad in found.unserved.items()} == {
        (queue["topic"], queue["queueId"]): [bad["queueOffset"] for bad in queue["bad"]] for queue in expected["queues"]
    }
    assert bool(found.missing) == (case_id in WITHOUT_A_CHUNK)
    assert found.is_harmless == (case_id not in LOSING + WITHOUT_A_CHUNK)


def test_entries_that_only_a_header_claims_are_listed_up_to_a_limit(tmp_path):
    root = copy_tree(equeue_store("equeue-small"), tmp_path / "store")
    last = max((root / "queue-chunks" / "orders" / "0").glob("queue-chunk-*"))
    data = bytearray(last.read_bytes())
    data[4:8] = (1 << 30).to_bytes(4, "little")  # the capacity: 2^31 / 12 entries come before it
    last.write_bytes(data)
    entries = explain(root).unserved["orders", 0]
    assert len(entries) == MAX_UNSERVED
    assert "not checked" in entries[-1].message


def test_messages_behind_a_damaged_one_in_the_last_chunk_are_reported_as_lost(tmp_path):
    found = explain(damaged("tail-middle-zeroed", tmp_path / "store"))
    assert len(found.overwritten) == 7
    assert min(found.overwritten) > found.write_position
    assert found.verdict == "starts and continues at position 9396; 7 valid message(s) after it are lost"
