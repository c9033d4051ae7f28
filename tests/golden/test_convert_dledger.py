"""Leaving DLedger: the same messages in the same queues; a model's DLedger log becomes the broker's own files again."""

import json
import shutil
import struct

import pytest

import mqtool
from mqtool.cli.app import run
from mqtool.convert.dledger import convert
from mqtool.errors import UnsupportedFormatError, UsageError
from mqtool.records.damage import Damage
from mqtool.verify.store import verify
from tests.support.builder import StoreBuilder
from tests.support.ledger import into_ledger
from tests.support.stores import STORES, copy_store, shape_keys, store_fixture, tree_digest

LEDGERS = [store for store in STORES if store.name.startswith("dledger")]
BLANK = struct.pack(">I", 0xCBD43194)
# orders-5.5.0 is left out: there a batch, which DLedger takes apart, moved to the next segment as a whole
PLAIN = ("orders-4.9.7", "ipv6", "hosts-5.5.0", "v2-long-topic", "propcrc-5.5.0", "timer-5.5.0")


def content(store):
    """What a consumer can see of every message, in log order."""
    return [
        (
            message.topic,
            message.queue_id,
            message.queue_offset,
            message.flag,
            message.sys_flag,
            message.born_timestamp,
            message.born_host,
            message.store_timestamp,
            message.store_host,
            message.reconsume_times,
            message.raw_body,
            message.properties,
        )
        for message in store.messages()
    ]


def valid_part(data):
    """A file without what stands behind a BLANK: a broker leaves there what its buffer held."""
    found = data.find(BLANK)
    while found >= 0 and struct.unpack_from(">i", data, found - 4)[0] != len(data) - found + 4:
        found = data.find(BLANK, found + 1)
    return data if found < 0 else data[: found + 4]


@pytest.mark.parametrize("fixture", LEDGERS, ids=str)
def test_a_real_ledger_becomes_an_ordinary_store_with_the_same_messages(fixture, tmp_path):
    before = tree_digest(fixture.directory)
    with mqtool.open(fixture.directory, fixture.config) as store:
        found = convert(store, tmp_path / "plain")
        expected = content(store)
        queues = {(queue.topic, queue.queue_id): (queue.min_offset, queue.max_offset) for queue in store.queues()}
    with mqtool.open(tmp_path / "plain") as made:
        assert content(made) == expected
        assert {(q.topic, q.queue_id): (q.min_offset, q.max_offset) for q in made.queues()} == queues
        assert not made.layout.dledger_dirs
        assert verify(made).findings == ()
    assert (found.records, found.damage.count, found.unresolved) == (len(expected), 0, 0)
    assert found.rebuilt.is_complete
    assert tree_digest(fixture.directory) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plain"]


@pytest.mark.parametrize("name", PLAIN)
def test_what_a_model_put_into_dledger_mode_comes_out_as_the_broker_wrote_it(name, tmp_path):
    root, config = copy_store(name, tmp_path), store_fixture(name).config
    original = shutil.copytree(root, tmp_path / "original")
    into_ledger(root)
    with mqtool.open(root, shape_keys(config)) as store:
        convert(store, tmp_path / "plain")
    for kind in ("commitlog", "timerlog", "config", "consumequeue", "batchconsumequeue"):
        expected = {path.relative_to(original): path for path in (original / kind).rglob("*") if path.is_file()}
        expected = {path: file for path, file in expected.items() if any(file.read_bytes()) or kind == "timerlog"}
        made = tmp_path / "plain"
        for path, file in expected.items():
            assert valid_part((made / path).read_bytes()) == valid_part(file.read_bytes()), path
        assert {path.relative_to(made) for path in (made / kind).rglob("*") if path.is_file()} >= set(expected)
    with mqtool.open(tmp_path / "plain", config) as made_store:
        assert [finding.code for finding in verify(made_store).findings if finding.severity == "error"] == []


def test_commit_records_lead_to_their_half_messages_again(tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    into_ledger(root)
    with mqtool.open(root) as store:
        found = convert(store, tmp_path / "plain")
    assert found.unresolved == 0
    with mqtool.open(tmp_path / "plain") as store:
        committed = [message for message in store.messages() if message.prepared_transaction_offset]
        assert committed
        for message in committed:
            assert store.commit_log.record(message.prepared_transaction_offset).topic == b"RMQ_SYS_TRANS_HALF_TOPIC"


def test_a_queue_whose_messages_have_expired_continues_at_its_queue_offset(tmp_path):
    root = copy_store("dledger-5.5.0", tmp_path)
    (root / "dledger-n0/data/00000000000000000000").unlink()
    quiet = root / "consumequeue" / "Quiet" / "0"
    quiet.mkdir(parents=True)
    (quiet / f"{0:020d}").write_bytes((bytes(180) + struct.pack(">qiq", 100, 100, 5)).ljust(2000, b"\0"))
    with mqtool.open(root) as store:
        convert(store, tmp_path / "plain")
    with mqtool.open(tmp_path / "plain") as made:
        assert (made.queue("Quiet", 0).min_offset, made.queue("Quiet", 0).max_offset) == (10, 10)


def test_an_ordinary_log_in_another_directory_than_before_is_noted(tmp_path, capsys):
    root = copy_store("dledger-mixed-5.5.0", tmp_path)
    (root / "commitlog").rename(root / "own")
    assert run(["convert", "dledger", str(root), "-o", str(tmp_path / "plain")]) == 0
    assert f"own is in {tmp_path / 'plain' / 'commitlog'}: " in capsys.readouterr().err


def test_damage_is_left_out_and_reported_and_the_rest_keeps_its_queue_offsets(tmp_path):
    root = copy_store("dledger-5.5.0", tmp_path)
    with (root / "dledger-n0/data/00000000000000000000").open("r+b") as file:
        file.seek(1001)
        file.write(bytes(900))
    with mqtool.open(root) as store:
        expected = [item for item in store.messages() if not isinstance(item, Damage)]
        found = convert(store, tmp_path / "plain")
    assert (found.damage.count, found.records) == (1, 185)
    with mqtool.open(tmp_path / "plain") as made:
        places = [(m.topic, m.queue_id, m.queue_offset, m.body) for m in made.messages()]
    assert places == [(m.topic, m.queue_id, m.queue_offset, m.body) for m in expected]


def test_an_ordinary_store_is_no_source(tmp_path):
    with mqtool.open(store_fixture("orders-5.5.0").directory) as store, pytest.raises(UnsupportedFormatError):
        convert(store, tmp_path / "plain")
    assert list(tmp_path.iterdir()) == []


def test_a_target_that_is_taken_or_inside_the_store_is_refused(tmp_path):
    root = copy_store("dledger-5.5.0", tmp_path)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()
    before = tree_digest(root)
    with mqtool.open(root) as store:
        for target in (tmp_path / "taken", root / "inside"):
            with pytest.raises(UsageError):
                convert(store, target)
    assert tree_digest(root) == before


def test_nothing_is_left_of_a_conversion_that_fails(tmp_path, monkeypatch):
    def fail(*_arguments, **_options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("mqtool.jobs.atomic.sync_tree", fail)
    with (
        mqtool.open(store_fixture("dledger-5.5.0").directory) as store,
        pytest.raises(mqtool.errors.StoreError, match="No space left"),
    ):
        convert(store, tmp_path / "plain")
    assert list(tmp_path.iterdir()) == []


def test_the_command_reports_and_verifies_the_new_store(tmp_path, capsys):
    source = store_fixture("dledger-mixed-4.9.7").directory
    code = run(["convert", "dledger", str(source), "-o", str(tmp_path / "plain"), "--format", "json"])
    document = json.loads(capsys.readouterr().out)
    assert (code, document["ok"], document["status"], document["records"], document["units"]) == (
        0,
        True,
        "clean",
        206,
        206,
    )
    assert document["left_behind"] == []


def test_a_commit_record_whose_half_message_is_damaged_keeps_its_address_and_is_counted(tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    into_ledger(root)
    with mqtool.open(root) as store:
        half = next(m.prepared_transaction_offset for m in store.messages() if m.prepared_transaction_offset)
        users = sum(m.prepared_transaction_offset == half for m in store.messages())
        segment = next(one for one in reversed(store.commit_log.segments) if one.base <= half)
    with segment.path.open("r+b") as file:
        file.seek(half - segment.base)
        file.write(bytes(60))
    with mqtool.open(root) as store:
        found = convert(store, tmp_path / "plain")
    assert (found.damage.count, found.unresolved) == (1, users)
    with mqtool.open(tmp_path / "plain") as made:
        assert sum(m.prepared_transaction_offset == half for m in made.messages()) == users


def test_tables_of_timers_and_transactions_in_rocksdb_are_reported_as_left_behind(tmp_path):
    """They hold physical offsets of the old log."""
    root = copy_store("dledger-5.5.0", tmp_path)
    with mqtool.open(root) as store:
        assert convert(store, tmp_path / "without").left_behind == []
        (root / "rocksdbstore").mkdir(exist_ok=True)
        (root / "rocksdbstore" / "000007.sst").write_bytes(b"x")
        assert convert(store, tmp_path / "with").left_behind == ["rocksdbstore"]


def test_a_reference_into_a_log_without_half_messages_is_kept_and_counted(tmp_path):
    """The half message of the commit record has expired."""
    builder = StoreBuilder()
    for _ in range(3):
        builder.put()
    builder.put(sys_flag=8, prepared_transaction_offset=4321)
    root = builder.write(tmp_path / "store", index=False)
    into_ledger(root)
    with mqtool.open(root) as store:
        found = convert(store, tmp_path / "plain")
    assert (found.records, found.unresolved) == (4, 1)
    with mqtool.open(tmp_path / "plain") as made:
        assert [one.prepared_transaction_offset for one in made.messages()] == [0, 0, 0, 4321]
