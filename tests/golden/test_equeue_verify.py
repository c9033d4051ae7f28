"""What verify says of EQueue's stores: nothing of healthy ones, and the right thing of each damaged one."""

import pytest

from mqtool.siblings.equeue.store import EQueueStore
from mqtool.siblings.equeue.verify import verify
from mqtool.verify.findings import Severity
from tests.support.chunks import EQUEUE_CASES, EQUEUE_STORES, answer, damaged, equeue_store
from tests.support.stores import tree_digest

UNSEEN = (
    "tail-body-bitrot",
    "done-body-bitrot",
    "config-larger-chunks",
    "config-small-max-record",
    "small-cached",
    "exact-untouched",
    "killed-untouched",
    "offsets-unknown-topic",
    "queue-setting-empty",
    "queue-setting-missing",
    "exact-footer-in-last",
    "done-deleted-first",
)
"""Cases in which every byte that has an invariant is right: bodies have no checksum, settings are not stored,
and a store without its first chunk is one in which retention has been at work."""


def findings(root):
    with EQueueStore(root) as store:
        return list(verify(store))


@pytest.mark.parametrize("name", [name for name in EQUEUE_STORES if name != "equeue-torn"])
def test_nothing_is_wrong_with_a_healthy_store(name):
    before = tree_digest(equeue_store(name))
    assert findings(equeue_store(name)) == []
    assert tree_digest(equeue_store(name)) == before


def test_a_torn_end_and_entries_ahead_of_it_are_warnings():
    found = findings(equeue_store("equeue-torn"))
    assert {finding.severity for finding in found} == {Severity.WARNING}
    assert sorted(finding.code for finding in found) == ["equeue-entry-ahead"] * 6 + ["equeue-leftover"]


def test_the_cases_without_findings_are_cases():
    assert set(UNSEEN) < set(EQUEUE_CASES)


@pytest.mark.parametrize("case_id", EQUEUE_CASES)
def test_a_damaged_store_has_findings_where_an_invariant_is_broken(case_id, tmp_path):
    root, expected = damaged(case_id, tmp_path / "store"), answer(case_id)
    before = tree_digest(root)
    found = findings(root)
    assert tree_digest(root) == before
    if expected["open"] != "ok":
        refused = [finding for finding in found if finding.code == "equeue-start-refused"]
        assert len(refused) == 1
        assert expected["open"]["exception"] in refused[0].evidence
    elif case_id in UNSEEN:
        assert found == []
    else:
        assert found
