"""The small text files of a DLedger log, which Java reads as properties."""

import pytest

from mqtool.errors import FormatError
from mqtool.formats import dledger
from mqtool.formats.dledger import LedgerState
from mqtool.recovery import predict
from mqtool.store import open_store
from mqtool.verify.store import verify
from tests.support.stores import copy_store

CURRENT = b"committedIndex=185\nendIndex=185\n"


@pytest.mark.parametrize(
    "data",
    [
        CURRENT,
        b"endIndex:185\ncommittedIndex:185\n",
        b"endIndex 185\r\ncommittedIndex = 185",
        b"# a comment\nendIndex=185\ncommittedIndex=185 \t",
        b"endIndex=1\\\n85\ncommitted\\u0049ndex=185",
    ],
)
def test_a_checkpoint_is_read_as_properties_with_trimmed_values(data):
    assert dledger.parse_state(data) == LedgerState(185, 185)
    assert dledger.committed_index_text(data) == "185"
    assert dledger.is_state_of(data, 185) == (data == CURRENT)


@pytest.mark.parametrize("data", [b"committedIndex=\n", b"committedIndex= \t\nendIndex=3\n", b"", b"\xff\xfe"])
def test_a_checkpoint_without_a_number_names_no_committed_entry(data):
    assert dledger.committed_index_text(data) == ""


@pytest.mark.parametrize(
    "data", [b"", b"\xff\xfe", b"endIndex=3\n", b"committedIndex=x\n", b"endIndex=1\ncommittedIndex=1\\u00g0\n"]
)
def test_what_is_no_checkpoint_is_an_error(data):
    with pytest.raises(FormatError):
        dledger.parse_state(data)


def test_the_current_term_is_not_trimmed():
    assert dledger.parse_current_term(b"currTerm: 5\nvoteLeader=n0\n") == 5
    assert dledger.parse_current_term(b"voteLeader=n0\n") is None
    with pytest.raises(FormatError):
        dledger.parse_current_term(b"currTerm=5 \n")


@pytest.mark.parametrize("data", [b"endIndex=185\ncommittedIndex=185 \n", b"endIndex:185\ncommittedIndex:185\n"])
def test_a_start_and_verify_read_a_checkpoint_alike(data, tmp_path):
    root = copy_store("dledger-5.5.0", tmp_path)
    (root / "dledger-n0/checkpoint").write_bytes(data)
    keys = {"enableDLegerCommitLog": "true", "dLegerSelfId": "n0"}
    outcome = predict(root, "5.5.0", keys)
    assert (outcome.exit, outcome.refusal, outcome.runs) == (None, None, True)
    with open_store(root, keys) as store:
        assert verify(store).findings == ()
