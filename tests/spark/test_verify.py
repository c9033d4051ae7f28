"""Executors that check a store find what one machine finds, in the same order."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import mqtool
from mqtool.errors import MqtoolError
from mqtool.verify import Severity, Verification, verify
from tests.support.damage import CASES, base_config
from tests.support.stores import copy_store, tree_digest
from tests.support.tiers import one_in

HEALTHY = ["orders-5.5.0", "orders-4.9.7", "bcq-5.5.0"]
DAMAGED = sorted(case.id for case in CASES.values() if case.base == "5.5.0-clean" and case.kind != "store-empty")[::9]


def on_spark(spark: Any, store: Path, config: Path | None = None, **wanted: Any) -> Verification:
    from mqtool.spark.verify import verify_on

    with mqtool.open(store, config) as opened:
        return timeless(verify_on(spark, opened, **wanted))


def alone(store: Path, config: Path | None = None) -> Verification:
    with mqtool.open(store, config) as opened:
        return timeless(verify(opened))


def timeless(found: Verification) -> Verification:
    return replace(found, statistics=replace(found.statistics, seconds=0.0))


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_store_is_found_to_be_what_one_machine_finds(spark, name, tmp_path):
    store = copy_store(name, tmp_path)
    before = tree_digest(store)
    found = on_spark(spark, store)
    assert found == alone(store)
    assert found.findings == ()
    assert tree_digest(store) == before


@pytest.mark.long
@pytest.mark.parametrize("case", one_in(3, DAMAGED, "night"))
def test_a_damaged_store_has_the_same_findings_in_the_same_order(spark, case, damaged):
    store, config = damaged(case), base_config(CASES[case].base)
    assert on_spark(spark, store, config) == alone(store, config)


def test_some_of_these_stores_have_findings(damaged):
    found = [finding.severity for case in DAMAGED for finding in alone(damaged(case)).findings]
    assert found.count(Severity.ERROR) > 5


def test_topics_narrow_the_check(spark, tmp_path):
    store = copy_store("orders-5.5.0", tmp_path)
    shutil.rmtree(store / "consumequeue" / "Orders")
    found = on_spark(spark, store, topics=("Payments",))
    assert found.findings == ()
    assert {finding.topic for finding in on_spark(spark, store, topics=("Ord*",)).findings} == {"Orders"}


def test_an_executor_that_does_not_see_the_store_calls_nothing_damaged(spark, tmp_path, monkeypatch):
    from mqtool.spark import verify as module

    store = copy_store("orders-5.5.0", tmp_path)
    planned = module.tasks_of

    def then_hide(seen: Any) -> Any:
        tasks = planned(seen)
        store.rename(store.with_name("elsewhere"))
        return tasks

    monkeypatch.setattr(module, "tasks_of", then_hide)
    with pytest.raises(MqtoolError, match=r"is not on the executor .*; driver and executors must reach stores"):
        on_spark(spark, store)
