"""A repair never costs a message that is still in the store: judged before anything changes."""

import errno
import os

import pytest

from mqtool.errors import RefusedError, StoreLockedError
from mqtool.recovery import predict, proof
from mqtool.recovery.losses import LossCount
from mqtool.repair import Pad, Plan, RebuildIndex, RebuildQueues, SetAside, apply, make_plan, undo
from mqtool.repair.from_findings import changes_of
from mqtool.repair.outlook import Preview
from mqtool.repair.plan import Forecast
from mqtool.repair.plans import diagnose
from mqtool.repair.runbooks import RUNBOOKS, Request, run
from mqtool.store.known_losses import known_losses
from mqtool.store.store import open_store
from mqtool.verify import verify
from tests.support.damage import base_config, damage_answers, damage_case, held_lock
from tests.support.stores import copy_store, tree_digest

SHORT = "commitlog/00000000000000393216"


@pytest.fixture
def tmp_path(in_memory):
    return in_memory


@pytest.fixture
def truncated(tmp_path):
    """A middle segment cut short, with 8 whole segments around it: the broker refuses to start."""
    root = copy_store("crash-4.9.7", tmp_path)
    os.truncate(root / SHORT, 30000)
    return root


def outlook(root, release):
    with open_store(root) as store:
        return Preview(store, release).unchanged


@pytest.mark.parametrize(
    "log",
    ["{root}/commitlog", "{above}/link/store/commitlog", "{above}/log", "store/commitlog", "link/store/commitlog"],
)
@pytest.mark.parametrize("has_root", [True, False])
def test_a_log_named_through_a_link_is_previewed_as_changed(log, has_root, tmp_path):
    root = copy_store("rollover-5.5.0", tmp_path)
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "log").symlink_to(root / "commitlog")
    keys = [f"storePathCommitLog={log.format(root=root, above=tmp_path)}"]
    keys += [f"storePathRootDir={root}"] if has_root else []
    (tmp_path / "broker.conf").write_text("\n".join(keys))
    middle = sorted(path.name for path in (root / "commitlog").iterdir())[2]
    with pytest.raises(RefusedError, match="losses: "):
        make_plan(root, SetAside((f"commitlog/{middle}",)), config=tmp_path / "broker.conf")


def test_a_plan_that_would_lose_messages_names_the_broker_that_runs(tmp_path):
    root = copy_store("rollover-5.5.0", tmp_path)
    middle = sorted(path.name for path in (root / "commitlog").iterdir())[2]
    (root / "lock").touch()
    with held_lock(root / "lock"), pytest.raises(StoreLockedError, match=r"a broker is running, .* stop it first"):
        make_plan(root, SetAside((f"commitlog/{middle}",)))


@pytest.mark.slow
def test_a_truncated_segment_costs_only_what_was_cut_off(truncated):
    before = outlook(truncated, "4.9")
    assert (before.already_lost, before.lost_before) == (223, None)
    digest = tree_digest(truncated)
    found = run(RUNBOOKS["RB-01"], truncated, Request(apply=True, backup_acknowledged=True))
    assert found.repaired, found.markdown()
    assert found.losses == LossCount(223, None)
    for release in ("4.9", "5.5"):
        assert predict(truncated, release).readable == before.total - 223
    undo(truncated)
    assert tree_digest(truncated) == digest


@pytest.mark.slow
def test_a_plan_from_findings_saves_what_follows_a_truncated_segment(truncated):
    known = outlook(truncated, "4.9").total
    with open_store(truncated) as store:
        proposal = changes_of(store, verify(store).findings)
    plan = make_plan(truncated, proposal.changes, must_repair=True)
    assert (plan.forecast.losses, plan.forecast.unserved_after) == (LossCount(223, None), 0)
    apply(plan, backup_acknowledged=True, verify_after=False)
    assert predict(truncated, "4.9").readable == known - 223


def test_what_was_verified_for_a_repair_is_not_verified_again(truncated, monkeypatch):
    monkeypatch.setattr("mqtool.repair.log_files.verify", lambda _: pytest.fail("verified again"))
    repair = diagnose(truncated).plan
    assert repair is not None
    apply(Plan.from_json(repair.plan.to_json()), backup_acknowledged=True, verify_after=False)
    lost = [part for queue in known_losses(truncated).queues for part in queue.offsets]
    assert sum(last - first + 1 for first, last in lost) == 223


def test_padding_is_refused_where_a_start_would_then_cut_intact_records(truncated):
    """A second hole, in the segment itself: the scan would end at it."""
    with (truncated / SHORT).open("r+b") as file:
        file.seek(5000)
        file.write(bytes(200))
    digest = tree_digest(truncated)
    with pytest.raises(RefusedError, match=r"losses: .*mqtool repair \S+ -o "):
        make_plan(truncated, Pad((SHORT,)))
    found = run(RUNBOOKS["RB-01"], truncated, Request(apply=True, backup_acknowledged=True))
    assert (found.applied, found.repaired, found.step("plan").status) == (False, None, "refused")
    assert found.next_steps[0].startswith("mqtool repair ")
    assert tree_digest(truncated) == digest


def test_a_file_with_records_is_not_set_aside_where_a_start_would_lose_them(tmp_path):
    root = damage_case("none@4.9.7-clean", tmp_path)
    last_but_one = sorted(path.name for path in (root / "commitlog").iterdir())[-3]
    digest = tree_digest(root)
    with pytest.raises(RefusedError, match=r"losses: .*mqtool repair \S+ -o "):
        make_plan(root, SetAside((f"commitlog/{last_but_one}",)))
    assert tree_digest(root) == digest


@pytest.mark.parametrize("name", ["commitlog", "consumequeue", "consumequeue/Orders"])
def test_a_directory_that_is_a_link_to_another_disk_is_previewed_as_it_is(name, tmp_path):
    root = damage_case("cq-hole@5.5.0-clean", tmp_path)
    before = outlook(root, "5.5")
    elsewhere = tmp_path / "disk"
    (root / name).rename(elsewhere)
    (root / name).symlink_to(elsewhere)
    (elsewhere / "up").symlink_to(tmp_path)
    assert outlook(root, "5.5") == before
    assert (before.total, before.already_lost, before.lost_before) == (389, 0, 9)


@pytest.fixture
def predicted(monkeypatch):
    """Roots of the trees on which a start was predicted."""
    roots = []
    monkeypatch.setattr("mqtool.repair.outlook.predict", lambda *given: (roots.append(given[0]), predict(*given))[1])
    return roots


def test_apply_predicts_only_the_start_after_a_change_if_that_is_what_the_plan_states(predicted, tmp_path):
    root = damage_case("cq-hole@5.5.0-clean", tmp_path)
    plan = make_plan(root, RebuildQueues())
    assert len(predicted) == 2
    apply(Plan.from_json(plan.to_json()), backup_acknowledged=True, verify_after=False)
    assert len(predicted) == 3


def test_apply_judges_again_where_a_start_comes_to_something_else_than_the_plan_states(predicted, truncated):
    """The plan was made as if it padded a segment so that nothing is lost."""
    with (truncated / SHORT).open("r+b") as file:
        file.seek(5000)
        file.write(bytes(200))
    digest = tree_digest(truncated)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "mqtool.repair.plan_builder.forecast_of", lambda *_, **__: Forecast("4.9", LossCount(), 0, "0" * 64)
        )
        plan = make_plan(truncated, Pad((SHORT,)))
    assert predicted == []
    with pytest.raises(RefusedError, match=r"losses: "):
        apply(plan, backup_acknowledged=True)
    assert len(predicted) == 2
    assert tree_digest(truncated) == digest


@pytest.fixture
def walked(monkeypatch):
    """Names of the segments that a proof reads."""
    found = []
    walk = proof.walk_file
    monkeypatch.setattr(proof, "walk_file", lambda file, segment: found.append(file.path.name) or walk(file, segment))
    return found


def test_a_preview_reads_each_segment_of_an_unchanged_log_once(walked, tmp_path):
    root = copy_store("crash-4.9.7", tmp_path)
    segments = sorted(path.name for path in (root / "commitlog").iterdir())
    with open_store(root) as store, proof.read_once():
        preview = Preview(store)
        known = preview.unchanged
        assert preview.compare({}, {"checkpoint"}).total == known.total
    assert sorted(walked) == segments
    assert Preview(store).unchanged == known
    assert sorted(walked) == sorted(segments * 3)


def test_a_segment_that_has_changed_is_read_again(walked, tmp_path):
    root = copy_store("crash-4.9.7", tmp_path)
    with proof.read_once():
        before = predict(root, "4.9").readable
        with (root / SHORT).open("r+b") as file:
            file.seek(5000)
            file.write(bytes(200))
        after = predict(root, "4.9").readable
    assert after < before
    assert after == predict(root, "4.9").readable
    assert walked.count(SHORT.rpartition("/")[2]) == 3


def test_a_damaged_index_is_previewed_by_one_start(predicted, tmp_path):
    root = copy_store("crash-4.9.7", tmp_path)
    index = min((root / "index").iterdir())
    data = bytearray(index.read_bytes())
    data[40 : 40 + 4000] = bytes(4000)
    index.write_bytes(data)
    plan = make_plan(root, RebuildIndex(), must_repair=True)
    assert (len(predicted), plan.forecast.undelivered) == (1, 0)


@pytest.mark.parametrize(
    "case", ["flip-queue-id-negative@5.5.0-crash", "flip-topic@5.5.0-clean", "segment-name-odd@5.5.0-clean"]
)
def test_a_plan_counts_what_a_real_broker_loses_by_its_start(case, tmp_path):
    """Records with another queue's name, and records at a wrong offset, are in the store, and no consumer gets them."""
    with open_store(damage_case(case, tmp_path), base_config("5.5.0-clean")) as store:
        unchanged = Preview(store).unchanged
    lost = sum(last - first + 1 for parts in damage_answers("5.5.0")[case]["lost"].values() for first, last in parts)
    assert unchanged.forecast.losses.by_start == lost > 0
    assert unchanged.forecast.losses.gone == 0


def test_without_an_outlook_of_the_store_nothing_is_compared(tmp_path):
    root = copy_store("dledger-5.5.0", tmp_path)
    with open_store(root) as store:
        preview = Preview(store, "5.5")
    assert isinstance(preview.before, str)
    assert preview.compare_with(root) == preview.before


def test_a_preview_that_cannot_be_made_says_why(tmp_path, monkeypatch):
    root = copy_store("orders-5.5.0", tmp_path)
    with open_store(root) as store:
        preview = Preview(store, "5.5")
        assert not isinstance(preview.before, str)

        def full(*_arguments):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/tmp/preview")

        monkeypatch.setattr("mqtool.repair.outlook._link", full)
        assert preview.compare({}, ["checkpoint"]) == "/tmp/preview: cannot create a preview: No space left on device"
