"""The checkpoint file: real ones, the broker's answers, short files."""

import pytest

from mqtool.formats import checkpoint
from mqtool.formats.checkpoint import Checkpoint
from tests.support.stores import answered, summary
from tests.unit.formats.real import files, label

CHECKPOINTS = [path for path in files("checkpoint") if not path.parent.name.startswith("dledger-")]


@pytest.mark.parametrize("path", CHECKPOINTS, ids=label)
def test_every_real_checkpoint_is_written_back_to_its_own_bytes(path):
    data = path.read_bytes()
    assert checkpoint.build(checkpoint.parse(data)) == data


@pytest.mark.parametrize("store", [s for s in answered("gets") if s.directory], ids=str)
def test_fields_are_what_the_broker_answers(store):
    expected = summary(store.name)["before"]["checkpoint"]
    found = checkpoint.parse((store.directory / "checkpoint").read_bytes())
    assert found == Checkpoint(
        expected["physicMsgTimestamp"],
        expected["logicsMsgTimestamp"],
        expected["indexMsgTimestamp"],
        expected.get("masterFlushedOffset", 0),
        expected.get("confirmPhyOffset", 0),
        expected.get("logicsPhysicalOffset", 0),
    )


@pytest.mark.parametrize("path", [path for path in CHECKPOINTS if "4.9.7" in label(path)], ids=label)
def test_a_release_leaves_zero_where_it_knows_no_field(path):
    found = checkpoint.parse(path.read_bytes())
    assert (found.master_flushed_offset, found.confirm_physical_offset, found.logics_physical_offset) == (0, 0, 0)


def test_what_a_short_file_lacks_is_zero():
    whole = checkpoint.build(Checkpoint(1, 2, 3, 4, 5, 6))
    assert checkpoint.parse(b"") == Checkpoint()
    assert checkpoint.parse(whole[:8]) == Checkpoint(1)
    assert checkpoint.parse(whole[:24]) == Checkpoint(1, 2, 3)
    for size in range(4096):
        checkpoint.parse(whole[:size])


@pytest.mark.parametrize(
    ("physic", "logics", "expected"),
    [
        (10_000, 20_000, 7000),
        (20_000, 10_000, 7000),
        (0, 9999, 0),
    ],
)
def test_recovery_starts_three_seconds_before_the_earlier_time(physic, logics, expected):
    assert Checkpoint(physic, logics).min_timestamp == expected
