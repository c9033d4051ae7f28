"""A state machine drives the store against a model: a list of messages per queue, and who of them is left."""

from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import mqtool
from mqtool.engine import Compat, FlushMode, GetStatus, PutStatus, open_store
from mqtool.engine import dispatcher as dispatch
from mqtool.engine.disk.files import Files
from mqtool.engine.write.messages import BatchMessage
from mqtool.formats import commit_log, properties
from mqtool.records.damage import Damage
from mqtool.store.queues.get_message import TagFilter
from tests.support.engine import HeldClock, findings_of, small_options
from tests.support.engine_faults import fast_directory, kill, remove

HOUR_MS = 3_600_000
TOPICS = ["A", "Orders", "%RETRY%group", "主题"]
KEYS = [f"k{i}" for i in range(6)]
TAGS = [None, "TagA", "TagB"]
PREPARED, COMMITTED, ROLLED_BACK = 4, 8, 12


@dataclass(frozen=True)
class Kept:
    """One message of the model."""

    physical_offset: int
    body: bytes
    tag: str | None
    key: str | None


class ClockedFiles(Files):
    """Files last changed when the held clock says they were made."""

    def __init__(self, clock):
        self.clock = clock
        self.made = {}

    def create(self, path, size):
        self.made.setdefault(path, self.clock.now())
        return super().create(path, size)

    def modified(self, path):
        return self.made.get(path, 0)

    def used_ratio(self, path):
        return 0.5


def encoded(tag, key):
    pairs = [("KEYS", key)] if key else []
    return properties.encode([*pairs, ("TAGS", tag)] if tag else pairs)


class StoreMachine(RuleBasedStateMachine):
    """The store, and what must be in it."""

    @initialize(
        compat=st.sampled_from(list(Compat)),
        mode=st.sampled_from(list(FlushMode)),
        pool=st.sampled_from([0, 2]),
        columns=st.sampled_from([1, 3, 1 << 30]),
        positional=st.booleans(),
    )
    def begin(self, compat, mode, pool, columns, positional):
        self.root = fast_directory()
        self.clock = HeldClock()
        self.files = ClockedFiles(self.clock)
        self.options = small_options(compat=compat, flush_mode=mode, pool_buffers=pool, positional_writes=positional)
        dispatch.FEWEST_IN_COLUMNS, self.columns = columns, dispatch.FEWEST_IN_COLUMNS
        self.queues = {}
        self.log = []
        self.certain_keys = set()
        self.store = self.open()

    def open(self):
        return open_store(self.root / "store", self.options, clock=self.clock, files=self.files, background=False)

    # -- putting

    @rule(
        topic=st.sampled_from(TOPICS),
        queue_id=st.integers(0, 1),
        size=st.integers(0, 700),
        tag=st.sampled_from(TAGS),
        key=st.sampled_from([None, *KEYS]),
        kind=st.sampled_from([0, 0, 0, PREPARED, COMMITTED, ROLLED_BACK]),
    )
    def put(self, topic, queue_id, size, tag, key, kind):
        self.clock.time += 700
        body = bytes([len(self.log) % 251]) * size
        result = self.store.put(topic, queue_id, body, encoded(tag, key), 0, kind)
        assert result.status is PutStatus.PUT_OK
        queue = self.queues.setdefault((topic, queue_id), [])
        visible = kind in (0, COMMITTED)
        assert result.queue_offset == (len(queue) if visible else 0)
        kept = Kept(result.physical_offset, body, tag, key)
        self.log.append((kept, topic, kind))
        if visible:
            queue.append(kept)

    @rule(
        topic=st.sampled_from(TOPICS),
        sizes=st.lists(st.integers(0, 200), min_size=1, max_size=6),
        tag=st.sampled_from(TAGS),
    )
    def put_batch(self, topic, sizes, tag):
        self.clock.time += 300
        bodies = [bytes([len(self.log) + n & 255]) * size for n, size in enumerate(sizes)]
        result = self.store.put_batch(topic, 0, [BatchMessage(body, encoded(tag, None)) for body in bodies])
        assert result.ok
        queue = self.queues.setdefault((topic, 0), [])
        assert result.queue_offset == len(queue)
        for offset, body in zip(result.physical_offsets, bodies, strict=True):
            kept = Kept(offset, body, tag, None)
            queue.append(kept)
            self.log.append((kept, topic, 0))

    @rule()
    def fill_a_file(self):
        for _ in range(3):
            self.put("A", 0, 1200, "TagA", "k0", 0)

    # -- what goes on behind

    @rule()
    def flush(self):
        self.store.flush()
        assert self.store.flushed_offset == self.store.max_physical_offset

    @rule()
    def dispatch(self):
        if self.options.sync or self.options.pool_buffers:
            self.store.flush()
        self.store.dispatch()
        self.certain_keys.update(kept.physical_offset for kept, _, kind in self.log if kept.key and kind != ROLLED_BACK)
        assert self.store.dispatch_behind == 0
        self.check_queues()

    @rule(hours=st.sampled_from([1, 30, 80]))
    def expire(self, hours):
        self.clock.time += hours * HOUR_MS
        self.store.clean_soon()
        self.store.flush()
        self.store.dispatch()
        self.store.clean()

    @rule()
    def close_and_reopen(self):
        self.store.close()
        self.check_from_outside()
        self.store = self.open()
        assert self.store.recovered.clean_stop
        self.dispatch()

    @precondition(lambda self: not self.options.pool_buffers)
    @rule()
    def kill_and_reopen(self):
        kill(self.store)
        self.store = self.open()
        assert not self.store.recovered.clean_stop
        self.check_queues()

    # -- what must hold

    def left(self, queue):
        """Queue offsets and messages that the log still holds."""
        lowest = max(0, self.store.min_physical_offset)
        return [(n, kept) for n, kept in enumerate(queue) if kept.physical_offset >= lowest]

    def check_queues(self):
        for (topic, queue_id), queue in self.queues.items():
            left = self.left(queue)
            assert self.store.queue_bounds(topic, queue_id)[1] == len(queue)
            found, offset = [], left[0][0] if left else len(queue)
            while (got := self.store.get_message(topic, queue_id, offset)).status is GetStatus.FOUND:
                found += list(zip(got.queue_offsets, map(bytes, got.records), strict=True))
                offset = got.next_begin_offset
            assert [(n, commit_log.parse_record(data).body) for n, data in found] == [(n, k.body) for n, k in left]
            assert all(commit_log.parse_record(data).queue_offset == n for n, data in found)
            assert got.status is (GetStatus.OFFSET_OVERFLOW_ONE if queue else GetStatus.NO_MESSAGE_IN_QUEUE)

    @rule(topic=st.sampled_from(TOPICS), key=st.sampled_from(KEYS))
    def query(self, topic, key):
        lowest = self.store.min_physical_offset
        said = {
            kept.physical_offset
            for kept, of, kind in self.log
            if of == topic and kept.key == key and kind != ROLLED_BACK and kept.physical_offset >= lowest
        }
        found = self.store.query_message(topic, key)
        named = {
            o
            for o, record in zip(found.physical_offsets, found.records, strict=True)
            if properties.decode(commit_log.parse_record(record).properties).get("KEYS") == key
        }
        assert found.physical_offsets == sorted(found.physical_offsets)
        if len(found.physical_offsets) < self.options.max_query // 2:  # duplicates count, too
            assert said & self.certain_keys <= named
        assert named <= said

    @rule(tag=st.sampled_from(["TagA", "TagB", "TagA || TagB", "*"]))
    def filtered(self, tag):
        self.dispatch()
        wanted = set(tag.split(" || "))
        for (topic, queue_id), queue in self.queues.items():
            left = [(n, k) for n, k in self.left(queue) if tag == "*" or k.tag in wanted]
            found, offset = [], self.store.queue_bounds(topic, queue_id)[0]
            while offset < len(queue):
                got = self.store.get_message(topic, queue_id, offset, message_filter=TagFilter(tag))
                assert got.next_begin_offset > offset
                found += got.queue_offsets
                offset = got.next_begin_offset
            # Both real stores look for physical offset 0 in the first file left, whatever that is.
            misled = {n for n, kept in enumerate(queue) if kept.physical_offset == 0 < self.store.min_physical_offset}
            assert [n for n in found if n not in misled] == [n for n, _ in left]

    def check_from_outside(self):
        """The reading half, which shares no code with the writing one, finds every message, and nothing wrong."""
        if not self.log:
            return
        assert findings_of(self.root / "store", self.options) == []
        with mqtool.open(self.root / "store") as outside:
            found = list(outside.messages())
            assert not [item for item in found if isinstance(item, Damage)]
            assert [(m.physical_offset, m.body) for m in found] == [
                (kept.physical_offset, kept.body)
                for kept, _, _ in self.log
                if kept.physical_offset >= outside.commit_log.min_offset
            ]

    @invariant()
    def timestamps_and_bounds_are_sane(self):
        if hasattr(self, "store"):
            assert self.store.flushed_offset <= self.store._components.log.queue.wrote_offset

    def teardown(self):
        if hasattr(self, "store"):
            dispatch.FEWEST_IN_COLUMNS = self.columns
            self.store.close()
            self.check_from_outside()
            remove(self.root)


TestStore = StoreMachine.TestCase
TestStore.settings = settings(
    max_examples=40, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
TestStore.pytestmark = [pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisWarning")]
