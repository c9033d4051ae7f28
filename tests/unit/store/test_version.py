"""The release that wrote a store last, where a store has traces of two releases or files of another broker."""

import os
import shutil
from pathlib import Path

import pytest

import mqtool
from mqtool.formats import checkpoint
from mqtool.formats.checkpoint import Checkpoint
from mqtool.formats.release import V5_5, release_of
from mqtool.recovery import predict
from mqtool.store.version import Version
from mqtool.verify import verify
from tests.support.stores import FIXTURES, STORES, copy_store

SIXTH = "checkpoint has the sixth field, logicsPhysicalOffset"


def version(root: Path) -> Version:
    with mqtool.open(root) as store:
        return store.version


def with_tables_of_5_5(root: Path) -> list[Path]:
    """Replaces the tables that a broker writes every few seconds by those of a 5.5."""
    names = ("lmqConsumerOffset.json", "delayOffset.json")
    return [
        shutil.copy(FIXTURES / "orders-5.5.0" / "store" / "config" / name, root / "config" / name) for name in names
    ]


@pytest.mark.parametrize("fixture", [store for store in STORES if store.directory], ids=str)
def test_no_evidence_in_a_healthy_store_disagrees(fixture):
    found = version(fixture.directory)
    assert (found.release, found.contrary) == (release_of(fixture.version), ())
    assert found.release in found.releases


def test_a_sixth_field_that_4_9_left_in_the_checkpoint_is_older_than_its_last_flush(tmp_path):
    root = copy_store("orders-4.9.7", tmp_path)
    kept = checkpoint.parse((root / "checkpoint").read_bytes())
    with mqtool.open(root) as store:
        place = next(store.messages(limit=3)).physical_offset + store.commit_log.record(0).total_size
    times = (kept.physic_msg_timestamp, kept.logics_msg_timestamp, kept.index_msg_timestamp)
    (root / "checkpoint").write_bytes(checkpoint.build(Checkpoint(*times, logics_physical_offset=place)))
    found = version(root)
    assert (found.line, found.contrary) == ("4.9", (f"{SIXTH} {place}, which is not of the last flush of queues",))


def test_the_checkpoint_of_another_broker_is_reported_and_decides_nothing(tmp_path):
    root = copy_store("orders-4.9.7", tmp_path)
    shutil.copy(FIXTURES / "ha-5.5.0" / "store-master" / "checkpoint", root / "checkpoint")
    found = version(root)
    assert (found.line, found.contrary) == ("4.9", (f"{SIXTH} 86271, where no record begins",))
    with mqtool.open(root) as store:
        result = verify(store)
    foreign = [finding.evidence for finding in result.findings if finding.code == "checkpoint-foreign"]
    assert foreign == ["logics_physical_offset is 86271, where no record begins"]
    assert result.next_start is not None
    assert (result.next_start.release, result.next_start.other.release) == ("4.9", "5.5")


def test_a_checkpoint_from_before_the_first_record_is_of_another_log(tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    (root / "checkpoint").write_bytes(checkpoint.build(Checkpoint(1_600_000_000_000, 1_600_000_000_000)))
    with mqtool.open(root) as store:
        found = [finding for finding in verify(store).findings if finding.code == "checkpoint-foreign"]
    assert [finding.evidence.partition(",")[0] for finding in found] == ["physic_msg_timestamp is 1600000000000"]


def test_a_checkpoint_from_before_an_expired_record_may_be_of_this_log(tmp_path):
    """A broker that was killed, and got no message since, keeps the time of a flush whose records expire."""
    root = copy_store("orders-5.5.0", tmp_path)
    (root / "checkpoint").write_bytes(checkpoint.build(Checkpoint(1_600_000_000_000, 1_600_000_000_000)))
    first, *rest = sorted((root / "commitlog").iterdir())
    assert rest
    first.unlink()
    with mqtool.open(root) as store:
        assert "checkpoint-foreign" not in {finding.code for finding in verify(store).findings}


def test_tables_that_are_older_than_the_newest_record_say_less_than_it_does(tmp_path):
    """A broker that was killed within seconds of its start has written messages, and no table yet."""
    root = copy_store("orders-4.9.7", tmp_path)
    for path in with_tables_of_5_5(root):
        os.utime(path, (1_700_000_000, 1_700_000_000))
    found = version(root)
    assert found.line == "4.9"
    assert found.evidence.startswith("the properties of the newest record")
    assert found.contrary[0] == "config/lmqConsumerOffset.json has a pullOffsetTable"


def test_newer_tables_say_more_than_the_newest_record(tmp_path):
    root = copy_store("orders-4.9.7", tmp_path)
    with_tables_of_5_5(root)
    found = version(root)
    assert (found.line, found.evidence) == ("5.5", "config/lmqConsumerOffset.json has a pullOffsetTable")
    assert (found.words, found.releases) == ("5.5.0", (V5_5,))
    assert found.contrary[0].startswith("the properties of the newest record")


def test_an_empty_table_without_a_version_says_nothing(tmp_path):
    root = copy_store("hosts-5.5.0", tmp_path)
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "consumerOffset.json").write_text('{"offsetTable":{}}')
    assert (version(root).line, version(root).contrary) == ("5.5", ())


def test_the_release_is_stated_as_assumed_with_what_speaks_against_it(tmp_path):
    root = copy_store("orders-4.9.7", tmp_path)
    with_tables_of_5_5(root)
    words = predict(root).release_evidence
    assert words.startswith("assumed: config/lmqConsumerOffset.json has a pullOffsetTable; against it: the properties")
