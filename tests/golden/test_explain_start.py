"""Predicted starts agree with what the real stores 4.9.7 and 5.5.0 did, on cases thought of later and on healthy stores."""

import hashlib
from pathlib import Path

import pytest

from mqtool.recovery import Plan, predict
from tests.golden.agreement import STARTS, differences, more_answers, more_cases, predicted
from tests.support.stores import StoreFixture, answers, copy_store, fixture, store_fixture, summary
from tests.support.tables import in_parts

HEALTHY = [
    "crash-4.9.7",
    "crash-5.5.0",
    "hosts-5.5.0",
    "ipv6",
    "orders-4.9.7",
    "orders-5.5.0",
    "oversize-5.5.0",
    "propcrc-5.5.0",
    "rollover-4.9.7",
    "rollover-5.5.0",
    "txbits-4.9.7",
    "v2-long-topic",
]


FURTHER = [
    pytest.param(name, *STARTS[file], id=f"{name}-{file}") for file in STARTS for name in more_answers(*STARTS[file])
]


@pytest.mark.long
@in_parts("name, opened_by, written_by", FURTHER)
def test_a_predicted_start_is_right_for_cases_thought_of_later(name, opened_by, written_by):
    case, keys = more_cases()[name]
    answer = more_answers(opened_by, written_by)[name]
    assert differences(predicted(case, opened_by, keys), answer) == {}


def test_there_are_many_further_cases():
    assert len(FURTHER) > 250


@pytest.fixture(params=HEALTHY)
def store(request, tmp_path) -> tuple[StoreFixture, Path]:
    return store_fixture(request.param), copy_store(request.param, tmp_path)


def release_of(one: StoreFixture) -> str:
    return summary(one.name)["version"].removeprefix("V").replace("_", ".")


def content_after(plan: Plan, path: Path, size: int) -> bytes:
    """What a queue file holds once the plan has been carried out."""
    new = any(file.path == path and file.is_new for queue in plan.queues.values() for file in queue.files)
    data = bytearray(bytes(size) if new else path.read_bytes())
    for queue in plan.queues.values():
        for at, position, units in queue.appended:
            if at == path:
                data[position : position + len(units)] = units
    return bytes(data)


def test_a_healthy_store_starts_without_a_loss(store):
    one, root = store
    found = predict(root, release_of(one), one.config)
    assert found.runs
    assert found.lost == {}
    assert found.after_start == (summary(one.name)["minPhyOffset"], summary(one.name)["maxPhyOffset"])


def test_the_plan_writes_the_queue_files_that_the_real_store_wrote(store):
    one, root = store
    plan = predict(root, release_of(one), one.config).plan
    assert plan is not None
    stopped = {
        name: entry
        for name, entry in summary(one.name)["stopped"]["files"].items()
        if name.split("/")[0] in ("consumequeue", "batchconsumequeue")
    }
    files = {file.path.relative_to(root).as_posix() for queue in plan.queues.values() for file in queue.files}
    assert files == set(stopped)
    digests = {
        name: hashlib.sha256(content_after(plan, root / name, size)).hexdigest() for name, (size, _) in stopped.items()
    }
    assert digests == {name: digest for name, (_, digest) in stopped.items()}


def test_the_plan_keeps_the_segments_that_the_real_store_kept(store):
    one, root = store
    plan = predict(root, release_of(one), one.config).plan
    assert plan is not None
    kept = {name for name in summary(one.name)["stopped"]["files"] if name.startswith("commitlog/")}
    assert {file.path.relative_to(root).as_posix() for file in plan.segments} == kept


def test_a_store_of_batches_keeps_its_queue_offsets(tmp_path):
    found = predict(copy_store("bcq-5.5.0", tmp_path), "5.5", fixture("bcq-5.5.0/broker.conf"))
    served = {
        f"{line['topic']}/{line['queueId']}": (line["minOffset"], line["maxOffset"])
        for line in answers("bcq-5.5.0", "messages")
        if line["kind"] == "queue"
    }
    assert found.queues is not None
    assert {
        name: (queue.min_offset, queue.max_offset) for name, queue in found.queues.items() if name in served
    } == served
