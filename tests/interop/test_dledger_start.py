"""The recorded starts in DLedger mode are what the real stores still do; all of them with MQTOOL_LONG=1."""

import pytest

from tests.golden.test_dledger_start import RECORDED
from tests.support import dledger_cases
from tests.support.tiers import NIGHT

pytestmark = pytest.mark.interop

SOME = [("4.9.7", "dledger", "entry-index"), ("5.5.0", "dledger-mixed", "no-queues-abort")]


@pytest.mark.parametrize("case", list(RECORDED) if NIGHT else SOME, ids="-".join)
def test_a_start_is_the_recorded_one(case, tmp_path, rocketmq):
    release, base, name = case
    assert dledger_cases.answer(rocketmq(release), release, base, name, tmp_path) == RECORDED[case]
