"""Stores put right in place are those that the broker wrote, byte for byte; undo brings the wrong ones back."""

import shutil

import pytest

import mqtool
from mqtool.errors import NothingToChangeError
from mqtool.formats.checkpoint import CHECKPOINT
from mqtool.rebuild.job import rebuild
from mqtool.rebuild.parts import RebuildScope
from mqtool.rebuild.settings import settings_of
from mqtool.repair import (
    Pad,
    RebuildIndex,
    RebuildMetadata,
    RebuildQueues,
    Redact,
    Trim,
    Truncate,
    Undelete,
    apply,
    discard_undo,
    make_plan,
    undo,
)
from mqtool.repair.from_findings import changes_of
from mqtool.repair.paths import HOME
from mqtool.verify import Severity, State, verify
from tests.support.damage import CASES, base_config, damage_case
from tests.support.stores import STORES, copy_store, store_fixture, tree_digest

OTHER = ("dledger", "ha-", "controller", "rocksdb", "multipath", "metadata", "default-sizes", "tieredstore")
HEALTHY = [store.name for store in STORES if store.clean_stop and not store.name.startswith(OTHER)]
QUEUE_FILES = ("consumequeue", "consumequeue_ext", "batchconsumequeue")


@pytest.fixture
def tmp_path(in_memory):
    """Changes sync a great deal."""
    return in_memory


def contents(root):
    """Bytes by name, without what is ours."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and HOME not in path.parts
    }


def apply_changes(root, changes, config=None):
    """Plans, carries out, looks, takes back, and carries out again for good; returns what it then holds."""
    first = tree_digest(root)
    plan = make_plan(root, changes, config=config)
    assert tree_digest(root) == first, "planning writes nothing"
    done = apply(plan, backup_acknowledged=True)
    right = contents(root)
    undo(root)
    assert tree_digest(root) == first, "undo brings every byte and time back"
    apply(plan, backup_acknowledged=True, verify_after=False)
    discard_undo(root)
    assert contents(root) == right
    assert not (root / HOME).exists()
    return done


@pytest.mark.long
@pytest.mark.parametrize("name", HEALTHY)
def test_queues_made_anew_in_place_are_the_broker_s(name, tmp_path):
    root = copy_store(name, tmp_path)
    healthy = contents(root)
    queues = [name for name in healthy if name.startswith(QUEUE_FILES) and "/0000" in name]
    for number, queue in enumerate(queues):
        path = root / queue
        match number % 3:
            case 0:
                path.unlink()
            case 1:
                path.write_bytes(bytes(path.stat().st_size))
            case 2:
                path.write_bytes(path.read_bytes() + b"!")
    done = apply_changes(root, RebuildQueues(), store_fixture(name).config)
    assert contents(root) == healthy
    assert done.verification.state is not State.CORRUPT


@pytest.mark.parametrize("name", ["orders-4.9.7", "orders-5.5.0"])
def test_one_queue_is_made_anew_and_no_other_file_is_touched(name, tmp_path):
    root = copy_store(name, tmp_path)
    healthy, times = contents(root), {path: path.stat().st_mtime_ns for path in root.rglob("*") if path.is_file()}
    shutil.rmtree(root / "consumequeue" / "Orders" / "3")
    shutil.rmtree(root / "consumequeue" / "Payments" / "0")
    apply_changes(root, RebuildQueues(("Orders",), 3))
    missing = {path for path in healthy if path.startswith("consumequeue/Payments/0/")}
    assert contents(root) == {path: data for path, data in healthy.items() if path not in missing}
    changed = {path for path, time in times.items() if path.exists() and path.stat().st_mtime_ns != time}
    assert {path.relative_to(root).parent.as_posix() for path in changed} == {"consumequeue/Orders/3"}


@pytest.mark.parametrize("name", ["orders-4.9.7", "orders-5.5.0", "rollover-5.5.0", "hosts-5.5.0"])
def test_index_files_made_anew_have_the_names_and_bytes_of_the_old_ones(name, tmp_path):
    root = copy_store(name, tmp_path)
    healthy = contents(root)
    for path in sorted((root / "index").iterdir())[::2]:
        path.write_bytes(path.read_bytes()[:40] + b"\xff" * (path.stat().st_size - 40))
    done = apply_changes(root, RebuildIndex(), store_fixture(name).config)
    assert contents(root) == healthy
    assert done.verification.count(Severity.ERROR) == 0


def test_a_lost_index_file_comes_back_between_its_neighbours(tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    files = sorted((root / "index").iterdir())
    lost = files[3].read_bytes()
    files[3].unlink()
    apply_changes(root, RebuildIndex())
    now = sorted((root / "index").iterdir())
    assert [path.name for path in now if path in files] == [path.name for path in files if path != files[3]]
    assert now[3].read_bytes() == lost


def test_one_index_file_is_made_anew(tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    healthy = contents(root)
    path = sorted((root / "index").iterdir())[2]
    path.write_bytes(bytes(path.stat().st_size))
    apply_changes(root, RebuildIndex(path.name))
    assert contents(root) == healthy


@pytest.mark.parametrize("name", ["orders-4.9.7", "orders-5.5.0"])
def test_a_deleted_topic_comes_back_with_its_queues_and_leaves_others_deleted(name, tmp_path):
    root = copy_store(name, tmp_path)
    healthy = contents(root)
    for topic in ("Orders", "Payments"):
        shutil.rmtree(root / "consumequeue" / topic)
    path = root / "config" / "topics.json"
    with mqtool.open(root) as store:
        before = store.metadata.topics["Orders"]
    text = path.read_text("utf-8").replace('"Orders"', '"Gone1"').replace('"Payments"', '"Gone2"')
    path.write_text(text, "utf-8")
    apply_changes(root, Undelete(("Orders",)))
    now = contents(root)
    with mqtool.open(root) as store:
        topics = store.metadata.topics
    assert topics["Orders"].read_queue_nums == before.read_queue_nums
    assert "Payments" not in topics
    for file, data in healthy.items():
        if file.startswith("consumequeue/"):
            assert now.get(file) == (None if file.startswith("consumequeue/Payments/") else data), file


@pytest.mark.slow
@pytest.mark.parametrize("kept", [True, False], ids=["in topics.json", "without topics.json"])
def test_a_topic_whose_configuration_is_there_or_of_a_store_without_any_gets_its_queues(kept, tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    healthy = contents(root)
    shutil.rmtree(root / "consumequeue" / "Keyed")
    if not kept:
        for path in (root / "config").glob("topics.json*"):
            path.unlink()
    apply_changes(root, Undelete(("Keyed",)))
    now = contents(root)
    assert {name for name in healthy if name.startswith("consumequeue/") and now.get(name) != healthy[name]} == set()
    with mqtool.open(root) as store:
        assert set(store.metadata.topics) >= {"Keyed"}
    assert (now["config/topics.json"] == healthy["config/topics.json"]) is kept


def test_broken_configuration_is_completed_and_sound_files_stay(tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    healthy = contents(root)
    for name in ("topics.json", "topics.json.bak"):
        (root / "config" / name).write_bytes(b"{")
    apply_changes(root, RebuildMetadata())
    now = contents(root)
    assert {name for name in now if now[name] != healthy[name]} == {"config/topics.json", "config/topics.json.bak"}
    with mqtool.open(root) as store:
        topics = set(store.metadata.topics)
    assert {"Orders", "Payments"} <= topics


CUTS = ["orders-4.9.7", "orders-5.5.0", "rollover-5.5.0", "bcq-5.5.0", "txbits-4.9.7"]


@pytest.mark.long
@pytest.mark.parametrize("share", [0.2, 0.5, 0.95])
@pytest.mark.parametrize("name", CUTS)
def test_a_cut_store_is_one_rebuilt_from_the_records_before_the_cut(name, share, tmp_path):
    root = copy_store(name, tmp_path)
    with mqtool.open(root) as store:
        offsets = [message.physical_offset for message in store.messages()]
        at = offsets[int(len(offsets) * share)]
        settings = settings_of(store)
        rebuild(store, tmp_path / "model", settings, RebuildScope(end=at))
    done = apply_changes(root, Truncate(at))
    model, now = contents(tmp_path / "model"), contents(root)
    assert {file: data for file, data in now.items() if file.startswith(QUEUE_FILES)} == {
        file: data for file, data in model.items() if file.startswith(QUEUE_FILES)
    }
    assert [data for file, data in now.items() if file.startswith("index/")] == [
        data for file, data in model.items() if file.startswith("index/")
    ]
    with mqtool.open(root) as store:
        assert [message.physical_offset for message in store.messages()] == offsets[: int(len(offsets) * share)]
        assert store.commit_log.tail.kind == "clean"
        assert all(lag.max_offset is None or lag.consumer_offset <= lag.max_offset for lag in store.lags())
    errors = {finding.code for finding in done.verification.findings if finding.severity is Severity.ERROR}
    assert errors <= {"timer-checkpoint-ahead", "timer-dangling-unit"}


@pytest.mark.long
@pytest.mark.parametrize(
    "case", [case for case in CASES if case.startswith(("tail-stale@", "tail-garbage@", "tail-torn"))]
)
def test_what_lies_behind_the_end_of_the_log_becomes_zeros_and_no_record_goes(case, tmp_path):
    root = damage_case(case, tmp_path)
    with mqtool.open(root) as store:
        end, records = store.commit_log.max_offset, len(list(store.messages()))
    apply_changes(root, Truncate(end))
    with mqtool.open(root) as store:
        assert (store.commit_log.max_offset, len(list(store.messages()))) == (end, records)
        last = store.commit_log.segments[-1]
    assert not last.path.read_bytes()[max(0, end - last.base) :].strip(b"\0")


@pytest.mark.parametrize("name", ["orders-4.9.7", "propcrc-5.5.0", "hosts-5.5.0", "v2-long-topic"])
def test_redacted_records_differ_in_body_checksums_and_compression_only(name, tmp_path):
    root = copy_store(name, tmp_path)
    with mqtool.open(root) as store:
        before = [message for message in store.messages() if not message.sys_flag & 0x80]
    chosen = {message.physical_offset for message in before[::3] if message.raw_body}
    done = apply_changes(root, Redact(tuple(chosen)))
    assert done.verification.count(Severity.ERROR) == 0
    with mqtool.open(root) as store:
        after = {message.physical_offset: message for message in store.messages()}
    for message in before:
        now = after[message.physical_offset]
        if message.physical_offset not in chosen:
            assert now == message
            continue
        assert now.raw_body == b" " * len(message.raw_body)
        assert now.sys_flag == message.sys_flag & ~0x701
        for field in ("topic", "queue_id", "queue_offset", "keys", "tags", "store_timestamp", "born_host"):
            assert getattr(now, field) == getattr(message, field)


def test_trimming_takes_what_only_leads_to_the_trimmed_part(tmp_path):
    root = copy_store("rollover-5.5.0", tmp_path)
    with mqtool.open(root) as store:
        begins = store.commit_log.segments[12].base
        kept = [message.physical_offset for message in store.messages() if message.physical_offset >= begins]
        files = {queue.path: len(queue.files) for queue in store.disk_queues()}
    apply_changes(root, Trim(begins + 5))
    with mqtool.open(root) as store:
        assert store.commit_log.min_offset == begins
        assert [message.physical_offset for message in store.messages()] == kept
        queues = store.disk_queues()
        assert sum(len(queue.files) for queue in queues) < sum(files.values())
        for queue in queues:
            first = queue.units_of(0)
            assert len(queue.files) == 1 or (first["physical_offset"] >= begins).any(), queue.path


@pytest.mark.parametrize("name", ["orders-4.9.7", "orders-5.5.0"])
def test_a_trimmed_store_has_no_finding_though_queues_hold_nothing_any_more(name, tmp_path):
    root = copy_store(name, tmp_path)
    done = apply_changes(root, Trim(262144))
    assert [finding for finding in done.verification.findings if finding.severity is Severity.ERROR] == []


def test_expired_units_stay_when_their_queue_is_made_anew(tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    apply_changes(root, Trim(131072))
    healthy = contents(root)
    with mqtool.open(root) as store:
        queue = next(
            queue
            for queue in store.disk_queues()
            if queue.min_offset < queue.max_offset
            and queue.first_offset < queue.min_offset < queue.first_offset + queue.file_units
        )
        path, live, topic = queue.files[0].path, queue.min_offset - queue.first_offset, queue.topic
    data = bytearray(path.read_bytes())
    data[live * 20 : live * 20 + 8] = b"\xff" * 8
    path.write_bytes(data)
    apply_changes(root, RebuildQueues((topic,)))
    assert contents(root) == healthy


def test_a_checkpoint_behind_a_cut_lies_within_what_is_left(tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    with mqtool.open(root) as store:
        messages = list(store.messages())
    apply_changes(root, Truncate(messages[100].physical_offset))
    checkpoint = CHECKPOINT.parse((root / "checkpoint").read_bytes())
    assert checkpoint.physic_msg_timestamp <= messages[99].store_timestamp
    assert checkpoint.confirm_physical_offset <= messages[100].physical_offset


def test_segments_in_several_directories_are_changed_where_they_are(tmp_path):
    root = copy_store("multipath-5.5.0", tmp_path)
    with mqtool.open(root) as store:
        offsets = [message.physical_offset for message in store.messages()]
        segments = {segment.path: segment.base for segment in store.commit_log.segments}
        begins = store.commit_log.segments[2].base
    at = offsets[len(offsets) // 2]
    apply_changes(root, Redact(tuple(offset for offset in offsets[::50] if begins <= offset < at)))
    apply_changes(root, Truncate(at))
    apply_changes(root, Trim(begins))
    with mqtool.open(root) as store:
        assert [message.physical_offset for message in store.messages()] == [
            offset for offset in offsets if begins <= offset < at
        ]
    assert {path for path in segments if path.exists()} == {
        path for path, base in segments.items() if begins <= base < at
    }
    assert len({path.parent for path in segments if path.exists()}) > 1


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_a_segment_whose_zeros_are_missing_gets_them_back(version, tmp_path):
    root = copy_store(f"orders-{version}", tmp_path)
    healthy = contents(root)
    path = max((root / "commitlog").iterdir())
    path.write_bytes(path.read_bytes().rstrip(b"\0"))
    with mqtool.open(root) as store:
        proposal = changes_of(store, verify(store).findings)
    assert proposal.changes == (Pad((f"commitlog/{path.name}",)),)
    apply_changes(root, proposal.changes)
    assert contents(root) == healthy


def test_a_store_put_right_by_its_findings_has_none_that_a_plan_mends(tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    shutil.rmtree(root / "consumequeue" / "Orders" / "2")
    sorted((root / "index").iterdir())[1].unlink()
    (root / "commitlog" / "notes.txt").write_text("hello")
    (root / "checkpoint").write_bytes(b"short")
    with mqtool.open(root) as store:
        found = verify(store)
        proposal = changes_of(store, found.findings)
    assert found.state is State.CORRUPT
    done = apply_changes(root, proposal.changes)
    assert done.verification.state is State.CLEAN


@pytest.mark.parametrize("base", ["4.9.7-clean", "5.5.0-clean"])
def test_units_beyond_a_log_that_ends_in_zeros_are_in_the_plan(base, tmp_path):
    root = damage_case(f"tail-zeroed@{base}", tmp_path)
    with mqtool.open(root, base_config(base)) as store:
        found = verify(store)
        proposal = changes_of(store, found.findings)
    assert "queue-ahead-of-log" in {one.code for one in found.findings}
    assert proposal.remaining == ()
    assert apply_changes(root, proposal.changes).verification.state is State.CLEAN


def test_plans_state_what_damage_keeps_out_of_their_result(tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    shutil.rmtree(root / "consumequeue" / "Orders")
    (root / "config" / "topics.json").unlink()
    (root / "config" / "topics.json.bak").unlink()
    with mqtool.open(root) as store:
        first, *_, other = (message for message in store.messages() if message.topic == "Orders")
        segment = store.commit_log.segments[store.commit_log.segment_at(first.physical_offset)]
    with segment.path.open("r+b") as file:
        file.seek(first.physical_offset - segment.base)
        file.write(bytes(first.store_size))
    plans = {change: make_plan(root, change) for change in (RebuildQueues(("Orders",)), RebuildMetadata())}
    assert not any(plan.complete for plan in plans.values())
    notes = {change: "\n".join(plan.notes) for change, plan in plans.items()}
    where = f"at physical offset {first.physical_offset}, {first.store_size} bytes"
    assert where in notes[RebuildQueues(("Orders",))]
    assert "1 damaged range(s) of the log" in notes[RebuildMetadata()]
    apply(plans[RebuildQueues(("Orders",))], backup_acknowledged=True)
    with mqtool.open(root) as store:
        queue = store.queue("Orders", other.queue_id)
        assert queue.units()[other.queue_offset]["physical_offset"] == other.physical_offset


def test_what_is_blank_already_is_not_redacted(tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    with mqtool.open(root) as store:
        offsets = [message.physical_offset for message in store.messages() if message.topic == "Payments"][:2]
    apply(make_plan(root, Redact((offsets[0],))), backup_acknowledged=True)
    discard_undo(root)
    plan = make_plan(root, Redact(tuple(offsets)))
    assert any(
        note.startswith(f"physical offset {offsets[0]}, Payments/") and "nothing to blank" in note
        for note in plan.notes
    )
    with pytest.raises(NothingToChangeError):
        make_plan(root, Redact((offsets[0],)))


def test_units_are_kept_where_no_log_is_left(tmp_path):
    root = damage_case("commitlog-deleted@5.5.0-clean", tmp_path)
    with mqtool.open(root) as store:
        proposal = changes_of(store, verify(store).findings)
    assert {"log-missing", "queue-ahead-of-log"} <= {one.code for one in proposal.remaining}
    assert not any(isinstance(change, RebuildQueues) for change in proposal.changes)
