"""`verify` of healthy and of killed stores of the real broker, and of some damaged ones; the rest is in test_damaged_stores."""

import pytest

import mqtool
from mqtool.verify import Severity, State, tasks, verify
from tests.golden.verify_expected import lost_addresses
from tests.support.both_ways import verify_both_ways
from tests.support.damage import CASES, base_config, base_messages, changed_messages
from tests.support.stores import STORES, copy_store, read_keys, tree_digest

OUR_STORES = [store for store in STORES if not store.name.startswith(("equeue", "tfchunk", "exotic"))]
HEALTHY = [store for store in OUR_STORES if store.clean_stop]
KILLED = [store for store in OUR_STORES if not store.clean_stop]
WITHOUT_CONFIG = ("default-sizes", "hosts-5.5.0", "oversize-5.5.0", "rollover-5.5.0", "v2-long-topic")


@pytest.mark.long
@pytest.mark.parametrize("with_config", [False, True], ids=["", "config"])
@pytest.mark.parametrize("store", HEALTHY, ids=str)
def test_a_healthy_store_has_no_findings(store, with_config, tmp_path):
    root = copy_store(store.name, tmp_path)
    before = tree_digest(root)
    with mqtool.open(root, read_keys(store.name) if with_config else None) as opened:
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
    with mqtool.open(copy_store(store.name, tmp_path), read_keys(store.name)) as opened:
        found = verify(opened)
    assert found.state is State.DIRTY
    assert {finding.severity for finding in found.findings} == {Severity.WARNING}
    assert "abort-present" in {finding.code for finding in found.findings}
    assert found.losses.messages == 0


@pytest.mark.parametrize("case", ["tail-page-hole@5.5.0-crash", "old-zero-segment@4.9.7-clean"])
def test_a_loss_is_reported_for_each_group_by_what_it_had_consumed(case, damaged):
    with mqtool.open(damaged(case), base_config(CASES[case].base)) as opened:
        found = verify(opened)
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
    gone = [message for message in changed_messages(CASES[case], store) if message["offset"] >= 0]
    last = {(m["topic"], m["queue"]): m["offset"] for m in base_messages(CASES[case].base) if m["offset"] >= 0}
    provable = {(m["topic"], m["queue"], m["offset"]) for m in gone if _is_bracketed(m, gone, last)}
    assert lost_addresses(found) == provable
    assert {loss.proof for loss in found.losses.queues} == {"offsets"}


@pytest.mark.parametrize("base", ["4.9.7-clean", "5.5.0-crash"])
@pytest.mark.parametrize("jobs", [2, 3])
def test_the_answer_is_the_same_whatever_the_number_of_processes(base, jobs, damaged, monkeypatch):
    monkeypatch.setattr(tasks, "PART_BYTES", 4096)  # several parts, though these logs are small
    monkeypatch.setattr(tasks, "MAX_PARTS", 1 << 30)
    store = damaged(f"old-zero-page@{base}")
    with mqtool.open(store, base_config(base)) as opened:
        alone, together = verify(opened), verify(opened, mqtool.verify.Options(jobs=jobs))
    assert (alone.findings, alone.losses, alone.checks) == (together.findings, together.losses, together.checks)


def _is_bracketed(message: dict, gone: list[dict], last: dict) -> bool:
    """Whether a later message of the same queue is still there, whose offset proves the gap."""
    queue = (message["topic"], message["queue"])
    left = {m["offset"] for m in gone if (m["topic"], m["queue"]) == queue}
    return any(offset not in left for offset in range(message["offset"] + 1, last[queue] + 1))
