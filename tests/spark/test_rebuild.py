"""Executors rebuild the files of one machine, or nothing."""

from pathlib import Path
from typing import Any

import pytest

import mqtool
from mqtool.errors import MqtoolError
from mqtool.rebuild.job import rebuild
from mqtool.rebuild.metadata import Surveyor
from mqtool.rebuild.settings import settings_of
from mqtool.store.queues.filter_bit_maps import bit_maps_of
from tests.support.engine import tree
from tests.support.stores import copy_store
from tests.support.task_rebuild import rebuild_by_tasks
from tests.support.tiers import night


def both(spark: Any, store: Path, target: Path) -> list[Any]:
    """Result, survey and files of each way, executors first."""
    from mqtool.spark.rebuild import runner

    found = []
    with mqtool.open(store) as opened:
        settings = settings_of(opened)
        bit_maps = bit_maps_of(opened) if settings.has_extension else None
        for way, more in ((rebuild_by_tasks, {"run": runner(spark)}), (rebuild, {})):
            out, surveyor = target / way.__name__, Surveyor()
            result = way(opened, out, settings, bit_maps=bit_maps, surveyor=surveyor, **more)
            found.append((result, surveyor.finish(), tree(out)))
    return found


@pytest.mark.parametrize(
    "name", ["orders-5.5.0", "cqext-5.5.0", "bcq-5.5.0", "dledger-mixed-5.5.0", night("crash-4.9.7")]
)
def test_executors_write_the_files_of_one_machine(spark, tmp_path, name):
    """Delayed messages, LMQs and several index files; filters; batch queues; a log of DLedger; a crash."""
    on_spark, alone = both(spark, copy_store(name, tmp_path), tmp_path)
    assert on_spark == alone
    assert alone[0].records > 10


def test_an_executor_that_does_not_see_the_store_ends_the_rebuild_and_nothing_is_left(spark, tmp_path):
    from mqtool.spark.rebuild import runner

    def hidden(job: Any, tasks: Any, what: str, on_progress: Any) -> Any:
        store.rename(store.with_name("elsewhere"))
        return runner(spark)(job, tasks, what, on_progress)

    store = copy_store("bcq-5.5.0", tmp_path)
    with (
        mqtool.open(store) as opened,
        pytest.raises(
            MqtoolError, match=r"commitlog/0{20}: is not on the executor .*; driver and executors must reach"
        ),
    ):
        rebuild_by_tasks(opened, tmp_path / "new", settings_of(opened), run=hidden)
    assert [path.name for path in tmp_path.iterdir()] == ["elsewhere"]
