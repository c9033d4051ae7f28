"""Comparisons of log, queues and index where one side is empty, cut, ahead or contradicts itself."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from msgspec import structs

import mqtool
from mqtool.errors import StoreError, UnreadableError
from mqtool.formats.commit_log import SysFlag
from mqtool.jobs.progress import Throttle
from mqtool.records.dispatch import IndexKeys, QueueUnits
from mqtool.records.frames import Frames
from mqtool.store.files import MappedFile
from mqtool.verify import commit_log_files, config, index_file, log_findings, queue_findings, record_rules, verify
from mqtool.verify.checksums import Buckets, groups_of, read_records
from mqtool.verify.classifier import Classifier
from mqtool.verify.facts import Facts
from mqtool.verify.finding_collector import FindingCollector
from mqtool.verify.index_findings import IndexDetail, IndexDifferences
from mqtool.verify.losses import LossAccount
from mqtool.verify.queue_findings import Dispatched, QueueReport
from mqtool.verify.record_rules import Jump, QueueSpan, join
from mqtool.verify.rocksdb_queue import RocksCheck
from mqtool.verify.segment import check_segment
from mqtool.verify.services import TimerCheck
from mqtool.verify.survey import survey
from mqtool.verify.unit_detail import WrongUnits
from tests.support.builder import StoreBuilder

SHAPE = {"maxHashSlotNum": "50", "maxIndexNum": "200"}


@pytest.fixture
def built(tmp_path):
    builder = StoreBuilder()
    for number in range(40):
        builder.put(b"body %d" % number, keys=f"k{number}", queue_id=number % 2)
    return builder, builder.write(tmp_path / "store")


def codes(root: Path) -> list[str]:
    with mqtool.open(root, SHAPE) as store:
        return [one.code for one in verify(store).findings]


def damage(root: Path, physical: int) -> None:
    with (root / "commitlog" / f"{0:020}").open("r+b") as file:
        file.seek(physical + 4)
        file.write(bytes(4))


# --- the log -----------------------------------------------------------------------------------------------------


def test_records_and_damage_after_the_end_of_a_live_log_are_not_looked_at(built):
    builder, root = built
    damage(root, builder.puts[30].physical_offset)
    with mqtool.open(root) as store:
        seen = survey(store)
        whole = check_segment(seen, 0, Throttle(None))
        live = structs.replace(seen, live=True, end=builder.puts[20].physical_offset)
        found = check_segment(live, 0, Throttle(None))
        one = structs.replace(seen, live=True, end=builder.puts[31].physical_offset)
        assert (whole.records, len(whole.damages)) == (39, 1)
        assert (found.records, found.damages) == (20, [])
        assert (check_segment(one, 0, Throttle(None)).records, whole.damages) == (
            30,
            check_segment(one, 0, Throttle(None)).damages,
        )


def test_records_of_a_range_are_read_without_those_around_it(built):
    builder, root = built
    damage(root, builder.puts[10].physical_offset)
    damage(root, builder.puts[20].physical_offset)
    starts = [put.physical_offset for put in builder.puts]
    with mqtool.open(root) as store:
        seen = survey(store)
        for span, expected in (((0, starts[5]), range(5)), ((starts[12], starts[15]), range(12, 15)), ((0, 1), [0])):
            found = read_records(seen, 0, span, 0)
            assert found.offsets.tolist() == [starts[number] for number in expected]


def test_no_difference_is_no_group_of_buckets():
    buckets = Buckets((MappedFile(Path("a"), 0, 1 << 20),))
    assert list(groups_of(np.empty(0, np.int64), buckets)) == []


def test_a_queue_without_messages_in_a_part_does_not_count():
    one, two = np.array([7]), np.array([70])
    full = QueueSpan([("T", 0)], one, two, one + 1, two, np.array([1]))
    none = QueueSpan([("T", 0), ("U", 0)], *(np.array([-1, -1]) for _ in range(4)), np.array([0, 0]))
    joined = join([none, full, none])
    assert (joined.queues, joined.first.tolist(), joined.following.tolist(), joined.jumps) == ([("T", 0)], [7], [8], [])


def test_a_segment_that_cannot_be_read_says_why_instead_of_what_it_states(tmp_path):
    assert "No such file" in commit_log_files._stated(MappedFile(tmp_path / "absent", 100, 200))
    (tmp_path / "short").write_bytes(bytes(20))
    assert commit_log_files._stated(MappedFile(tmp_path / "short", 100, 200)) == "nothing"


@pytest.mark.parametrize(
    ("head", "flags", "begins"),
    [
        (b"", SysFlag.COMPRESSED, False),
        (b"x", SysFlag.COMPRESSED, False),
        (b"\x78\x9c", SysFlag.COMPRESSED, True),
        (b"\x78\x9d", SysFlag.COMPRESSED, False),
        (b"\x78\x9c", SysFlag.COMPRESSED | 4 << 8, False),
    ],
    ids=["empty", "one byte", "zlib", "not zlib", "a compression that is none"],
)
def test_a_body_is_compressed_if_it_begins_so(head, flags, begins):
    assert record_rules._begins_compressed(head, flags) is begins


def test_bytes_that_are_no_record_are_of_no_queue(built):
    data = built[0].puts[0].data
    frames = Frames(memoryview(data), 0, np.zeros(1, np.int64), np.array([len(data)]))
    assert record_rules._queue_of(frames, 0) == ("Topic", 0)
    bad = Frames(memoryview(bytes(len(data))), 0, np.zeros(1, np.int64), np.array([len(data)]))
    assert record_rules._queue_of(bad, 0) is None


def wrong_units(start: int, queue_offset: int, code: str) -> WrongUnits:
    return WrongUnits(code, ("Topic", 0), False, 0, 0, queue_offset, queue_offset, start, start + 1, "")


def test_only_a_record_with_the_queue_offset_of_its_unit_has_wrong_flags(built):
    builder, root = built
    code = "queue-transaction-unit"
    right = wrong_units(builder.puts[4].physical_offset, 2, code)
    other = wrong_units(builder.puts[4].physical_offset, 3, code)
    nothing = wrong_units(builder.puts[4].physical_offset + 1, 2, code)
    with mqtool.open(root) as store:
        log_findings.refine(store.commit_log, [right, other, nothing])
    assert [one.code for one in (right, other, nothing)] == ["log-wrong-flags", code, code]


@pytest.mark.parametrize(("code", "is_wrong"), [("log-wrong-queue", False), ("queue-wrong-tags", True)])
def test_a_record_that_names_another_queue_has_no_wrong_queue_offset_too(code, is_wrong):
    jumps = [Jump("Topic", 0, 5, 90, 100, 200), Jump("Topic", 0, 91, 6, 200, 300)]
    found = log_findings.explain_jumps(jumps, LossAccount([]), [wrong_units(200, 5, code)])
    assert (found.jumps, found.offsets) == ([], {200: jumps[0]} if is_wrong else {})


def test_a_directory_below_one_that_cannot_be_listed_is_not_reported_itself(tmp_path):
    survey_ = SimpleNamespace(
        unlisted=dict.fromkeys((tmp_path / "index", tmp_path / "index/below", tmp_path / "commitlog"), "why"),
        root=tmp_path,
    )
    layout = SimpleNamespace(is_of_log=lambda path: path.name == "commitlog")
    stub = SimpleNamespace(_survey=survey_, _store=SimpleNamespace(layout=layout))
    assert [(path.name, str(area)) for path, area in Classifier._unlisted_areas(stub)] == [
        ("commitlog", "commitlog"),
        ("index", "index"),
    ]


# --- queues ------------------------------------------------------------------------------------------------------


def test_a_record_that_cannot_be_read_is_not_certainly_dispatched(built):
    builder, root = built
    with mqtool.open(root) as store:
        dispatched = Dispatched(store.commit_log, [], store.checkpoint)
        assert dispatched.has(builder.puts[5].physical_offset)
        assert not dispatched.has(builder.puts[5].physical_offset + 1)


@pytest.mark.parametrize("harm", ["deleted", "there"])
def test_a_unit_in_a_file_that_is_deleted_meanwhile_is_not_called_missing(harm, built, monkeypatch):
    root = built[1]
    with mqtool.open(root) as store:
        queue = survey(store).queues[0]
    report = SimpleNamespace(dispatched=SimpleNamespace(has=lambda _: True))
    assert not QueueReport._is_missing_now(report, queue, 3, 0)
    assert QueueReport._is_missing_now(report, queue, 30, 0)  # zeros
    if harm == "deleted":

        def gone(path):
            raise StoreError("cannot be opened: No such file or directory", path)

        monkeypatch.setattr(queue_findings, "ReadFile", gone)
        assert not QueueReport._is_missing_now(report, queue, 30, 0)


def test_a_queue_that_a_running_broker_has_made_meanwhile_is_not_missing(built):
    root = built[1]
    with mqtool.open(root) as store:
        seen = structs.replace(survey(store), live=True, queues=())
        span = QueueSpan([("Topic", 0)], *(np.array([0]) for _ in range(4)), np.array([20]))
        collector = FindingCollector(root, seen.config)
        unknown = queue_findings.absent_queues(
            seen,
            span,
            {},
            {"Topic": None},
            readable=True,
            recovery=None,
            dispatched=SimpleNamespace(has=lambda _: True),
            collector=collector,
        )
    assert (unknown, collector.findings()) == ("", [])


def test_a_level_without_a_queue_has_no_message_that_was_due(built):
    with mqtool.open(built[1]) as store:
        assert config._due_before(store, 3, 1 << 60) == 0
        collector = FindingCollector(built[1], {})
        config._delivered_again(built[1], store, 4, 0, collector)
        assert collector.findings() == []


def test_records_without_units_and_those_after_the_end_of_a_live_log_are_not_compared_with_rocksdb():
    none = structs.replace(QueueUnits(*[np.empty(0, np.int64)] * len(QueueUnits.__struct_fields__)))
    RocksCheck._compare(None, None, none, [])
    added = []
    check = SimpleNamespace(
        _survey=SimpleNamespace(live=True, end=150, clean_stop=True),
        _collector=SimpleNamespace(add=lambda *a, **_: added.append(a[0])),
        _path=Path("q"),
    )
    expected = SimpleNamespace(physical_offset=100, size=51)
    RocksCheck._unit(check, ("T", 0), 3, expected, None)
    assert added == []
    check._survey.end = 151
    RocksCheck._unit(check, ("T", 0), 3, expected, None)
    assert added == ["rocksdb-missing-unit"]


def test_a_parked_record_that_reaches_over_the_end_of_its_segment_is_never_due(built):
    builder, root = built
    with mqtool.open(root) as store:
        seen = survey(store)
    check = SimpleNamespace(_survey=seen, _bytes_of_log=lambda at, size: TimerCheck._bytes_of_log(check, at, size))
    assert TimerCheck._due(check, builder.segment_size - 50, 100) is None
    assert TimerCheck._due(check, 1 << 40, 100) is None
    assert TimerCheck._due(check, builder.puts[0].physical_offset, builder.puts[0].size) is None  # not parked


# --- index -------------------------------------------------------------------------------------------------------


def test_without_index_files_nothing_is_compared(built):
    with mqtool.open(built[1]) as store:
        assert Facts(survey(store), ()).compare_index([]) == IndexDifferences()


def test_an_index_file_that_is_cut_while_it_is_read_ends_no_check(built, monkeypatch):
    assert codes(built[1]) == []
    monkeypatch.setattr(index_file._Scan, "_read", lambda *_: memoryview(b""))
    assert any(code.startswith("index-") for code in codes(built[1]))


def test_missing_keys_are_one_run_over_records_without_keys(built):
    def group(start, rows, absent):
        records = SimpleNamespace(start=start, end=start + 100, offsets=np.array([start]), sizes=np.array([50]))
        keys = IndexKeys(*[np.zeros(rows, np.int64)] * len(IndexKeys.__struct_fields__))
        return records, keys, np.full(rows, absent)

    with mqtool.open(built[1]) as store:
        detail = IndexDetail(survey(store), [], [])
    for start, rows in ((0, 2), (100, 0), (200, 1)):
        detail._missing(*group(start, rows, absent=True))
    assert [(run.start, run.end, run.records, run.keys) for run in detail.differences.missing] == [(0, 250, 2, 3)]
    detail._missing(*group(300, 1, absent=False))
    detail._missing(*group(400, 0, absent=False))
    detail._missing(*group(500, 1, absent=True))
    assert [run.start for run in detail.differences.missing] == [0, 500]


def test_keys_of_a_record_that_is_reported_itself_are_not_reported_too(tmp_path):
    builder = StoreBuilder()
    for number in range(10):
        changes = {"properties": b"KEYS\1odd\2", "born_timestamp": -1} if number == 5 else {"keys": f"k{number}"}
        builder.put(b"body", **changes)
    assert codes(builder.write(tmp_path / "store")) == ["log-bad-field"]


def test_a_segment_that_can_no_longer_be_read_when_tags_are_looked_at_leaves_the_index_unknown(built, monkeypatch):
    """Whether an older release did not index tags is found by reading the records once more."""
    root = built[1]
    with mqtool.open(root, SHAPE) as store:
        seen = survey(store)
        facts = Facts(seen, ())
        segment = SimpleNamespace(number=0, failure="")
        facts.__dict__.update(index=[SimpleNamespace(failure="")], segments=[segment])

        def fails(*_):
            raise UnreadableError("cannot be opened: Input/output error", root)

        monkeypatch.setattr(Facts, "_differing", lambda *_: iter([(0, 0, None)]))
        monkeypatch.setattr(IndexDetail, "compare", fails)
        assert facts.compare_index([]) == IndexDifferences()
    assert "Input/output error" in facts.index_failure
