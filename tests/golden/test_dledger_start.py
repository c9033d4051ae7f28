"""Predicted starts in DLedger mode agree with what the real stores of five releases did, in every recorded case."""

import pytest

from mqtool.errors import UnsupportedFormatError, UsageError
from mqtool.recovery import predict
from tests.support import dledger_cases
from tests.support.dledger_cases import ANSWERS, in_terms_of_answers, keys
from tests.support.stores import copy_store, fixture, read_lines, tree_digest
from tests.support.tables import combined, in_parts

HEAP = 512 << 20
"""Of the Java process that gave the answers."""
RECORDED = {
    (line["release"], line["base"], line["case"]): line
    for release in ("4.9.7", "5.5.0")
    for line in read_lines(fixture(f"{ANSWERS}/answers-{release}.jsonl"))
}


BEFORE_5_5 = {(line["base"], line["case"]): line for line in read_lines(fixture(f"{ANSWERS}/before-5.5.jsonl"))}
"""Members in which the answers of 5.3.3 and 5.4.0, which are alike, differ from that of 5.5.0; those of 5.5.1 do not."""


def test_every_case_has_a_recorded_answer():
    assert list(RECORDED) == sorted(dledger_cases.cases(), key=lambda case: case[0])


@in_parts("case", RECORDED)
def test_a_predicted_start_is_what_the_real_store_did(case, tmp_path):
    check_start(case, case[0], RECORDED[case], tmp_path)


@in_parts("case, release", combined([case for case in RECORDED if case[0] == "5.5.0"], ["5.3.3", "5.4.0", "5.5.1"]))
def test_a_predicted_start_is_what_the_real_store_of_another_release_did(case, release, tmp_path):
    differing = {} if release == "5.5.1" else BEFORE_5_5.get(case[1:], {})
    check_start(case, release, RECORDED[case] | differing, tmp_path)


def check_start(case, release, answer, folder):
    written_by, base, name = case
    root = dledger_cases.build(written_by, base, name, folder)
    found = predict(root, release, keys(written_by, base), whole_broker=False, heap_bytes=HEAP)
    mine = in_terms_of_answers(found)
    theirs = {field: answer[field] for field in mine}
    if theirs["exit"] is not None:  # a store that does not start says nothing more of itself
        mine, theirs = (
            {field: one[field] for field in ("exit", "deleted", "created", "changed")} for one in (mine, theirs)
        )
    assert mine == theirs


@pytest.mark.parametrize("name", ["torn-abort", "no-index", "no-blank"])
def test_a_prediction_changes_nothing(name, tmp_path):
    root = dledger_cases.build("5.5.0", "dledger", name, tmp_path)
    before = tree_digest(root)
    predict(root, "5.5", keys("5.5.0", "dledger"))
    assert tree_digest(root) == before


@pytest.mark.parametrize(("name", "lost"), [("healthy", 0), ("entry-magic", 28), ("no-queues", 186)])
def test_what_is_lost_is_counted(name, lost, tmp_path):
    root = dledger_cases.build("5.5.0", "dledger", name, tmp_path)
    found = predict(root, "5.5", keys("5.5.0", "dledger"))
    assert sum(last - first + 1 for ranges in (found.lost or {}).values() for first, last in ranges) == lost


def test_4_9_gives_queues_that_are_gone_their_units_again(tmp_path):
    root = dledger_cases.build("4.9.7", "dledger", "no-queues", tmp_path)
    assert predict(root, "4.9", keys("4.9.7", "dledger")).lost == {}


def test_a_directory_of_dledger_speaks_for_the_mode(tmp_path):
    root = copy_store("dledger-5.5.0", tmp_path)
    assert predict(root, "5.5").after_start == (0, 175926)


def test_without_the_mode_the_broker_sees_an_empty_log(tmp_path):
    root = copy_store("dledger-5.5.0", tmp_path)
    assert predict(root, "5.5", {"enableDLegerCommitLog": "false"}).after_start == (-1, 0)


def test_a_node_without_a_name_is_asked_for_it(tmp_path):
    root = copy_store("hosts-5.5.0", tmp_path)
    with pytest.raises(UsageError, match="dLegerSelfId"):
        predict(root, "5.5", {"enableDLegerCommitLog": "true"})


def test_several_directories_of_data_are_refused_by_name(tmp_path):
    root = copy_store("dledger-5.5.0", tmp_path)
    with pytest.raises(UnsupportedFormatError, match="several directories"):
        predict(root, "5.5", {"storePathDLedgerCommitLog": "/a,/b"})
