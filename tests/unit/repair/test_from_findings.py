"""Changes for very many findings: what is compared grows with their number, not with its square."""

from collections import Counter

import pytest

from mqtool.errors import RefusedError
from mqtool.repair import from_findings
from mqtool.repair.changes import RebuildIndex, RebuildQueues, SetAside, Truncate
from mqtool.repair.from_findings import RepairProposal, changes_of, try_out
from mqtool.store.store import open_store
from mqtool.verify import Finding, Severity
from tests.support.stores import fixture

COUNT = 20_000


@pytest.fixture
def store():
    with open_store(fixture("orders-5.5.0") / "store") as opened:
        yield opened


@pytest.fixture
def compared(monkeypatch):
    """Counts how often two findings are compared with each other."""
    counts: Counter[str] = Counter()
    equal = Finding.__eq__

    def counted(one, other):
        counts["=="] += 1
        return equal(one, other)

    monkeypatch.setattr(Finding, "__eq__", counted)
    return counts


def findings(code, severity=Severity.ERROR):
    return [
        Finding(code, severity, f"consumequeue/T{number}/0/{0:020d}", 0, number, f"T{number}", 0)
        for number in range(COUNT)
    ]


def test_every_finding_is_looked_at_a_few_times(store, compared):
    proposal = changes_of(store, [*findings("queue-hole"), *findings("log-bad-body")])
    assert [type(change) for change in proposal.changes] == [RebuildQueues]
    assert len(proposal.changes[0].topics) == COUNT
    assert len(proposal.remaining) == COUNT
    assert compared["=="] <= 2 * COUNT


@pytest.mark.parametrize("first", ["log-torn-tail", "log-garbage-tail"])
def test_what_a_first_change_leaves_is_parted_in_one_pass(first, store, compared):
    tails = findings(first, Severity.WARNING)
    proposal = changes_of(store, [*tails, *findings("queue-hole")])
    assert proposal.changes == (Truncate(store.commit_log.max_offset),)
    assert proposal.remaining == tuple(findings("queue-hole"))
    assert compared["=="] <= 2 * COUNT


def test_changes_that_change_no_file_are_no_proposal_and_leave_what_was_found(store):
    """The index is intact: rebuilt, it is the same."""
    found = tuple(findings("queue-hole")[:1])
    note = Finding("queue-hole", Severity.NOTE, "x", 0, 0, "T", 0)
    tried = try_out(store, RepairProposal((RebuildIndex(),), ()), (*found, note))
    assert tried == RepairProposal((), found)


def test_a_refusal_for_another_reason_than_losses_is_not_an_answer(store, monkeypatch):
    def refuse(*_arguments, **_options):
        raise RefusedError("space", "no room", store.path)

    monkeypatch.setattr(from_findings, "forecast_of", refuse)
    proposal = RepairProposal((SetAside(("checkpoint",)),), ())
    with pytest.raises(RefusedError, match="no room"):
        try_out(store, proposal, ())
