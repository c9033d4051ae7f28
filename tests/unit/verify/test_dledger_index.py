"""Units of a DLedger index that a start writes again are a warning; others are an error."""

import pytest

from mqtool.recovery import predict
from mqtool.store import open_store
from mqtool.verify.findings import Severity, State
from mqtool.verify.store import verify
from tests.support.dledger_cases import SIZE, UNIT, Ledger
from tests.support.stores import copy_store

NAME = "dledger-5.5.0"
KEYS = {"enableDLegerCommitLog": "true", "dLegerSelfId": "n0"}


@pytest.fixture
def ledger(tmp_path):
    return Ledger(copy_store(NAME, tmp_path), NAME)


def zero_units(ledger, numbers):
    with ledger.index.open("r+b") as file:
        for number in numbers:
            file.seek(UNIT * number)
            file.write(bytes(UNIT))


def severities(root):
    with open_store(root, KEYS) as store:
        result = verify(store)
    return result.state, [one.severity for one in result.findings if one.code == "dledger-index-unit"]


def test_units_that_were_not_flushed_before_a_crash_are_a_warning(ledger):
    zero_units(ledger, range(180, 186))
    (ledger.root / "abort").touch()
    assert severities(ledger.root) == (State.DIRTY, [Severity.WARNING] * 6)
    changed = predict(ledger.root, "5.5.0", KEYS).files.changed
    assert any("index" in str(path) for path in changed)


def test_units_are_written_again_from_the_first_wrong_one_on(ledger):
    zero_units(ledger, [100, 180])
    assert severities(ledger.root) == (State.DIRTY, [Severity.WARNING] * 2)


def test_a_unit_of_a_file_that_no_start_checks_is_an_error(ledger):
    allocated = ledger.root / "dledger-n0/data" / f"{3 * SIZE:020}"
    allocated.write_bytes(bytes(SIZE))  # ahead of its use: now the first file is not one of the last three
    checked = next(number for number, entry in enumerate(ledger.entries) if entry[0] >= SIZE)
    zero_units(ledger, [checked - 1])
    assert severities(ledger.root) == (State.CORRUPT, [Severity.ERROR])
    zero_units(ledger, [checked + 1])
    assert severities(ledger.root)[1] == [Severity.ERROR, Severity.WARNING]


def test_a_unit_after_which_the_log_is_refused_is_an_error(ledger):
    zero_units(ledger, [185])
    (ledger.root / "dledger-n0/checkpoint").write_text("committedIndex=x\nendIndex=185\n")
    assert severities(ledger.root) == (State.CORRUPT, [Severity.ERROR])


def test_while_a_broker_runs_nothing_is_predicted(ledger, monkeypatch):
    zero_units(ledger, [185])
    monkeypatch.setattr("mqtool.verify.survey.lock_holder", lambda _root: 1)
    assert severities(ledger.root)[1] == [Severity.ERROR]


def test_one_entry_with_an_index_far_away_does_not_make_all_others_wrong(ledger):
    position, _, index, _ = ledger.entries[50]
    ledger.write(position + 8, (index + 1_000_000).to_bytes(8, "big"))
    with open_store(ledger.root, KEYS) as store:
        found = [one for one in verify(store).findings if one.code == "dledger-index-unit"]
    assert [one.physical_offset for one in found] == [position]


def test_units_are_found_in_the_file_that_has_them(ledger):
    data = ledger.index.read_bytes()
    size = 100 * UNIT
    ledger.index.unlink()
    for base in (0, size):
        (ledger.root / "dledger-n0/index" / f"{base:020}").write_bytes(data[base : base + size])
    zero_units(ledger, []) if ledger.index.exists() else None
    with open_store(ledger.root, KEYS) as store:
        assert not [one for one in verify(store).findings if one.code == "dledger-index-unit"]
