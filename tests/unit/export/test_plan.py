"""Partitions cover the log once, begin and end at records, and stop at a bound."""

import os
import shutil

import pytest

from mqtool.errors import NotAStoreError, StoreError, UsageError
from mqtool.export.plan import CLOCK_MARGIN, partition_size, partitions, plan_store
from mqtool.export.sources import Source, resolve
from mqtool.records.frames import Frames
from mqtool.store import open_store
from mqtool.store.log import cuts as cuts_module
from mqtool.store.log.cuts import Cuts
from mqtool.store.log.selection import Selection
from tests.support import lake
from tests.support.builder import StoreBuilder
from tests.support.stores import answers, copy_store, store_fixture
from tests.support.unreadable import unreadable

EVERYTHING = Selection()


def plan_of(path, target, selection=EVERYTHING):
    source = Source("b", str(path))
    with source.open() as store:
        return plan_store(store, source, selection, target=target)


def record_starts(name):
    return {answer["physicalOffset"] for answer in answers(name, "messages")}


@pytest.mark.slow
@pytest.mark.parametrize("queues", [True, False], ids=["by queues", "by framing"])
@pytest.mark.parametrize("name", ["orders-5.5.0", "crash-4.9.7", "propcrc-5.5.0", "ipv6", "orders-4.9.7"])
@pytest.mark.parametrize("target", [3_000, 20_000, 10**9])
def test_spans_begin_at_records_and_leave_nothing_out(tmp_path, name, target, queues):
    store = copy_store(name, tmp_path)
    if not queues:
        shutil.rmtree(store / "consumequeue")
        shutil.rmtree(store / "batchconsumequeue", ignore_errors=True)
    plan = plan_of(store, target)
    starts = record_starts(name)
    assert all(span.start in starts for span in plan.spans)
    bases = sorted(int(path.name) for path in (store / "commitlog").iterdir() if int(path.name) < plan.end)
    for before, after in zip(plan.spans, plan.spans[1:], strict=False):
        assert before.end == after.start
    assert (plan.spans[0].start, plan.spans[-1].end) == (bases[0], max(lake.record_ends(name)))


def test_spans_are_balanced_by_bytes():
    plan = plan_of(store_fixture("crash-5.5.0").directory, 50_000)
    sizes = [span.end - span.start for span in plan.spans]
    assert len(sizes) > 10
    assert max(sizes) < 110_000


def test_partitions_join_small_spans_and_are_numbered():
    plan = plan_of(store_fixture("rollover-5.5.0").directory, 10**9)
    found = partitions([plan], 20_000)
    assert [one.number for one in found] == list(range(len(found)))
    assert [span for one in found for span in one.spans] == list(plan.spans)
    assert 1 < len(found) < len(plan.spans)
    assert all(len(one.spans) == 1 or one.size <= 20_000 for one in found)


def test_the_size_of_partitions_depends_on_the_log_alone():
    assert partition_size(1 << 20) == 32 << 20
    assert partition_size(2 << 30) == 128 << 20
    assert partition_size(10 << 40) == 512 << 20


def test_a_cut_that_a_queue_invents_is_not_believed(tmp_path):
    store = copy_store("orders-5.5.0", tmp_path)
    for file in (store / "consumequeue").rglob("*"):
        if file.is_file():
            data = bytearray(file.read_bytes())
            for at in range(0, len(data), 20):
                if data[at : at + 20] != bytes(20):
                    data[at : at + 8] = (int.from_bytes(data[at : at + 8], "big") + 7).to_bytes(8, "big")
            file.write_bytes(data)
    plan = plan_of(store, 20_000)
    assert {span.start for span in plan.spans} <= record_starts("orders-5.5.0")


def test_a_span_of_a_users_range_reaches_over_its_ends_to_records():
    name = "orders-5.5.0"
    plan = plan_of(store_fixture(name).directory, 10**9, Selection(start=100_001, end=200_001))
    starts = record_starts(name)
    assert all(span.start in starts for span in plan.spans)
    assert plan.spans[0].start <= 100_001
    assert plan.spans[-1].end >= 200_001
    assert (plan.start, plan.end) == (100_001, 200_001)


def test_a_missing_segment_is_damage(tmp_path):
    store = copy_store("rollover-5.5.0", tmp_path)
    segments = sorted((store / "commitlog").iterdir())
    segments[3].unlink()
    (gap,) = plan_of(store, None).damage
    assert (gap.start, gap.end, str(gap.kind)) == (int(segments[3].name), int(segments[4].name), "missing")


def test_old_segments_are_left_out_for_their_time_with_a_margin(tmp_path):
    name = "orders-5.5.0"
    last = answers(name, "messages")[-1]["storeTimestamp"]
    whole = plan_of(store_fixture(name).directory, None)
    near = plan_of(store_fixture(name).directory, None, Selection(begin_time=last))
    far = plan_of(store_fixture(name).directory, None, Selection(begin_time=last + 2 * CLOCK_MARGIN))
    assert len(near.spans) == len(whole.spans)
    assert len(far.spans) == 1


@pytest.mark.parametrize("step", [-4 * CLOCK_MARGIN, 4 * CLOCK_MARGIN], ids=["set back", "ahead at the end"])
def test_no_segment_is_left_out_by_a_time_that_others_contradict_or_cannot_confirm(tmp_path, step):
    builder = StoreBuilder()
    for _ in range(300):
        builder.put(b"x" * 200, step=1)
    last = max(builder.segments)
    changed = next(n for n, put in enumerate(builder.puts) if put.physical_offset >= (last if step > 0 else last // 2))
    jumping = StoreBuilder()
    for number in range(300):
        jumping.put(b"x" * 200, step=step if number == changed else 1)
    path = jumping.write(tmp_path / "store")
    inside = [put for put in jumping.puts if put.store_timestamp < builder.puts[-1].store_timestamp]
    first, whole = inside[0].store_timestamp, plan_of(path, None)
    late = plan_of(path, None, Selection(begin_time=first + 2 * CLOCK_MARGIN))
    early = plan_of(path, None, Selection(end_time=first))
    assert {span.base for span in late.spans} >= {last}
    assert {span.base for span in early.spans} >= {last, 0}
    if step < 0:
        assert (
            [span.base for span in late.spans]
            == [span.base for span in early.spans]
            == [span.base for span in whole.spans]
        )


def test_a_cut_is_the_first_record_at_or_after_the_offset_wanted():
    name = "orders-5.5.0"
    source = Source("b", str(store_fixture(name).directory))
    starts = sorted(record_starts(name))
    with source.open() as store:
        cuts = Cuts(store)
        for wanted in (1, starts[5], starts[5] + 1):
            found = cuts.first_at(wanted, 60_000)
            assert found.physical_offset in starts
            assert found.physical_offset >= wanted
        assert cuts.first_at(starts[-1] + 1, starts[-1] + 2) is None


def test_a_dledger_log_is_cut_before_the_header_of_an_entry():
    name = "dledger-5.5.0"
    source = Source("b", str(store_fixture(name).directory))
    with source.open() as store:
        walked = [item for item in store.commit_log.walk() if isinstance(item, Frames)]
        starts = [item.base + int(at) - 48 for item in walked for at in item.positions]
        cuts = Cuts(store)
        end = store.commit_log.segments[0].end
        for wanted, expected in ((starts[5], starts[5]), (starts[5] + 1, starts[6]), (starts[5] + 48, starts[6])):
            found = cuts.first_at(wanted, end)
            assert (found.start, found.physical_offset) == (expected, expected + 48)
        assert cuts.last_at(starts[5] + 48, starts[0]) == starts[5]
        assert cuts.at(starts[5] + 48).start == starts[5]
        assert cuts.at(starts[5]) is None


def test_stores_are_named_by_their_directories_or_by_the_user(tmp_path):
    for name in ("broker-a", "broker-b"):
        (tmp_path / name / "store").mkdir(parents=True)
    assert [s.broker for s in resolve([str(tmp_path / "*" / "store")])] == ["broker-a", "broker-b"]
    assert [s.broker for s in resolve([f"x={tmp_path}/broker-a/store"])] == ["x"]


def test_two_stores_of_one_name_are_refused(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name / "b" / "store").mkdir(parents=True)
    with pytest.raises(UsageError, match="two stores have the name 'b'"):
        resolve([str(tmp_path / "*" / "b" / "store")])


def test_one_store_twice_is_refused(tmp_path):
    (tmp_path / "b").mkdir()
    with pytest.raises(UsageError, match="are the same store"):
        resolve([str(tmp_path / "b"), f"x={tmp_path}/./b"])


def test_a_glob_that_matches_nothing_is_named(tmp_path):
    with pytest.raises(NotAStoreError, match="no directory matches"):
        resolve([str(tmp_path / "*")])


def test_a_broker_conf_names_the_broker(tmp_path):
    (tmp_path / "broker.conf").write_text("brokerName=broker-7\n")
    (source,) = resolve([str(store_fixture("orders-5.5.0").directory)], str(tmp_path / "broker.conf"))
    assert source.broker == "broker-7"


def test_a_master_and_its_slave_are_refused(tmp_path):
    stores = [f"{node}={store_fixture(f'ha-5.5.0/store-{node}').directory}" for node in ("master", "slave")]
    with pytest.raises(UsageError, match="contain the same log"):
        lake.run_export(stores, tmp_path / "lake")


# --- cuts --------------------------------------------------------------------------------------------------------


@pytest.fixture
def long(tmp_path):
    """One segment of 3 MiB, the records of the first MiB in one queue, the rest in another, and its segments' gap."""
    builder = StoreBuilder(segment_size=3 << 20)
    for number in range(420):
        builder.put(bytes(7000), topic="First" if number < 140 else "Second")
    return builder, builder.write(tmp_path / "store")


def test_the_last_cut_before_an_offset_is_looked_for_in_one_queue_after_the_other(long):
    """A cut more than 1 MiB before the offset is not near enough if another queue has a later one."""
    builder, root = long
    starts = [put.physical_offset for put in builder.puts]
    with open_store(root) as store:
        cuts = Cuts(store)
        assert cuts.last_at(starts[300] + 5, 0) == starts[300]
        first_only = Cuts(store)
        first_only._queues = [one for one in cuts._queues if one._queue.topic == "First"]
        assert first_only.last_at(starts[300] + 5, 0) == starts[139]  # the best there is
        assert first_only.last_at(starts[300] + 5, starts[200]) == starts[200]


def test_a_queue_file_that_cannot_be_read_leaves_cuts_to_the_others_and_to_framing(long, monkeypatch):
    builder, root = long
    starts = [put.physical_offset for put in builder.puts]
    with open_store(root) as store:
        cuts = Cuts(store)
        (path,) = [file for file in (root / "consumequeue/Second/0").iterdir() if int(file.name) == 0]
        with unreadable(monkeypatch, path):
            found = cuts.first_at(starts[200] + 1, starts[400])
    assert (found.physical_offset, found.proof) == (starts[201], "framing")


def test_a_queue_file_that_is_cut_meanwhile_ends_there(long):
    builder, root = long
    starts = [put.physical_offset for put in builder.puts]
    with open_store(root) as store:
        cuts = Cuts(store)
        for file in (root / "consumequeue/Second/0").iterdir():
            os.truncate(file, 20 * (10 if int(file.name) == 0 else 0))
        assert cuts.first_at(starts[145] + 1, starts[400]).physical_offset == starts[146]
        found = cuts.first_at(starts[200] + 1, starts[400])
    assert (found.physical_offset, found.proof) == (starts[201], "framing")


def test_only_so_many_blocks_of_a_queue_are_kept(long, monkeypatch):
    builder, root = long
    starts = [put.physical_offset for put in builder.puts]
    monkeypatch.setattr(cuts_module, "KEPT", 2)
    with open_store(root) as store:
        cuts = Cuts(store)
        for number in range(141, 400, 7):
            assert cuts.first_at(starts[number] - 1, starts[410]).physical_offset == starts[number]
        assert [len(queue._blocks) for queue in cuts._queues if queue._queue.topic == "Second"] == [2]


def test_there_is_no_cut_where_the_log_has_no_file(tmp_path):
    store = copy_store("rollover-5.5.0", tmp_path)
    segments = sorted((store / "commitlog").iterdir())
    segments[3].unlink()
    shutil.rmtree(store / "consumequeue")
    with open_store(store) as opened:
        assert Cuts(opened).first_at(int(segments[3].name), int(segments[4].name)) is None


def test_a_store_whose_log_is_missing_is_not_exported_as_an_empty_one(tmp_path):
    store = copy_store("orders-5.5.0", tmp_path)
    (store / "commitlog").rename(tmp_path / "log")
    with pytest.raises(StoreError, match="expected a CommitLog, found no segment"):
        plan_of(store, 10**9)
