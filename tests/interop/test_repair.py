"""The real RocketMQ on stores that were changed: it answers as planned, and stays away while files change places."""

import base64
import shutil
import zlib

import pytest

import mqtool
from mqtool.errors import StoreLockedError
from mqtool.repair import RebuildIndex, RebuildQueues, Redact, Trim, Truncate, apply, discard_undo, make_plan, undo
from mqtool.repair.files import RepairFiles
from mqtool.repair.paths import BARRIER, HOME
from tests.support.damage import base_config, base_messages, damage_case
from tests.support.stores import answers, copy_store, shape_keys, store_fixture, tree_digest
from tests.support.tiers import night

pytestmark = [pytest.mark.interop, pytest.mark.slow]

VERSIONS = ["4.9.7", "5.5.0"]


def applied(root, changes, config=None):
    """Plans and carries out; returns the plan."""
    plan = make_plan(root, changes, config=config)
    apply(plan, backup_acknowledged=True, verify_after=False)
    return plan


def contents(directory):
    """Bytes by name."""
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def opened(rocketmq, version, root, config, work, **asked):
    """What the real store says about a copy."""
    return rocketmq(version).answers(root, config, work=work, **asked)


@pytest.mark.parametrize("version", [night("4.9.7"), "5.5.0"])
def test_with_queues_and_index_made_anew_and_the_old_ones_in_quarantine_it_answers_as_before(
    version, rocketmq, tmp_path
):
    fixture = store_fixture(f"orders-{version}")
    root = copy_store(fixture.name, tmp_path)
    shutil.rmtree(root / "consumequeue" / "Orders")
    for path in (root / "index").iterdir():
        path.write_bytes(b"\xff" * path.stat().st_size)
    applied(root, [RebuildQueues(), RebuildIndex()], fixture.config)
    assert any((root / ".mqtool" / "quarantine").rglob("2*"))
    recorded = {kind: answers(fixture.name, kind) for kind in ("messages", "gets", "queries")}
    found = opened(
        rocketmq, version, root, fixture.config, tmp_path / "work", gets=recorded["gets"], queries=recorded["queries"]
    )
    for kind, rows in recorded.items():
        assert found[kind] == rows, kind


@pytest.mark.parametrize("version", ["4.9.7", night("5.5.0")])
def test_it_refuses_a_store_whose_files_are_changing_places_and_leaves_it_alone(version, rocketmq, tmp_path):
    class Dying(RepairFiles):
        def rename(self, path, target):
            if target.parent.name == "index" and HOME not in target.parts:
                raise KeyboardInterrupt
            super().rename(path, target)

    fixture = store_fixture(f"orders-{version}")
    root = copy_store(fixture.name, tmp_path)
    shutil.rmtree(root / "index")
    (root / "index").mkdir()
    before = tree_digest(root)
    plan = make_plan(root, RebuildIndex(), config=fixture.config)
    with pytest.raises(KeyboardInterrupt):
        apply(plan, backup_acknowledged=True, files=Dying())
    assert (root / "commitlog" / BARRIER).is_file()
    work = tmp_path / "work"
    found = opened(rocketmq, version, root, fixture.config, work)
    assert [row["loaded"] for row in found["opened"]] == [False]
    for kind in ("commitlog", "consumequeue", "index", HOME):
        assert contents(work / "store" / kind) == contents(root / kind), kind
    undo(root)
    assert tree_digest(root) == before


@pytest.mark.parametrize("version", ["4.9.7", night("5.5.0")])
def test_a_broker_runs_on_a_changed_store_keeps_changes_out_and_lets_finalize_in(version, rocketmq, tmp_path):
    fixture = store_fixture(f"orders-{version}")
    root = copy_store(fixture.name, tmp_path)
    shutil.rmtree(root / "consumequeue" / "Orders")
    plan = applied(root, RebuildQueues(("Orders",)), fixture.config)
    message = next(row for row in answers(fixture.name, "messages") if (row["topic"], row["queueId"]) == ("Orders", 1))
    broker = rocketmq(version).start_broker(tmp_path, **shape_keys(fixture.config))
    printed = broker.admin("queryMsgByOffset", "-b", "broker-a", "-t", "Orders", "-i", "1", "-o", "0")
    assert message["properties"]["UNIQ_KEY"] in printed, printed
    for change in (lambda: apply(plan, backup_acknowledged=True), lambda: undo(root)):
        with pytest.raises(StoreLockedError):
            change()
    discard_undo(root)
    assert not (root / HOME).exists()
    assert message["properties"]["UNIQ_KEY"] in broker.admin(
        "queryMsgByOffset", "-b", "broker-a", "-t", "Orders", "-i", "1", "-o", "0"
    )
    broker.stop()
    assert not (root / "abort").exists()


@pytest.mark.parametrize("base", ["4.9.7-crash", night("4.9.7-clean"), night("5.5.0-crash"), "5.5.0-clean"])
def test_a_log_that_was_cut_ends_there_for_it_and_queues_serve_all_before(base, rocketmq, tmp_path):
    root = damage_case(f"none@{base}", tmp_path)
    rows = base_messages(base)
    at = rows[len(rows) * 2 // 3]["phy"]
    applied(root, Truncate(at), base_config(base))
    found = opened(rocketmq, base[:5], root, base_config(base), tmp_path / "work")
    end = max(row["phy"] + row["size"] for row in rows if row["phy"] < at)
    assert [row["maxPhyOffset"] for row in found["opened"]] == [end]
    expected = sorted(row["phy"] for row in rows if row["phy"] < at and row["offset"] >= 0)
    assert sorted(offset for row in found["queues"] for offset in row["served"]) == expected


def test_what_was_cut_stays_cut_though_a_record_ends_just_before_it(rocketmq, tmp_path):
    """The broker alone takes the stale record for a new one: recovery-truth by the recorded answer of the case."""
    root = damage_case("tail-stale@5.5.0-clean", tmp_path)
    with mqtool.open(root) as store:
        end = store.commit_log.max_offset
    config = base_config("5.5.0-clean")
    alone = opened(rocketmq, "5.5.0", root, config, tmp_path / "alone")["opened"][0]["maxPhyOffset"]
    applied(root, Truncate(end), config)
    after = opened(rocketmq, "5.5.0", root, config, tmp_path / "work")["opened"][0]["maxPhyOffset"]
    assert (alone > end, after) == (True, end)


@pytest.mark.parametrize("name", [night("orders-4.9.7"), night("orders-5.5.0"), "propcrc-5.5.0"])
def test_redacted_messages_are_served_blank_with_a_right_crc_and_all_others_as_before(name, rocketmq, tmp_path):
    fixture = store_fixture(name)
    root = copy_store(name, tmp_path)
    recorded = answers(name, "messages")
    plain = [row for row in recorded if row.get("body") and not row["sysFlag"] & 0x80]
    chosen = {row["physicalOffset"] for row in plain[::7]}
    applied(root, Redact(tuple(chosen)), fixture.config)
    found = opened(rocketmq, fixture.version, root, fixture.config, tmp_path / "work", gets=answers(name, "gets"))
    assert found["gets"] == answers(name, "gets")
    assert len(found["messages"]) == len(recorded)
    for before, after in zip(recorded, found["messages"], strict=True):
        if before.get("physicalOffset") not in chosen:
            assert after == before
            continue
        body = base64.b64decode(after["body"])
        assert body == b" " * len(base64.b64decode(before["body"]))
        assert after["bodyCRC"] == zlib.crc32(body) & 0x7FFFFFFF
        assert after["storeSize"] == before["storeSize"]


@pytest.mark.parametrize("version", ["4.9.7", night("5.5.0")])
def test_a_trimmed_log_begins_later_for_it_and_everything_behind_is_served(version, rocketmq, tmp_path):
    fixture = store_fixture(f"orders-{version}")
    root = copy_store(fixture.name, tmp_path)
    with mqtool.open(root) as store:
        begins = store.commit_log.segments[2].base
    applied(root, Trim(begins), fixture.config)
    found = opened(rocketmq, version, root, fixture.config, tmp_path / "work")
    assert found["opened"][0]["minPhyOffset"] == begins
    served = {(row["topic"], row["queueId"]): row["served"] for row in found["queues"] if row["served"]}
    units = {
        (row["topic"], row["queueId"]): [unit[1] for unit in row["units"] if unit[1] >= begins]
        for row in answers(fixture.name, "queues")
    }
    for queue, offsets in units.items():
        # 4.9 takes the first file for physical offset 0, wherever that begins (CommitLog.getData), in a queue that
        # holds nothing any more
        assert [offset for offset in served.get(queue, []) if offsets or offset != begins] == offsets, queue


HARMLESS = [".mqtool", "config/.mqtool", "consumequeue/.mqtool", "index/.mqtool"]
"""Directories of ours that no release minds."""


@pytest.mark.parametrize("version", [night("4.9.7"), "5.5.0"])
def test_directories_of_ours_change_nothing_there(version, rocketmq, tmp_path):
    fixture = store_fixture(f"orders-{version}")
    root = copy_store(fixture.name, tmp_path)
    for place in HARMLESS:
        for part in ("commitlog", "consumequeue/Orders/0", "index"):
            shutil.copytree(
                root / part,
                root / place / "quarantine" / "20260101T000000Z" / part,
                ignore=shutil.ignore_patterns(HOME),
            )
    gets, queries = answers(fixture.name, "gets"), answers(fixture.name, "queries")
    found = opened(rocketmq, version, root, fixture.config, tmp_path / "work", gets=gets, queries=queries)
    assert (found["messages"], found["gets"], found["queries"]) == (answers(fixture.name, "messages"), gets, queries)


@pytest.mark.parametrize("place", ["commitlog/.mqtool", night("consumequeue/Orders/0/.mqtool")])
@pytest.mark.parametrize(("version", "loads"), [("4.9.7", False), ("5.5.0", True)])
def test_among_files_of_fixed_size_4_9_does_not_load_with_it(version, loads, place, rocketmq, tmp_path):
    fixture = store_fixture(f"orders-{version}")
    root = copy_store(fixture.name, tmp_path)
    (root / place).mkdir()
    found = opened(rocketmq, version, root, fixture.config, tmp_path / "work")
    assert found["opened"][0]["loaded"] is loads
