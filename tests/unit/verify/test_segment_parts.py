"""A segment read in parts has the facts of one read in one go, wherever it is cut and whatever is wrong with it."""

import time
from concurrent.futures import CancelledError
from threading import Event, Timer

import pytest

import mqtool
from mqtool import native
from mqtool.jobs.progress import Throttle
from mqtool.store.log import cuts
from mqtool.verify import Options, Verification, tasks, verify
from mqtool.verify.segment import check_segment
from mqtool.verify.store import encode
from mqtool.verify.survey import survey
from mqtool.verify.tasks import merge_parts, parts_of
from tests.support.builder import StoreBuilder
from tests.support.damage import CASES, base_config
from tests.support.stores import STORES, copy_store
from tests.support.tables import in_parts
from tests.support.tiers import NIGHT, some
from tests.support.unreadable import unreadable

pytestmark = pytest.mark.usefixtures("either_way")

READABLE = [case for case in CASES.values() if case.kind != "store-empty"]
SOME = READABLE if NIGHT else READABLE[::12]
HEALTHY = some(
    3, [store for store in STORES if store.clean_stop and not store.name.startswith(("equeue", "tfchunk", "exotic"))]
)


@pytest.fixture(params=[1200, 5000])
def cut(request, monkeypatch):
    """Parts of a few records, read by this process as several would."""
    monkeypatch.setattr(tasks, "PART_BYTES", request.param)
    monkeypatch.setattr(tasks, "MAX_PARTS", 1 << 30)
    monkeypatch.setattr(tasks, "_spread", lambda seen, left, _jobs, deadline: tasks._here(seen, left, deadline, None))


def comparable(found: Verification) -> tuple:
    return found.state, found.checks, found.findings, found.losses, found.statistics.records, found.statistics.log_bytes


@pytest.mark.long
@in_parts("case", SOME, size=12)
def test_of_a_damaged_store_the_same_is_reported(case, damaged, cut):
    with mqtool.open(damaged(case.id), base_config(case.base)) as opened:
        assert comparable(verify(opened, Options(jobs=2))) == comparable(verify(opened))


@pytest.mark.long
@in_parts("store", HEALTHY, size=12)
def test_of_a_healthy_store_the_parts_add_up_to_the_segment(store, tmp_path, cut):
    with mqtool.open(copy_store(store.name, tmp_path), store.config) as opened:
        seen = survey(opened)
        for number in range(seen.last_used + 1):
            parts = [check_segment(seen, number, Throttle(None), part) for part in parts_of(seen, number, 2)]
            whole = check_segment(seen, number, Throttle(None))
            together = merge_parts(seen, parts)
            assert encode(together) == encode(whole) or (together is None and min(part.records for part in parts) < 2)


def test_threads_and_processes_tell_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(tasks, "PART_BYTES", 5000)
    monkeypatch.setattr(tasks, "MAX_PARTS", 1 << 30)
    pools = []
    for name in ("thread_pool", "worker_pool"):
        real = getattr(tasks, name)
        monkeypatch.setattr(tasks, name, lambda count, name=name, real=real: pools.append(name) or real(count))
    with mqtool.open(numbered(tmp_path)) as opened:
        assert comparable(verify(opened, Options(jobs=2))) == comparable(verify(opened))
    assert set(pools) == {"thread_pool" if native.in_use() else "worker_pool"}


def test_a_task_whose_result_nobody_wants_ends_though_it_is_throttled(tmp_path):
    is_over = Event()
    with mqtool.open(numbered(tmp_path)) as opened:
        seen = survey(opened, throttle=100)
        timer = Timer(0.1, is_over.set)
        timer.start()
        begun = time.monotonic()
        with pytest.raises(CancelledError):
            tasks._run_until(is_over, seen, tasks.tasks_of(seen)[0])
        timer.join()
    assert time.monotonic() - begun < 60  # of the hour that the throttle asks for


def numbered(tmp_path, without_crc=1000):
    """A store of 500 messages; of every so many, one has no CRC."""
    builder = StoreBuilder(segment_size=1 << 18)
    for i in range(500):
        changes = {} if (i + 1) % without_crc else {"body_crc": 0}
        builder.put(b"body number %d" % i, queue_id=i % 3, unique_key=f"{i:032X}", step=500, **changes)
    return builder.write(tmp_path / "store")


@pytest.mark.slow
def test_a_segment_is_cut_at_records(tmp_path, cut):
    with mqtool.open(numbered(tmp_path)) as opened:
        seen = survey(opened)
        starts = [start for start, _ in parts_of(seen, 0, 2)]
        assert len(starts) > 2
        assert all(opened.commit_log.record(start).physical_offset == start for start in starts)


@pytest.mark.slow
def test_a_cut_at_something_else_than_a_record_changes_nothing(tmp_path, cut, monkeypatch):
    with mqtool.open(numbered(tmp_path)) as opened:
        alone = comparable(verify(opened))
        monkeypatch.setattr(cuts, "record_in", lambda _data, _base: 17)
        seen = survey(opened)
        parts = [check_segment(seen, 0, Throttle(None), part) for part in parts_of(seen, 0, 2)]
        assert len(parts) > 1
        assert merge_parts(seen, parts) is None
        assert comparable(verify(opened, Options(jobs=2))) == alone


@pytest.mark.slow
def test_a_time_that_is_odd_at_a_cut_is_found(tmp_path, cut):
    root = numbered(tmp_path)
    with mqtool.open(root) as opened:
        starts = [start for start, _ in parts_of(survey(opened), 0, 2)]
    segment = min((root / "commitlog").iterdir())
    data = bytearray(segment.read_bytes())
    data[starts[1] + 56 : starts[1] + 64] = (1 << 40).to_bytes(8, "big")  # storeTimestamp, far in the past
    segment.write_bytes(data)
    with mqtool.open(root) as opened:
        found = verify(opened, Options(jobs=2))
        assert comparable(found) == comparable(verify(opened))
    assert [one.physical_offset for one in found.findings if one.code == "log-bad-time"] == [starts[1]]


def test_a_segment_that_cannot_be_read_is_one_part(tmp_path, cut, monkeypatch):
    root = numbered(tmp_path)
    with mqtool.open(root) as opened:
        seen = survey(opened)
        assert len(parts_of(seen, 0, 2)) > 2
        with unreadable(monkeypatch, seen.segments[0].path):
            assert parts_of(seen, 0, 2) == [(0, None)]


def test_parts_with_too_much_to_report_are_read_as_a_whole(tmp_path, cut, monkeypatch):
    with mqtool.open(numbered(tmp_path)) as opened:
        seen = survey(opened)
        parts = [check_segment(seen, 0, Throttle(None), part) for part in parts_of(seen, 0, 2)]
        assert merge_parts(seen, parts) is not None
        monkeypatch.setattr(tasks, "MAX_JUMPS", 0)
        assert merge_parts(seen, parts) is None


def test_records_without_a_crc_are_counted_over_all_parts(tmp_path, cut):
    with mqtool.open(numbered(tmp_path, without_crc=50)) as opened:
        seen = survey(opened)
        parts = [check_segment(seen, 0, Throttle(None), part) for part in parts_of(seen, 0, 2)]
        together = merge_parts(seen, parts)
        assert len(parts) > 2
        assert together.findings == check_segment(seen, 0, Throttle(None)).findings
    (one,) = [one for one in together.findings if one.code == "log-crc-zero"]
    assert " record(s) with a body and CRC 0" in one.evidence
    assert int(one.evidence.split()[0]) > 1
