"""Queue files under the name of another queue: their units are wrong, not the records that they point to."""

import pytest

from mqtool.recovery import predict
from mqtool.repair import apply, make_plan, undo
from mqtool.repair.from_findings import changes_of
from mqtool.store.store import open_store
from mqtool.verify import State, verify
from tests.support.damage import damage_case
from tests.support.stores import tree_digest


def rename_topic(root):
    (root / "consumequeue/Orders").rename(root / "consumequeue/Orders.bak")


def rename_queue(root):
    (root / "consumequeue/Orders/0").rename(root / "consumequeue/Orders/77")


def exchange_files(root):
    first, second = (root / f"consumequeue/{name}/1/00000000000000000000" for name in ("Orders", "Payments"))
    data = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(data)


@pytest.fixture(params=[rename_topic, rename_queue, exchange_files])
def moved(request, tmp_path):
    root = damage_case("none@5.5.0-clean", tmp_path)
    request.param(root)
    return root


def test_the_log_is_intact(moved):
    with open_store(moved) as store:
        found = verify(store)
    assert {finding.code for finding in found.findings if finding.code.startswith("log-")} == set()
    assert "queue-foreign-unit" in {finding.code for finding in found.findings}
    assert found.losses.messages == 0


def test_the_queues_that_lost_their_units_lose_the_messages(tmp_path):
    root = damage_case("none@5.5.0-clean", tmp_path)
    rename_topic(root)
    assert predict(root, "5.5").lost == {"Orders/0": ((0, 120),), "Orders/1": ((0, 83),)}


def test_a_plan_repairs_everything(moved):
    before = tree_digest(moved)
    with open_store(moved) as store:
        proposal = changes_of(store, verify(store).findings)
    plan = make_plan(moved, proposal.changes, must_repair=True)
    assert plan.forecast is not None
    assert (plan.forecast.losses.gone, plan.forecast.undelivered) == (0, 0)
    done = apply(plan, backup_acknowledged=True, verify_after=True)
    assert done.verification is not None
    assert done.verification.state is not State.CORRUPT
    assert predict(moved, "5.5").lost == {}
    undo(moved)
    assert tree_digest(moved) == before
