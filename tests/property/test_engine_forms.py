"""Stores that are written by both forms of the rules: the same answers, the same bytes."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mqtool.engine import MessageStore
from mqtool.engine.write.columns import MessageColumns
from mqtool.engine.write.messages import BatchMessage
from mqtool.formats import message_batch, properties
from tests.support.engine import HeldClock, open_small, tree
from tests.support.engine_faults import fast_directory, remove
from tests.support.native import form, needs_native

pytestmark = needs_native

TOPICS = ["A", "Orders", "Bestellungen-ü", "%RETRY%" + "g" * 121, "SCHEDULE_TOPIC_XXXX", "x/y"]
SIZES = {"commit_log_file_size": 1 << 15, "consume_queue_file_size": 2000, "index_slots": 50, "index_entries": 300}
PLAIN_TEXT = st.sampled_from(["k1", "k2 k3", " k4  k5 ", "TagA", "a" * 40])
ANY_TEXT = st.one_of(PLAIN_TEXT, st.sampled_from(["ключ", "k1 钥匙", "\U0001f511", "1", "x"]))
RARE = [("DELAY", "3"), ("DELAY", "x"), ("INNER_MULTI_DISPATCH", "%LMQ%a,%LMQ%b"), ("UNIQ_KEY", "C0A8")]


@st.composite
def messages(draw, *, rare):
    """Columns: mostly plain, many of them, so that files roll within."""
    count = draw(st.integers(1, 120))
    seed = draw(st.integers(0, 1 << 30))
    random = np.random.default_rng(seed)
    texts = draw(st.lists(ANY_TEXT if rare else PLAIN_TEXT, min_size=1, max_size=4))
    extra = draw(st.lists(st.sampled_from(RARE), max_size=2)) if rare else []
    held = []
    for _ in range(count):
        pairs = [(name, str(random.choice(texts))) for name in ("KEYS", "TAGS", "UNIQ_KEY") if random.random() < 0.7]
        pairs += [pair for pair in extra if random.random() < 0.1]
        held.append(properties.encode(pairs))
    longest = draw(st.sampled_from([1, 40, 300, 5000]))
    topics = draw(st.sampled_from([[0], [0, 1], [2, 3], [0, 1, 2, 3], [4], [0, 5]] if rare else [[0], [0, 1], [0, 3]]))
    one_for_all = draw(st.booleans())
    return MessageColumns(
        TOPICS,
        random.choice(topics, count),
        random.integers(0, draw(st.integers(1, 8)), count),
        [random.bytes(int(random.integers(0, longest))) for _ in range(count)],
        draw(st.sampled_from([held, None])),
        5 if one_for_all else random.integers(-5, 5, count),
        draw(st.sampled_from([0, 1, 4, 8])) if rare else random.choice([0, 1, 0x301], count),
        draw(st.sampled_from([None, 7, -1])) if one_for_all else np.arange(count),
        reconsume_times=2 if one_for_all else np.arange(count),
        prepared_transaction_offset=draw(st.sampled_from([0, 99])),
    )


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("many"), messages(rare=False)),
        st.tuples(st.just("many"), messages(rare=True)),
        st.tuples(st.sampled_from(["put", "batch", "encoded"]), messages(rare=False)),
        st.tuples(st.sampled_from(["put", "batch", "encoded"]), messages(rare=True)),
        st.tuples(st.just("dispatch"), st.none()),
        st.tuples(st.just("pass"), st.integers(1, 5000)),
        st.tuples(st.just("flush"), st.none()),
    ),
    min_size=1,
    max_size=12,
)


def put_batch(store: MessageStore, messages: MessageColumns, *, is_encoded: bool):
    """Puts the first few of some messages as one batch; returns the answer, or the error."""
    given = [messages.message(row) for row in range(min(20, len(messages)))]
    batch = [BatchMessage(one.body, one.properties, one.flag) for one in given]
    first, data = given[0], b"".join(message_batch.build(message_batch.make(*one)) for one in batch)
    return store.put_batch(
        first.topic,
        first.queue_id,
        data if is_encoded else batch,
        sys_flag=first.sys_flag,
        born_timestamp=first.born_timestamp,
        reconsume_times=first.reconsume_times,
    )


def run(store: MessageStore, clock: HeldClock, steps) -> list[object]:
    """Takes the steps; returns what the store answered."""
    answers: list[object] = []
    for step, what in steps:
        if step == "many":
            found = store.put_many(what)
            answers.append((found.status, found.physical_offsets.tolist(), found.queue_offsets.tolist(), found.end))
        elif step == "put":
            answers += [store.put(*what.message(row)) for row in range(min(30, len(what)))]
        elif step in ("batch", "encoded"):
            answers.append(put_batch(store, what, is_encoded=step == "encoded"))
        elif step == "dispatch":
            answers.append(store.dispatch())
        elif step == "flush":
            store.flush()
        else:
            clock.time += what
    store.dispatch()
    return answers


@pytest.mark.slow
@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    STEPS,
    st.sampled_from(
        [
            {},
            {"pool_buffers": 2},
            {"index": False},
            {"lmq": True, "multi_dispatch": True},
            {"consume_queue_ext": True},
            {"index_tags": False},
            {"lock_memory": True},
            {"append_record_crc": True},
            {"positional_writes": True},
        ]
    ),
)
def test_both_forms_leave_the_same_bytes(steps, options):
    root = fast_directory()
    answers = []
    for name, size in (("arrays", 0), ("compiled", 1)):
        clock = HeldClock()
        with form(compiled=size > 0), open_small(root / name, clock, **SIZES, **options) as store:
            answers.append(run(store, clock, steps))
    assert answers[0] == answers[1]
    for part in ("commitlog", "consumequeue", "consumequeue_ext", "index"):
        assert tree(root / "arrays" / part) == tree(root / "compiled" / part), part
    remove(root)
