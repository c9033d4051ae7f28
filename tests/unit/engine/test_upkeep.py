"""What else an open store does: topics go, readers wait and are woken, busy writers are noticed, tables are saved."""

import contextlib
import threading

import numpy as np
import pytest

from mqtool.engine import FlushMode, GetStatus, PutStatus
from mqtool.engine.config_files import ConfigFiles
from mqtool.engine.disk import files as disk_files
from mqtool.engine.disk.files import File, Files
from mqtool.engine.service import Periodic
from mqtool.engine.write.columns import MessageColumns
from mqtool.engine.write.messages import OutgoingMessage, check_before_put
from mqtool.errors import ConfigFileError
from mqtool.formats import commit_log, config_files
from mqtool.formats.release import V4_9, V5_5
from tests.support.engine_faults import BAD_DISK, FailingFiles
from tests.support.native import IS_COMPILED, form
from tests.support.served import until


def test_a_deleted_topic_has_no_queues_and_begins_at_0_again(opened):
    store = opened(declared=("queue-missing", "queue-missing-units"))
    for number in range(20):
        store.put("Gone", number % 2, b"x", b"KEYS\x01k%d\x02" % number)
        store.put("Stays", 0, b"x")
    store.dispatch()
    end = store.max_physical_offset
    assert store.delete_topic("Gone") == 2
    assert not (store.path / "consumequeue" / "Gone").exists()
    assert store.queue_bounds("Gone", 0) == (0, 0)
    assert store.queue_bounds("Stays", 0) == (0, 20)
    assert store.max_physical_offset == end
    assert store.put("Gone", 0, b"again").queue_offset == 0
    store.dispatch()
    assert store.get_message("Gone", 0, 0).status is GetStatus.FOUND


@pytest.mark.parametrize("mode", list(FlushMode))
def test_records_of_a_deleted_topic_that_wait_for_dispatch_take_no_place_of_later_ones(opened, mode):
    store = opened(flush_mode=mode, declared=("queue-missing", "queue-missing-units"))
    for _ in range(3):
        store.put("T", 0, b"old", wait=False)
    assert store.delete_topic("T") == 1
    for number in range(3):
        assert store.put("T", 0, b"new %d" % number, wait=False).queue_offset == number
    store.flush()
    store.dispatch()
    records = store.get_message("T", 0, 0).records
    assert [commit_log.parse_record(one).body for one in records] == [b"new 0", b"new 1", b"new 2"]


def test_a_topic_that_is_not_there_is_no_error(opened):
    assert opened().delete_topic("Never") == 0


def test_a_reader_that_waits_is_woken_by_the_message(opened):
    store = opened(background=True)
    found = []
    waiting = threading.Thread(target=lambda: found.append(store.wait_for("T", 0, 0, 30)))
    waiting.start()
    store.put("T", 0, b"x")
    waiting.join(30)
    assert found == [True]
    assert store.get_message("T", 0, 0).status is GetStatus.FOUND


def test_waiting_for_what_does_not_come_ends_in_time(opened):
    store = opened(background=True)
    store.put("T", 1, b"x")
    assert not store.wait_for("T", 0, 0, 0.05)


def test_listeners_hear_of_each_round_of_dispatch(opened):
    store, heard = opened(), []
    store.add_listener(lambda: heard.append(store.queue_bounds("T", 0)))
    store.put("T", 0, b"x")
    store.dispatch()
    store.put("T", 0, b"x")
    store.dispatch()
    assert heard == [(0, 1), (0, 2)]


def test_a_writer_stuck_in_the_lock_makes_the_page_cache_busy(opened, clock):
    store = opened()
    hook = check_before_put(lambda: store.is_page_cache_busy)
    message = OutgoingMessage("T", 0, b"x")
    with store._components.log.lock:
        assert hook(message) is message
        clock.time += 1_000
        assert hook(message) is message
        clock.time += 1
        assert hook(message) is PutStatus.OS_PAGE_CACHE_BUSY
    assert hook(message) is message


def test_a_writer_that_gets_on_is_not_busy(opened, clock):
    store = opened()
    for _ in range(5):
        store.put("T", 0, b"x")
        with store._components.log.lock:
            assert not store.is_page_cache_busy
            clock.time += 900


def replace_calls(monkeypatch, **replacements):
    """Replaces system calls on pages, by the name of the call or of its advice; others reach the system."""
    real, advices = disk_files.call_on_pages, {disk_files.POPULATE_WRITE: "populate", disk_files.WILL_NEED: "will_need"}

    def call(name, mapping, start, end, *advice):
        replacement = replacements.get(advices[advice[0]] if advice else name)
        return real(name, mapping, start, end, *advice) if replacement is None else replacement(start, end)

    monkeypatch.setattr(disk_files, "call_on_pages", call)


@pytest.mark.parametrize("lock", [False, True])
def test_pages_made_ahead_and_locked_change_no_byte_and_are_let_go_with_the_file(opened, lock, monkeypatch):
    let_go = []
    replace_calls(monkeypatch, munlock=lambda start, end: let_go.append((start, end)) or True)
    store = opened(background=True, lock_memory=lock, reserve_bytes=8192)
    places = [store.put("T", 0, bytes([n]) * 900).physical_offset for n in range(20)]
    assert store.wait_for("T", 0, 19, 30)
    for number, place in enumerate(places):
        assert bytes(store.message_at(place)[88:988]) == bytes([number]) * 900
    assert let_go == ([(0, 4096)] * 4 if lock else [])


def test_pages_are_made_from_where_the_writer_is_when_its_requests_are_late(opened, monkeypatch):
    """Requests that waited in a queue once asked for pages that the writer had passed, and left it to make them all."""
    made, busy = [], threading.Semaphore(0)

    def populate(start, end):
        made.append((start, end))
        busy.acquire(timeout=30)
        return True

    replace_calls(monkeypatch, populate=populate)
    store = opened(background=True, commit_log_file_size=1 << 20, reserve_bytes=1 << 16)
    end = store.put("T", 0, b"x" * 40_000).end
    until(lambda: made)
    while end < 900_000:
        end = store.put("T", 0, b"x" * 2000).end
    assert len(made) == 1
    busy.release(1000)
    until(lambda: len(made) > 1)
    assert made[1][0] >= end
    assert made[1][1] == end + (1 << 16)


def test_pages_for_columns_of_messages_are_made_ahead_in_the_page_cache(opened, monkeypatch):
    if not IS_COMPILED:
        pytest.skip("needs the extension modules")
    made = []
    monkeypatch.setattr(File, "read_ahead", lambda file, start, end: made.append((start, end)))
    columns = MessageColumns(["T"], np.zeros(10, int), 0, [b"x" * 2000] * 10)
    with form(compiled=True):
        store = opened(background=True, commit_log_file_size=1 << 20, reserve_bytes=1 << 16)
        first, second = store.put_many(columns).end, store.put_many(columns).end
    until(lambda: made)
    start, end = made[0]
    assert start >= second  # beyond what is written, and as far ahead as the writer was by then
    assert first + (1 << 16) <= end <= second + (1 << 16)


@pytest.mark.parametrize("lock", [False, True])
def test_a_kernel_that_makes_no_pages_is_asked_to_read_ahead(tmp_path, monkeypatch, lock):
    asked, locked = [], []
    replace_calls(
        monkeypatch,
        populate=lambda *_: False,
        will_need=lambda start, end: asked.append((start, end)) or True,
        mlock=lambda start, end: locked.append((start, end)) or True,
    )
    file = Files().create(tmp_path / "file", 8192)
    file.populate(0, 4096, lock=lock)
    file.close()
    assert asked == [(0, 4096)]
    assert locked == [(0, 4096)] * lock


@pytest.mark.parametrize("release", [V4_9, V5_5])
def test_a_saved_table_leaves_the_one_before_as_its_backup(tmp_path, release):
    tables = ConfigFiles(tmp_path, Files(), release=release)
    texts = [
        config_files.build_topics(config_files.Topics({}, config_files.DataVersion(n, n)), tables.style)
        for n in range(3)
    ]
    for text in texts:
        tables.save("topics.json", text)
    held = {path.name: path.read_bytes() for path in (tmp_path / "config").iterdir()}
    assert held == {"topics.json": texts[2], "topics.json.bak": texts[1]}


@pytest.mark.parametrize("step", range(8))
def test_a_save_that_ends_anywhere_leaves_a_table_that_can_be_read(tmp_path, step):
    class Ends(Files):
        """Stops working after so many changes."""

        left = 100

        def _change(self):
            self.left -= 1
            if self.left < 0:
                raise OSError(5, "ended")

        def write_file(self, path, data, *, sync=True):
            self._change()
            super().write_file(path, data, sync=sync)

        def rename(self, path, target):
            self._change()
            super().rename(path, target)

        def sync_directory(self, path):
            self._change()
            super().sync_directory(path)

    files = Ends()
    tables = ConfigFiles(tmp_path, files, release=V5_5)

    def text(number):
        return config_files.build_topics(
            config_files.Topics({f"T{number}": config_files.TopicConfig(f"T{number}")}), tables.style
        )

    tables.save("topics.json", text(1))
    tables.save("topics.json", text(2))
    files.left = step
    with contextlib.suppress(OSError):
        tables.save("topics.json", text(3))
    found = ConfigFiles(tmp_path, Files(), release=V5_5).topics().topic_config_table
    assert list(found) in ([["T2"], ["T3"]])


@pytest.mark.parametrize("content", [b"", b'{"topicConfigTable":{"a'], ids=["empty", "cut"])
def test_a_broken_table_never_takes_the_place_of_its_good_backup(tmp_path, content):
    tables = ConfigFiles(tmp_path, Files(), release=V5_5)
    path = tmp_path / "config" / "topics.json"

    def text(number):
        return config_files.build_topics(
            config_files.Topics({f"T{number}": config_files.TopicConfig(f"T{number}")}), tables.style
        )

    for number in (1, 2):
        tables.save("topics.json", text(number))
    path.write_bytes(content)
    tables = ConfigFiles(tmp_path, Files(), release=V5_5)
    assert list(tables.topics().topic_config_table) == ["T1"]
    tables.save("topics.json", text(3))
    backup = path.with_name("topics.json.bak")
    assert (path.read_bytes(), backup.read_bytes()) == (text(3), text(1))
    tables.save("topics.json", text(4))
    assert (path.read_bytes(), backup.read_bytes()) == (text(4), text(3))


def test_a_table_and_a_backup_that_are_broken_refuse_the_store_and_stay(tmp_path):
    (tmp_path / "config").mkdir()
    for name in ("topics.json", "topics.json.bak"):
        (tmp_path / "config" / name).write_bytes(b'{"topicConfigTable":{"a')
    with pytest.raises(ConfigFileError, match="and there is no valid backup"):
        ConfigFiles(tmp_path, Files(), release=V5_5).topics()
    assert (tmp_path / "config" / "topics.json").read_bytes() == b'{"topicConfigTable":{"a'


def test_an_index_file_that_a_broker_removed_is_whole_again_after_closing(opened):
    store = opened()
    for number in range(30):
        store.put("T", 0, b"x", b"KEYS\x01k%d\x02" % number)
        store.dispatch()
        if number == 10:  # what a broker does before it finds the lock held
            for path in (store.path / "index").iterdir():
                path.unlink()
            (store.path / "index" / "20991121000553880").write_bytes(bytes(280))
    store.close()
    assert [path.name for path in (store.path / "index").iterdir() if path.name.startswith("2099")] == []
    again = opened()
    assert again.recovered.clean_stop
    assert [len(again.query_message("T", f"k{number}").records) for number in range(30)] == [1] * 30


def test_a_next_file_that_a_broker_removed_is_made_again(opened):
    store = opened(background=True)
    store.put("T", 0, b"x" * 3000)
    following = store.path / "commitlog" / f"{4096:020d}"
    until(following.exists)
    following.unlink()
    second = store.put("T", 0, b"y" * 3000)
    assert second.physical_offset == 4096
    store.close()
    assert b"y" * 3000 in (store.path / "commitlog" / f"{4096:020d}").read_bytes()


def test_an_index_file_is_never_created_where_something_has_its_name(opened):
    store = opened()
    taken = store.path / "index" / "20231114221320000"  # the held clock's
    taken.mkdir(parents=True)
    store.put("T", 0, b"x", b"KEYS\x01k\x02")
    store.dispatch()
    assert sorted(path.name for path in taken.parent.iterdir()) == [taken.name, "20231114221320001"]
    assert len(store.query_message("T", "k").records) == 1
    taken.rmdir()


def test_a_full_index_file_that_cannot_be_flushed_is_logged_and_flushed_at_the_end(opened, caplog):
    files = FailingFiles("index/")
    store = opened(files=files)
    files.errors["sync"] = BAD_DISK
    for number in range(20):  # a file has 19 entries
        store.put("T", 0, b"x", b"KEYS\x01k%d\x02" % number)
    store.dispatch()
    assert caplog.text.count("index file not flushed") == 1
    files.errors.clear()
    assert all(len(store.query_message("T", f"k{number}").records) == 1 for number in range(20))


def test_a_topic_that_has_queues_keeps_their_kind(opened):
    store = opened(declared=("log-inner-batch",))
    store.put("Has", 0, b"x")
    for name in ("Has", "New", "New"):
        store.add_batch_topic(name)
    inner = (b"x", b"INNER_NUM\x013\x02", 0, 0xC0)
    assert store.put("Has", 0, *inner).status is PutStatus.MESSAGE_ILLEGAL
    assert store.put("New", 0, *inner).status is PutStatus.PUT_OK
    store.dispatch()
    assert [store.queue_bounds(name, 0) for name in ("Has", "New")] == [(0, 1), (0, 3)]


def test_what_is_not_in_the_log_cannot_be_held(opened):
    store = opened()
    end = store.put("T", 0, b"x").end
    for offset, expected in ((0, True), (end + 4096, False)):
        with store.hold(offset) as held:
            assert held is expected


def test_work_at_intervals_goes_on_after_an_error(caplog):
    runs, done = [], threading.Event()

    def task():
        runs.append(len(runs))
        if runs == [0]:
            raise ValueError("first")
        done.set()

    periodic = Periodic("task", 1, task)
    periodic.start()
    assert done.wait(10)
    periodic.stop()
    assert "task failed name=mqtool-task" in caplog.text


def test_properties_of_any_number_of_lengths_are_stored(opened):
    store = opened(commit_log_file_size=1 << 22)
    for size in range(1100):
        assert store.put("T", 0, b"", b"k" * size).queue_offset == size
    store.dispatch()
    units = store.units("T", 0, 0, 1100)
    assert [size - units[0][1] for _, size, _ in units] == list(range(1100))


def test_work_at_intervals_that_was_never_started_can_be_stopped():
    Periodic("never", 1, lambda: pytest.fail("ran")).stop()


def test_a_thread_of_dispatch_that_fails_ends_when_the_store_is_closed(opened):
    files = FailingFiles("consumequeue")
    store = opened(files=files, background=True)
    files.errors["create"] = BAD_DISK
    store.put("T", 0, b"x")
    store._loop.stop()
    assert store.queue_bounds("T", 0) == (0, 0)
    files.errors.clear()
    store.dispatch()
    assert store.queue_bounds("T", 0) == (0, 1)


def test_the_name_of_a_topic_that_cannot_be_a_directory_is_logged_once(opened, caplog):
    store = opened()
    queues = store._components.queues
    assert [queues.find_or_create("../x", queue_id) for queue_id in (0, 0, 1)] == [None] * 3
    assert [one.getMessage() for one in caplog.records] == [
        "no queue for topic='../x': it is not a valid directory name"
    ]
    assert queues.unwritable == {"../x"}
