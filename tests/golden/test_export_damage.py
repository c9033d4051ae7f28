"""Exports of damaged stores hold every whole record once; all else is in the damage table or behind the end."""

from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import mqtool
from mqtool.errors import StoreError
from mqtool.export.limits import Limits
from mqtool.export.plan import Partition, partitions, plan_store
from mqtool.export.schema import ReadRequest
from mqtool.export.sources import resolve
from mqtool.export.task import read_partition
from mqtool.records.damage import Damage, DamageKind
from tests.support import lake
from tests.support.damage import CASES, base_messages
from tests.support.stores import copy_store, fixture
from tests.support.tables import in_parts
from tests.support.tiers import one_in, some

ALL = ReadRequest(every_class=True)
LOG_CASES = sorted(
    case.id
    for case in CASES.values()
    if case.mode == "store"
    and not case.id.startswith("store-empty")
    and any(edit["file"].startswith("commitlog") or edit.get("to", "").startswith("commitlog") for edit in case.edits)
)


@cache
def base_records(base: str) -> dict[int, bytes]:
    """Physical offset and bytes of every record of an undamaged base."""
    with mqtool.open(fixture(f"damage/bases/{base}/store")) as store:
        return {line["phy"]: store.commit_log.read(line["phy"], line["size"]) for line in base_messages(base)}


@cache
def base_rows(base: str) -> dict[int, tuple[object, ...]]:
    """Rows of an undamaged base by physical offset."""
    with mqtool.open(fixture(f"damage/bases/{base}/store")) as store:
        return {
            message.physical_offset: (
                message.topic,
                message.queue_id,
                message.queue_offset,
                message.body,
                tuple(sorted(message.properties.items())),
            )
            for message in store.messages()
            if isinstance(message, mqtool.store.Message)
        }


@pytest.mark.long
@in_parts("case", some(3, LOG_CASES), size=8)
def test_whole_records_are_exported_once_and_nothing_is_missing_silently(
    case: str, damaged: Callable[[str], Path], tmp_path: Path
) -> None:
    base = case.partition("@")[2]
    store = damaged(case)
    with mqtool.open(store) as opened:
        is_missing = opened.is_log_missing
    if is_missing:
        with pytest.raises(StoreError, match="expected a CommitLog, found no segment"):
            lake.run_export(store, tmp_path / "lake", read=ALL, split_bytes=8_000)
        return
    result = lake.run_export(store, tmp_path / "lake", read=ALL, split_bytes=8_000)
    rows = lake.rows(tmp_path / "lake")
    found = Counter(row["physical_offset"] for row in rows)
    with mqtool.open(store) as opened:
        intact = {at for at, data in base_records(base).items() if opened.commit_log.read(at, len(data)) == data}
    assert max(found.values(), default=1) == 1
    assert intact <= set(found) <= set(base_records(base))
    for row in rows:
        if row["physical_offset"] in intact:
            said = (row["topic"], row["queue_id"], row["queue_offset"], row["body"], tuple(sorted(row["properties"])))
            assert said == base_rows(base)[row["physical_offset"]]
    reported = [(row["start"], row["end"]) for row in lake.rows(tmp_path / "lake", "damage")]
    (plan,) = result.stores
    missing = [at for at in base_records(base) if at not in found and plan.start <= at < plan.end]
    silent = [at for at in missing if not any(start <= at < end for start, end in reported)]
    assert silent == []


@pytest.mark.parametrize("case", one_in(8, LOG_CASES[::5], "night"))
@pytest.mark.parametrize("limits", [Limits(max_messages=37), Limits(max_bytes=20_000)], ids=["messages", "bytes"])
def test_runs_with_a_limit_find_the_rows_and_the_damage_of_one_without(
    case: str, limits: Limits, damaged: Callable[[str], Path], tmp_path: Path
) -> None:
    store = damaged(case)
    lake.run_export(store, tmp_path / "whole", read=ALL)
    wanted: dict[str, Any] = {"read": ALL, "state": str(tmp_path / "state"), "limits": limits}
    while lake.run_export(store, tmp_path / "lake", **wanted).left:
        pass
    for table, columns in (("messages", ("physical_offset", "topic")), ("damage", ("start", "end", "kind"))):
        found = [
            sorted(tuple(row[name] for name in columns) for row in lake.rows(tmp_path / target, table))
            for target in ("whole", "lake")
        ]
        assert found[0] == found[1]


@pytest.mark.parametrize(
    ("case", "at", "split"), [("blank-early@4.9.7-clean", 122148, 3000), ("blank-early@5.5.0-clean", 122288, 8000)]
)
def test_a_blank_frame_before_the_end_of_a_segment_is_damage_wherever_tasks_end(
    case: str, at: int, split: int, damaged: Callable[[str], Path], tmp_path: Path
) -> None:
    store = damaged(case)
    found = []
    for split_bytes in (None, split):
        lake.run_export(store, tmp_path / str(split_bytes), read=ALL, split_bytes=split_bytes)
        found.append(lake.rows(tmp_path / str(split_bytes), "damage"))
    assert [(row["start"], row["kind"]) for row in found[0]] == [(at, "bad-blank")]
    assert found[0] == found[1]


def test_there_are_many_cases() -> None:
    assert len(LOG_CASES) > 100


def planned(store: Path) -> Partition:
    (source,) = resolve([str(store)])
    with source.open() as opened:
        (one,) = partitions([plan_store(opened, source, ALL.selection)])
    return one


def test_a_segment_that_was_deleted_since_planning_is_damage(tmp_path: Path) -> None:
    store = copy_store("rollover-5.5.0", tmp_path)
    partition = planned(store)
    first = min((store / "commitlog").iterdir())
    first.unlink()
    damage = [item for item in read_partition(partition, ALL) if isinstance(item, Damage)]
    (span,) = [span for span in partition.spans if Path(span.path) == first]
    assert [(one.start, one.end, one.kind) for one in damage] == [(span.start, span.end, DamageKind.MISSING)]


def test_a_store_that_is_not_mounted_is_an_error_and_no_damage(tmp_path: Path) -> None:
    store = copy_store("rollover-5.5.0", tmp_path)
    partition = planned(store)
    store.rename(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="is the store mounted there"):
        list(read_partition(partition, ALL))
