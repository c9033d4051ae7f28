"""Recovery of a damaged store of the real broker does to it what the broker did: the releases' answers are the judge."""

import pytest

from mqtool.engine import open_store
from mqtool.errors import MqtoolError, StoreLockedError
from tests.support.damage import CASES, base_config, damage_answers, damage_case, held_locks
from tests.support.engine import HeldClock, options_of
from tests.support.stores import tree_digest
from tests.support.tables import in_parts

STRICTER = {"index-short", "abort-directory"}
"""Refused here. The real ones lengthen such an index file and misread it; one of them takes such an abort for a crash."""

OPENED_BY = [("4.9.7", "4.9.7"), ("5.5.0", "5.5.0"), ("5.5.0", "4.9.7")]
ANSWERS = {pair: damage_answers(*pair) for pair in OPENED_BY}


def cases():
    """Each store case with the release that opens it and that release's answer."""
    for (opened_by, written_by), answers in ANSWERS.items():
        for case in CASES.values():
            if case.mode == "store" and case.base.startswith(written_by) and case.id in answers:
                yield pytest.param(opened_by, case, answers[case.id], id=f"{case.id}-by-{opened_by}")


@pytest.mark.long
@pytest.mark.slow
@in_parts("opened_by, case, answer", cases(), size=24)
def test_a_damaged_store_becomes_what_the_broker_made_of_it(opened_by, case, answer, in_memory):
    root = damage_case(case, in_memory)
    options = options_of(base_config(case.base), opened_by)
    before = tree_digest(root)
    with held_locks(case, root):
        try:
            store = open_store(root, options, clock=HeldClock(), background=False)
        except MqtoolError as refusal:
            assert isinstance(refusal, StoreLockedError) == bool(case.locked)
            assert answer["exit"] is not None or answer.get("hung") or case.kind in STRICTER
            assert tree_digest(root) == before
            return
    with store:
        assert answer["exit"] is None
        bounds = (max(0, store.min_physical_offset), store.max_physical_offset)
        assert bounds == (max(0, answer["after_start"]["min"]), answer["after_start"]["max"])
        for name, expected in answer["queues"].items():
            topic, _, queue_id = name.rpartition("/")
            assert store.queue_bounds(topic, int(queue_id)) == (expected["min"], expected["max"]), name
