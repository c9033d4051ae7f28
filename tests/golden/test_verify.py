"""verify finds nothing in healthy stores of the real broker, what is wrong in damaged ones, and calls nothing intact damaged."""

from functools import cache
from pathlib import Path

import pytest

import mqtool
from mqtool.verify import Severity, State, Verification, segment_parts, verify
from tests.golden.verify_expected import UNKNOWN, expected
from tests.support.both_ways import verify_both_ways
from tests.support.damage import CASES, DamageCase, base_config, base_messages
from tests.support.stores import STORES, copy_store, fixture, tree_digest

READABLE = [case for case in CASES.values() if case.kind != "store-empty"]
OUR_STORES = [store for store in STORES if not store.name.startswith(("equeue", "tfchunk", "exotic"))]
HEALTHY = [store for store in OUR_STORES if store.clean_stop]
KILLED = [store for store in OUR_STORES if not store.clean_stop]
WITHOUT_CONFIG = ("default-sizes", "hosts-5.5.0", "oversize-5.5.0", "rollover-5.5.0", "v2-long-topic")

# Damage to a single field of a record that a broker still serves: the message is there, but it is not what was written.
FIELD_ONLY = (
    "flip-queue-id",
    "flip-queue-id-negative",
    "flip-queue-offset",
    "flip-rollback",
    "flip-compressed",
    "flip-born-timestamp",
    "flip-store-timestamp",
    "flip-topic",
    "flip-key",
    "flip-property-separator",
    "timestamp-backwards",
    "timestamp-future",
    "timestamp-zero-first",
    "timestamp-old-first",
)


def answer(case: DamageCase, store: Path) -> Verification:
    return _answer(case.base, store)


@cache
def _answer(base: str, store: Path) -> Verification:
    with mqtool.open(store, base_config(base)) as opened:
        return verify_both_ways(opened)


@pytest.mark.long
@pytest.mark.parametrize("with_config", [False, True], ids=["", "config"])
@pytest.mark.parametrize("store", HEALTHY, ids=str)
def test_a_healthy_store_has_no_findings(store, with_config, tmp_path):
    root = copy_store(store.name, tmp_path)
    before = tree_digest(root)
    with mqtool.open(root, store.config if with_config else None) as opened:
        found = verify_both_ways(opened)
    assert found.findings == ()
    assert found.state in (State.CLEAN, State.UNKNOWN)
    assert found.losses.messages == found.losses.bytes == 0
    assert tree_digest(root) == before


@pytest.mark.parametrize("store", HEALTHY, ids=str)
def test_what_cannot_be_checked_is_unknown_and_nothing_else_is(store, tmp_path):
    with mqtool.open(copy_store(store.name, tmp_path)) as opened:
        found = verify(opened)
    unknown = {check.area.value for check in found.checks if check.state is State.UNKNOWN}
    assert unknown == ({"config"} if store.name in WITHOUT_CONFIG else set())


@pytest.mark.parametrize("store", KILLED, ids=str)
def test_a_killed_store_has_only_what_the_broker_s_recovery_mends(store, tmp_path):
    with mqtool.open(copy_store(store.name, tmp_path), store.config) as opened:
        found = verify(opened)
    assert found.state is State.DIRTY
    assert {finding.severity for finding in found.findings} == {Severity.WARNING}
    assert "abort-present" in {finding.code for finding in found.findings}
    assert found.losses.messages == 0


@pytest.mark.parametrize("case", READABLE, ids=str)
def test_damage_has_exactly_the_findings_that_its_edits_call_for(case, damaged):
    found = answer(case, damaged(case.id))
    assert {(finding.code, finding.severity.value) for finding in found.findings} == expected(case)
    unknown = {check.area.value for check in found.checks if check.state is State.UNKNOWN}
    assert unknown == UNKNOWN.get(case.kind, set())


@pytest.mark.parametrize("case", READABLE, ids=str)
def test_exactly_the_messages_that_are_not_there_as_written_are_lost(case, damaged):
    store = damaged(case.id)
    found = answer(case, store)
    lost = {
        (loss.topic, loss.queue_id, offset)
        for loss in found.losses.queues
        for first, last in loss.offsets
        for offset in range(first, last + 1)
    }
    if case.kind in ("cq-ahead", "cq-ahead-far"):  # a unit too many says that there was a message
        assert lost == {("Orders", 0, 1 + max(m["offset"] for m in base_messages(case.base) if _is_orders(m)))}
        return
    if case.kind == "commitlog-and-queues-deleted":  # nothing is left that could prove what was there
        assert lost == set()
        return
    gone = [message for message in _changed(case, store) if message["offset"] >= 0]
    if case.kind.startswith(("segment-missing-first", "segment-name")) or case.kind in FIELD_ONLY:
        gone = []
    assert lost == {(m["topic"], m["queue"], m["offset"]) for m in gone if not _served_whole(case, m)}


@pytest.mark.parametrize("case", READABLE, ids=str)
def test_no_intact_record_is_called_damaged(case, damaged):
    store = damaged(case.id)
    found = answer(case, store)
    changed = {message["phy"] for message in _changed(case, store)}
    intact = [m for m in base_messages(case.base) if m["phy"] not in changed]
    overlapped = [
        m["phy"]
        for m in intact
        for part in found.losses.ranges
        if part.start < m["phy"] + m["size"] and part.end > m["phy"]
    ]
    assert overlapped == []
    starts = {m["phy"] for m in intact}
    blamed = {finding.physical_offset for finding in found.findings if finding.code.startswith("log-")}
    assert not blamed & starts


@pytest.mark.parametrize("case", ["tail-page-hole@5.5.0-crash", "old-zero-segment@4.9.7-clean"])
def test_a_loss_is_told_for_each_group_by_what_it_had_consumed(case, damaged):
    store = damaged(case)
    found = answer(CASES[case], store)
    with mqtool.open(store) as opened:
        offsets = opened.metadata.consumer_offsets["billing"]
    for group in found.losses.groups:
        offset = offsets[group.topic][group.queue_id]
        lost = [
            one
            for loss in found.losses.queues
            if (loss.topic, loss.queue_id) == (group.topic, group.queue_id)
            for first, last in loss.offsets
            for one in range(first, last + 1)
        ]
        assert (group.group, group.consumer_offset) == ("billing", offset)
        assert group.consumed == sum(one < offset for one in lost)
        assert group.unread == sum(one >= offset for one in lost)
    assert found.losses.groups


@pytest.mark.parametrize(
    "case", ["tail-page-hole@5.5.0-crash", "old-flip-magic@4.9.7-clean", "old-zero-page@5.5.0-clean"]
)
def test_without_queues_the_queue_offsets_around_the_damage_prove_the_loss(case, damaged):
    import shutil

    store = damaged(case)
    shutil.rmtree(store / "consumequeue")
    with mqtool.open(store, base_config(CASES[case].base)) as opened:
        found = verify(opened)
    lost = {
        (loss.topic, loss.queue_id, offset)
        for loss in found.losses.queues
        for first, last in loss.offsets
        for offset in range(first, last + 1)
    }
    gone = [message for message in _changed(CASES[case], store) if message["offset"] >= 0]
    last = {(m["topic"], m["queue"]): m["offset"] for m in base_messages(CASES[case].base) if m["offset"] >= 0}
    provable = {(m["topic"], m["queue"], m["offset"]) for m in gone if _is_bracketed(m, gone, last)}
    assert lost == provable
    assert {loss.proof for loss in found.losses.queues} == {"offsets"}


@pytest.mark.parametrize("base", ["4.9.7-clean", "5.5.0-crash"])
@pytest.mark.parametrize("jobs", [2, 3])
def test_the_answer_is_the_same_whatever_the_number_of_processes(base, jobs, damaged, monkeypatch):
    monkeypatch.setattr(segment_parts, "PART_BYTES", 4096)  # several parts, though these logs are small
    store = damaged(f"old-zero-page@{base}")
    with mqtool.open(store, base_config(base)) as opened:
        alone, together = verify(opened), verify(opened, mqtool.verify.Options(jobs=jobs))
    assert (alone.findings, alone.losses, alone.checks) == (together.findings, together.losses, together.checks)


def _is_orders(message: dict) -> bool:
    return (message["topic"], message["queue"]) == ("Orders", 0)


def _changed(case: DamageCase, store: Path) -> list[dict]:
    """Records of the base whose bytes are not where they were; read without the library."""
    original = fixture(f"damage/bases/{case.base}/store")
    size = 16384
    changed = []
    for message in base_messages(case.base):
        name, position = f"{message['phy'] // size * size:020d}", message["phy"] % size
        files = [root / "commitlog" / name for root in (original, store)]
        data = [path.read_bytes()[position : position + message["size"]] if path.is_file() else b"" for path in files]
        if data[0] != data[1]:
            changed.append(message)
    return changed


def _served_whole(case: DamageCase, message: dict) -> bool:
    """The page hole of one base wipes the keys of a record, but neither its lengths nor its body."""
    return case.id == "tail-page-hole@4.9.7-crash" and message["phy"] < 131072 + 4096


def _is_bracketed(message: dict, gone: list[dict], last: dict) -> bool:
    """Whether a later message of the same queue is still there, whose offset proves the gap."""
    queue = (message["topic"], message["queue"])
    left = {m["offset"] for m in gone if (m["topic"], m["queue"]) == queue}
    return any(offset not in left for offset in range(message["offset"] + 1, last[queue] + 1))
