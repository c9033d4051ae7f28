"""A run with a limit exports a prefix of what is new; runs together export what one without a limit does."""

import shutil

import pytest

from mqtool.errors import UsageError
from mqtool.export.commit import load_state
from mqtool.export.limits import Limits
from mqtool.export.schema import ReadRequest
from mqtool.store.log.selection import Selection
from tests.support import lake
from tests.support.builder import FIRST_TIME, StoreBuilder
from tests.support.stores import copy_store

NAME = "rollover-5.5.0"
ALL = ReadRequest(every_class=True)
EXPECTED = lake.expected_rows(NAME, every_class=True, broker="b")


class Limited:
    """An incremental export of stores in one directory."""

    def __init__(self, directory):
        self.target, self.state = directory / "lake", str(directory / "lake.state")

    def run(self, stores, limits, read=ALL, **wanted):
        return lake.run_export(stores, self.target, read=read, state=self.state, limits=limits, **wanted)

    def runs(self, stores, limits, **wanted):
        """Yields results of runs until nothing is left."""
        while True:
            result = self.run(stores, limits, **wanted)
            yield result
            if not result.left:
                return

    def mark(self, broker="b"):
        return load_state(self.state).marks[broker].offset


def messages(result):
    return result.manifest.totals["rows"]["messages"]


@pytest.fixture
def limited(tmp_path):
    return Limited(tmp_path)


@pytest.fixture
def store(tmp_path):
    return copy_store(NAME, tmp_path)


@pytest.mark.parametrize("size", [1, 5_000, 100_001])
def test_runs_take_as_many_bytes_as_they_may_and_at_least_a_record(limited, store, size):
    ends, starts = lake.record_ends(NAME), [row["physical_offset"] for row in EXPECTED]
    done = 0
    for result in limited.runs(f"b={store}", Limits(max_bytes=size)):
        (plan,) = result.stores
        taken = [at for at, start in enumerate(starts) if plan.start <= start < plan.end]
        assert taken[0] == done
        assert len(taken) == 1 or ends[taken[-1]] - plan.start <= size
        if result.left:
            assert plan.end == limited.mark() == starts[taken[-1] + 1]
            assert ends[taken[-1] + 1] - plan.start > size
        done += len(taken)
    assert lake.in_log_order(lake.rows(limited.target)) == EXPECTED


def test_runs_take_as_many_messages_as_they_may_of_those_that_are_selected(limited, store):
    topic = max({row["topic"] for row in EXPECTED}, key=[row["topic"] for row in EXPECTED].count)
    read = ReadRequest(Selection.of(topics=topic))
    expected = [row for row in lake.expected_rows(NAME, every_class=False, broker="b") if row["topic"] == topic]
    found = [messages(result) for result in limited.runs(f"b={store}", Limits(max_messages=7), read=read)]
    assert set(found[:-1]) == {7}
    assert sum(found) == len(expected) > 21
    assert lake.in_log_order(lake.rows(limited.target)) == expected


def test_a_run_ends_at_the_first_record_of_the_time_also_where_the_clock_was_set_back(limited, tmp_path):
    builder = StoreBuilder(segment_size=4096)
    for second in (0, 1, 2, 9, 3, 4, 9, 5):
        builder.put(b"x" * 900, store_timestamp=FIRST_TIME + second)
    path = builder.write(tmp_path / "store")
    for until, records, is_late in ((FIRST_TIME + 5, 3, True), (FIRST_TIME + 5, 3, True), (FIRST_TIME + 10, 8, False)):
        result = limited.run(f"b={path}", Limits(until=until))
        assert (len(lake.rows(limited.target)), result.is_late) == (records, is_late or not result.left)
        assert bool(result.left) == is_late
        assert limited.mark() == (builder.puts[records].physical_offset if is_late else builder.end)
    assert result.manifest.state.sequence == 2


def test_a_watermark_is_never_behind_a_missing_segment(limited, store):
    segments = sorted((store / "commitlog").iterdir())
    segments[2].unlink()
    gap = int(segments[2].name), int(segments[3].name)
    (before,) = limited.run(f"b={store}", Limits(max_bytes=gap[0])).stores
    assert before.end == limited.mark() == gap[0]
    assert lake.rows(limited.target, "damage") == []
    assert len(list(limited.runs(f"b={store}", Limits(max_bytes=1)))) > 20
    assert [(row["start"], row["end"]) for row in lake.rows(limited.target, "damage")] == [gap]
    expected = [row for row in EXPECTED if not gap[0] <= row["physical_offset"] < gap[1]]
    assert lake.in_log_order(lake.rows(limited.target)) == expected


def test_stores_share_a_limit_and_leave_to_others_what_they_do_not_need(limited, tmp_path):
    stores = []
    for name, count in (("a", 40), ("b", 3), ("c", 25)):
        builder = StoreBuilder()
        for _ in range(count):
            builder.put()
        stores.append(f"{name}={builder.write(tmp_path / name)}")
    size = builder.puts[0].size
    for limits in (Limits(max_messages=21), Limits(max_bytes=21 * size)):
        limited.run(stores, limits)
        counts = [row["broker"] for row in lake.rows(limited.target)]
        assert {name: counts.count(name) for name in "abc"} == {"a": 9, "b": 3, "c": 9}
        shutil.rmtree(limited.target)
        (tmp_path / "lake.state").unlink()
    runs = list(limited.runs(stores, Limits(max_messages=1)))
    assert messages(runs[0]) == 3  # one of each
    assert len(runs) == 40
    assert len(lake.rows(limited.target)) == 68


def test_a_limit_of_bytes_counts_entries_of_dledger(limited, tmp_path):
    path = copy_store("dledger-5.5.0", tmp_path)
    lake.run_export(f"b={path}", tmp_path / "whole", read=ALL)
    runs = list(limited.runs(f"b={path}", Limits(max_bytes=10_000)))
    assert len(runs) > 3
    assert all(result.stores[0].size <= 10_000 for result in runs)
    assert lake.in_log_order(lake.rows(limited.target)) == lake.in_log_order(lake.rows(tmp_path / "whole"))


def test_what_a_rewind_undoes_is_exported_again_in_runs_with_a_limit(limited, store):
    lake.grow(NAME, store, lake.record_ends(NAME)[79])
    limited.run(f"b={store}", Limits())
    lake.grow(NAME, store, lake.record_ends(NAME)[59])
    runs = [limited.run(f"b={store}", Limits(max_messages=25), rewind=True)]
    assert len(lake.rows(limited.target)) == 25
    runs += limited.runs(f"b={store}", Limits(max_messages=25), rewind=True)
    assert [messages(result) for result in runs] == [25, 25, 10]
    assert lake.in_log_order(lake.rows(limited.target)) == EXPECTED[:60]


@pytest.mark.parametrize("limits", [{"max_bytes": 0}, {"max_messages": 0}, {"max_messages": -1}])
def test_a_limit_of_nothing_is_refused(limits):
    with pytest.raises(UsageError, match="at least one byte or message"):
        Limits(**limits)


def test_a_limit_needs_a_state(store, tmp_path):
    with pytest.raises(UsageError, match="from which the next one goes on; add --state"):
        lake.run_export(store, tmp_path / "lake", limits=Limits(max_bytes=1))
