"""Damaged stores by every automatic way to repair them: no way costs a message that was still there."""

import pytest

from tests.support.damage import CASES, MADE
from tests.support.repair_sweep import sweep
from tests.support.tiers import NIGHT

SAMPLE = (
    "recent-flip-body@4.9.7-clean",
    "flip-physical-offset@5.5.0-crash",
    "tail-page-hole@4.9.7-crash",
    "foreign-segment-2@5.5.0-clean",
    "exchanged-blocks-2-0-2-4096@4.9.7-crash",
)
"""One of each kind; MQTOOL_LONG=1 takes all."""


@pytest.mark.parametrize("case", [*CASES, *MADE] if NIGHT else SAMPLE)
def test_no_way_to_repair_a_store_loses_a_message_that_was_still_there(case):
    rows = sweep(case)
    assert rows
    assert [row for row in rows if row.is_violation] == []
