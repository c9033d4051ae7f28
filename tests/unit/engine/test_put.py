"""Putting: limits and statuses, queue offsets, batches, LMQ, inner batches, the record's own CRC, hooks."""

import zlib

import pytest
from msgspec.structs import replace

import mqtool
from mqtool.engine import AppendStatus, Compat, PropertyOrder, PutStatus
from mqtool.engine.write.messages import BatchMessage, check_before_put, delay_message
from mqtool.formats import commit_log, hosts, message_batch, properties
from tests.support.engine import tree

MB = 1 << 20


def stored(store, result):
    return commit_log.parse_record(store.message_at(result.physical_offset))


def encode(**pairs):
    return properties.encode(pairs.items())


@pytest.mark.parametrize(
    ("body", "held", "status"),
    [
        (b"x" * 600, b"", PutStatus.PUT_OK),
        (b"x" * 601, b"", PutStatus.MESSAGE_ILLEGAL),
        (b"", b"a\x01" + b"b" * 2000 + b"\x02", PutStatus.PUT_OK),
        (
            b"",
            b"a\x01" + b"b" * 32764 + b"\x02",
            PutStatus.MESSAGE_ILLEGAL,
        ),  # allowed as properties, too long for a file
        (b"", b"a\x01" + b"b" * 32765 + b"\x02", PutStatus.PROPERTIES_SIZE_EXCEEDED),
    ],
    ids=["body", "body too long", "properties", "longest properties", "properties too long"],
)
def test_sizes_are_limited_as_in_the_broker(opened, body, held, status):
    store = opened(max_message_size=600)
    assert store.put("T", 0, body, held).status is status


def test_the_limit_of_bodies_changes_on_an_open_store(opened):
    store = opened(max_message_size=600)
    for size in (900, 300):
        store.change_limits(replace(store.options, max_message_size=size))
        for body, status in ((b"x" * size, PutStatus.PUT_OK), (b"x" * (size + 1), PutStatus.MESSAGE_ILLEGAL)):
            assert store.put("T", 0, body).status is status
            assert store.put_batch("T", 0, [BatchMessage(body)]).status is status


@pytest.mark.parametrize(
    ("topic", "queue_id", "compat", "status"),
    [
        ("x" * 127, 0, Compat.V4_9, PutStatus.PUT_OK),
        ("x" * 128, 0, Compat.V4_9, PutStatus.MESSAGE_ILLEGAL),
        ("x" * 255, 0, Compat.V5_5, PutStatus.PUT_OK),
        ("x" * 256, 0, Compat.V5_5, PutStatus.MESSAGE_ILLEGAL),
        (
            "é" * 64,
            0,
            Compat.V5_5,
            PutStatus.MESSAGE_ILLEGAL,
        ),  # V1 by its characters, 128 bytes: no record could say that
        ("", 0, Compat.V5_5, PutStatus.MESSAGE_ILLEGAL),
        ("..", 0, Compat.V5_5, PutStatus.MESSAGE_ILLEGAL),
        ("a/b", 0, Compat.V5_5, PutStatus.MESSAGE_ILLEGAL),
        ("T", -1, Compat.V5_5, PutStatus.MESSAGE_ILLEGAL),
    ],
)
def test_topics_and_queues_that_no_record_or_directory_can_name_are_refused(opened, topic, queue_id, compat, status):
    assert opened(compat=compat).put(topic, queue_id, b"x").status is status


def test_a_refused_message_takes_no_queue_offset(opened):
    store = opened()
    assert store.put("T", 0, b"x" * 5000).status is PutStatus.MESSAGE_ILLEGAL
    assert store.put("T", 0, b"x").queue_offset == 0


def test_prepared_and_rolled_back_messages_stand_at_offset_0_and_take_none(opened):
    store = opened()
    offsets = [
        store.put("T", 0, b"x", b"", 0, kind, prepared_transaction_offset=7).queue_offset
        for kind in (0, 0, 4, 12, 8, 0)
    ]
    assert offsets == [0, 1, 0, 0, 2, 3]
    store.dispatch()
    assert store.queue_bounds("T", 0) == (0, 4)


def test_what_the_caller_leaves_out_has_defaults(opened, clock):
    store = opened()
    record = stored(store, store.put("T", 3, b"x"))
    assert (record.born_timestamp, record.store_timestamp) == (clock.time, clock.time)
    assert hosts.text_of(record.store_host) == "127.0.0.1:10911"
    assert hosts.text_of(record.born_host) == "127.0.0.1:0"


def test_the_flag_of_ipv6_hosts_follows_the_hosts(opened):
    store = opened()
    six, four = hosts.build(hosts.parse_text("[::1]:9")), hosts.build(hosts.parse_text("1.2.3.4:9"))
    flags = [
        stored(store, store.put("T", 0, b"x", b"", 0, 0x30, None, born, host)).sys_flag
        for born in (four, six)
        for host in (four, six)
    ]
    assert flags == [0, 0x20, 0x10, 0x30]


@pytest.mark.parametrize("positional", [False, True])
def test_records_are_the_same_however_they_are_written(opened, positional, clock):
    store = opened(positional_writes=positional)
    for number in range(60):
        clock.time += 1
        assert store.put("T", number % 2, bytes([number]) * (10 * number), encode(KEYS=f"k{number}")).ok
    other = opened("pool", pool_buffers=2)
    clock.time -= 60
    for number in range(60):
        clock.time += 1
        other.put("T", number % 2, bytes([number]) * (10 * number), encode(KEYS=f"k{number}"))
    store.close()
    other.close()
    assert tree(store.path / "commitlog") == tree(other.path / "commitlog")


# -- batches


def test_a_batch_lies_together_and_moves_its_queue_by_its_count(opened):
    store = opened()
    store.put("T", 0, b"first")
    result = store.put_batch("T", 0, [BatchMessage(b"a", encode(TAGS="A"), 7), BatchMessage(b"bc")])
    records = [commit_log.parse_record(store.message_at(offset)) for offset in result.physical_offsets]
    assert [(r.body, r.flag, r.queue_offset, r.properties) for r in records] == [
        (b"a", 7, 1, b"TAGS\x01A\x02"),
        (b"bc", 0, 2, b""),
    ]
    assert records[0].physical_offset + records[0].total_size == records[1].physical_offset
    assert store.put("T", 0, b"next").queue_offset == 3
    assert result.offset_message_id.count(",") == 1


def test_a_batch_may_come_as_a_client_encodes_it(opened):
    store = opened()
    body = b"".join(message_batch.build(message_batch.make(text, encode(KEYS="k"), 3)) for text in (b"one", b"two"))
    result = store.put_batch("T", 0, body)
    assert [commit_log.parse_record(store.message_at(o)).body for o in result.physical_offsets] == [b"one", b"two"]


def test_a_batch_that_does_not_fit_a_file_moves_as_a_whole(opened):
    store = opened()
    store.put("T", 0, b"x" * 3000)
    result = store.put_batch("T", 0, [BatchMessage(b"y" * 400)] * 3)
    assert result.physical_offset == 4096


@pytest.mark.parametrize(
    ("messages", "held", "sys_flag"),
    [
        ([], b"", 0),
        (b"no batch", b"", 0),
        ([BatchMessage(b"x")], b"DELAY\x013\x02", 0),
        ([BatchMessage(b"x")], b"", 4),
        ([BatchMessage(b"x" * 900)] * 5, b"", 0),
    ],
    ids=["empty", "malformed", "delayed", "transaction", "longer than a file"],
)
def test_batches_that_the_broker_refuses_are_refused_whole(opened, messages, held, sys_flag):
    store = opened()
    assert store.put_batch("T", 0, messages, held, sys_flag).status is PutStatus.MESSAGE_ILLEGAL
    assert store.put("T", 0, b"x").queue_offset == 0


def test_4_9_adds_the_properties_of_a_batch_to_each_of_its_messages(opened):
    store = opened(compat=Compat.V4_9)
    result = store.put_batch("T", 0, [BatchMessage(b"a", b"KEYS\x01k"), BatchMessage(b"b")], b"CLUSTER\x01c")
    records = [commit_log.parse_record(store.message_at(offset)) for offset in result.physical_offsets]
    assert [r.properties for r in records] == [b"KEYS\x01k\x02CLUSTER\x01c", b"CLUSTER\x01c"]


@pytest.mark.parametrize("number", [b"abc", b"3", b"40000"])
@pytest.mark.parametrize("is_encoded", [False, True])
@pytest.mark.usefixtures("either_way")
def test_a_batch_with_a_message_at_which_dispatch_would_stop_is_refused(opened, number, is_encoded):
    store = opened()
    poison = b"INNER_NUM\x01" + number + b"\x02INNER_BASE\x010\x02"
    messages = [BatchMessage(b"a"), BatchMessage(b"b", poison)]
    encoded = b"".join(message_batch.build(message_batch.make(*one)) for one in messages)
    store.put("T", 0, b"first", b"KEYS\x01k\x02")
    assert store.put_batch("T", 0, encoded if is_encoded else messages).status is PutStatus.MESSAGE_ILLEGAL
    assert store.put_batch("T", 0, [BatchMessage(b"c", b"NO_INNER_NUM\x01x\x02")]).status is PutStatus.PUT_OK
    store.dispatch()
    assert store.queue_bounds("T", 0) == (0, 2)


def test_a_message_of_a_batch_may_be_as_long_as_any_other(opened):
    store = opened(max_message_size=600)
    batch = [BatchMessage(b"a" * 600), BatchMessage(b"b" * 601)]
    assert store.put_batch("T", 0, batch[:1]).status is PutStatus.PUT_OK
    assert store.put_batch("T", 0, batch).status is PutStatus.MESSAGE_ILLEGAL
    assert store.put_batch("T", 0, batch).offset_message_id == ""
    too_long = BatchMessage(b"", b"p" * 32768)
    assert store.put_batch("T", 0, [*batch, too_long]).status is PutStatus.MESSAGE_ILLEGAL
    assert store.put_batch("T", 0, [too_long, *batch]).status is PutStatus.PROPERTIES_SIZE_EXCEEDED


# -- the record's own CRC


def test_a_record_may_end_in_its_own_crc(opened):
    store = opened(append_record_crc=True)
    record = stored(store, store.put("T", 0, b"hello", b"__CRC32#\x010000000000\x02KEYS\x01k"))
    data = bytes(store.message_at(record.physical_offset))
    assert record.properties.startswith(b"KEYS\x01k\x02__CRC32#\x01")
    assert properties.with_crc32(data) == data
    assert properties.crc32_tail(1132326231) == b"__CRC32#\x011326232311\x02"


def test_the_crc_of_a_batched_record_follows_its_properties_as_they_are(opened):
    store = opened(append_record_crc=True)
    result = store.put_batch("T", 0, [BatchMessage(b"a", b"KEYS\x01k"), BatchMessage(b"b", b"TAGS\x01t\x02")])
    records = [bytes(store.message_at(offset)) for offset in result.physical_offsets]
    assert [commit_log.parse_record(one).properties[:-20] for one in records] == [b"KEYS\x01k", b"TAGS\x01t\x02"]
    for one in records:  # the least significant digit comes first, zeros last
        digits = str(zlib.crc32(one[:-20]) & 0x7FFFFFFF)[::-1].ljust(10, "0")
        assert one[-20:] == b"__CRC32#\x01" + digits.encode() + b"\x02"


# -- LMQ and inner batches


def test_a_light_message_names_its_offsets_and_reaches_every_queue(opened):
    store = opened(lmq=True, multi_dispatch=True, property_order=PropertyOrder.GIVEN, index_tags=False)
    held = properties.encode([("INNER_MULTI_DISPATCH", "%LMQ%a,%LMQ%b"), ("WAIT", "true"), ("TAGS", "x")])
    first = store.put("TopicTest", 1, b"light", held)
    second = store.put("TopicTest", 1, b"light", encode(INNER_MULTI_DISPATCH="%LMQ%a"))
    assert stored(store, first).properties == (
        b"INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%b\x02TAGS\x01x\x02INNER_MULTI_QUEUE_OFFSET\x010,0\x02WAIT\x01true\x02"
    )
    assert properties.decode(stored(store, second).properties)["INNER_MULTI_QUEUE_OFFSET"] == "1"
    store.dispatch()
    assert [store.queue_bounds(name, 0)[1] for name in ("%LMQ%a", "%LMQ%b")] == [2, 1]
    assert store.queue_bounds("TopicTest", 1) == (0, 2)
    assert store.get_message("%LMQ%b", 0, 0).records == [store.message_at(first.physical_offset)]


def test_messages_of_system_and_retry_topics_reach_no_light_queue(opened):
    """LmqDispatch skips %RETRY%, rmq_sys_ and SCHEDULE_TOPIC_XXXX (MessageExtBrokerInner.needDispatchLMQ, 5.5.0)."""
    store = opened(lmq=True, multi_dispatch=True, declared=("log-unusable-message",))
    held = encode(INNER_MULTI_DISPATCH="%LMQ%a")
    for topic in ("%RETRY%G", "rmq_sys_x", "SCHEDULE_TOPIC_XXXX"):
        assert stored(store, store.put(topic, 0, b"x", held)).properties == held
    store.dispatch()
    assert store.queue_bounds("%LMQ%a", 0) == (0, 0)


def test_the_offsets_of_light_queues_count_towards_the_size_of_a_message(opened):
    store = opened(lmq=True, multi_dispatch=True, max_message_size=600)
    held = encode(INNER_MULTI_DISPATCH="%LMQ%a")
    assert store.put("T", 0, b"x" * 300, held).status is PutStatus.PUT_OK
    refused = store.put("T", 0, b"x" * 600, held)
    assert (refused.status, refused.append_status) == (PutStatus.MESSAGE_ILLEGAL, AppendStatus.MESSAGE_SIZE_EXCEEDED)
    assert store.put("T", 0, b"x" * 600, encode(KEYS="k")).status is PutStatus.PUT_OK


def test_a_client_that_states_light_offsets_itself_harms_only_its_own_message(opened, caplog):
    """With enableMultiDispatch alone, 5.5.0 stores both properties as sent; its dispatch would stop at the last ones."""
    declared = ("log-offset-gap", "log-offset-repeat", "queue-missing", "queue-shifted-unit")
    store = opened(multi_dispatch=True, declared=declared)
    light = {"a": ("%LMQ%a", "0"), "gap": ("%LMQ%a", "5"), "again": ("%LMQ%a", "1")}
    unusable = {"text": ("%LMQ%a", "soon"), "count": ("%LMQ%a,%LMQ%b", "1"), "name": ("%LMQ%\0", "0")}
    for names, offsets in (*light.values(), *unusable.values()):
        held = encode(INNER_MULTI_DISPATCH=names, INNER_MULTI_QUEUE_OFFSET=offsets)
        assert store.put("T", 0, b"x", held).status is PutStatus.PUT_OK
    store.put("T", 0, b"last")
    store.dispatch()
    assert store.queue_bounds("T", 0) == (0, 7)
    assert store.queue_bounds("%LMQ%a", 0) == (0, 2)
    assert store.queues() == [("%LMQ%a", 0), ("T", 0)]
    assert "unit out of order topic=%LMQ%a queue=0 expected=5 next=1" in caplog.text
    assert "unit already exists queue=%LMQ%a/0 offset=1" in caplog.text
    assert "expected a Java long, found 'soon'" in caplog.text
    assert "2 queues in INNER_MULTI_DISPATCH, 1 in INNER_MULTI_QUEUE_OFFSET" in caplog.text


@pytest.mark.parametrize(("letters", "order"), [("ABCDEFGHIP", "PABCDEFGHI"), ("ABCDEFGHIJP", "ABCDEFGHIJP")])
def test_properties_are_stored_in_the_order_of_a_map_that_doubles_when_it_is_three_quarters_full(
    opened, letters, order
):
    """4.9's map of 16 buckets has P (80) in bucket 0; with two names of light queues and eleven others it has 32."""
    store = opened(compat=Compat.V4_9, multi_dispatch=True, property_order=PropertyOrder.HASH)
    held = encode(**dict.fromkeys(letters, "v"), INNER_MULTI_DISPATCH="%LMQ%a")
    names = properties.decode(stored(store, store.put("T", 0, b"x", held)).properties)
    assert "".join(name for name in names if len(name) == 1) == order


def test_light_offsets_go_on_after_reopening(opened):
    first = opened(lmq=True, multi_dispatch=True)
    first.put("T", 0, b"x", encode(INNER_MULTI_DISPATCH="%LMQ%a"))
    first.close()
    again = opened(lmq=True, multi_dispatch=True)
    result = again.put("T", 0, b"x", encode(INNER_MULTI_DISPATCH="%LMQ%a"))
    assert properties.decode(stored(again, result).properties)["INNER_MULTI_QUEUE_OFFSET"] == "1"


def test_a_name_at_which_the_real_dispatch_hangs_is_refused(opened):
    store = opened(lmq=True, multi_dispatch=True)
    assert store.put("T", 0, b"x", encode(INNER_MULTI_DISPATCH="plain,%LMQ%a")).status is PutStatus.MESSAGE_ILLEGAL


@pytest.mark.parametrize(
    ("topic", "held", "sys_flag", "status"),
    [
        ("Batched", b"INNER_NUM\x013\x02", 0xC0, PutStatus.PUT_OK),
        ("Batched", b"", 0xC0, PutStatus.MESSAGE_ILLEGAL),
        ("Batched", b"INNER_NUM\x013\x02", 0, PutStatus.MESSAGE_ILLEGAL),
        ("Plain", b"INNER_NUM\x013\x02", 0xC0, PutStatus.MESSAGE_ILLEGAL),
        ("Batched", b"INNER_NUM\x01many\x02", 0xC0, PutStatus.MESSAGE_ILLEGAL),
    ],
)
def test_an_inner_batch_must_say_how_many_it_holds(in_memory, opened, topic, held, sys_flag, status):
    write_topics(in_memory / "store")
    assert opened().put(topic, 0, b"x", held, 0, sys_flag).status is status


def test_an_inner_batch_moves_its_queue_by_its_messages(in_memory, opened):
    write_topics(in_memory / "store")
    store = opened(declared=("log-inner-batch",))
    body = b"".join(message_batch.build(message_batch.make(bytes([n]), b"")) for n in range(3))
    results = [store.put("Batched", 0, body, encode(INNER_NUM="3"), 0, 0xC0) for _ in range(4)]
    single = store.put("Batched", 0, b"single")
    assert [r.queue_offset for r in (*results, single)] == [0, 3, 6, 9, 12]
    assert properties.decode(stored(store, results[2]).properties) == {"INNER_NUM": "3", "INNER_BASE": "6"}
    store.dispatch()
    assert store.queue_bounds("Batched", 0) == (0, 13)
    found = store.get_message("Batched", 0, 4)
    assert (found.queue_offsets, found.next_begin_offset) == ([3, 6, 9, 12], 13)


def test_a_get_from_a_batch_queue_ends_with_its_file_live_and_on_disk(in_memory, opened):
    write_topics(in_memory / "store")
    store = opened(batch_consume_queue_file_size=46 * 2)
    for _ in range(5):
        assert store.put("Batched", 0, b"x").ok
    store.dispatch()
    store.flush()
    with mqtool.open(store.path) as disk:
        for first, most, following in [(0, 32, 2), (1, 32, 2), (2, 32, 4), (3, 1, 4), (4, 32, 5), (5, 32, 5)]:
            live, read = store.get_message("Batched", 0, first, most), disk.get_message("Batched", 0, first, most)
            assert live.next_begin_offset == read.next_begin_offset == following
            assert live.queue_offsets == [one.queue_offset for one in read.messages] == [*range(first, following)]
    assert store.store_time("Batched", 0, 4) > 0
    assert store.store_time("Batched", 0, 5) == -1


def test_an_inner_batch_of_no_messages_gets_a_unit(in_memory, opened):
    write_topics(in_memory / "store")
    store = opened(declared=("log-inner-batch", "queue-bad-unit"))  # recovery cuts the queue before such a unit
    put = [store.put("Batched", 0, b"x", encode(INNER_NUM=count), 0, 0xC0) for count in "02"]
    assert [one.queue_offset for one in put] == [0, 0]
    store.dispatch()
    queue = store._components.queues.get("Batched", 0)
    assert [unit.batch_size for unit in queue.units_from(0)] == [0, 2]


def write_topics(root):
    (root / "config").mkdir(parents=True)
    (root / "config" / "topics.json").write_text(
        '{"topicConfigTable":{"Batched":{"attributes":{"queue.type":"BatchCQ"},"topicName":"Batched"}}}', "utf-8"
    )


# -- hooks


def test_the_brokers_check_comes_before_the_store(opened):
    busy = [False]
    store = opened(hooks=[check_before_put(lambda: busy[0])])
    assert store.put("x" * 128, 0, b"x").status is PutStatus.MESSAGE_ILLEGAL
    assert store.put("%RETRY%" + "x" * 200, 0, b"x").status is PutStatus.PUT_OK
    busy[0] = True
    assert store.put("T", 0, b"x") == (PutStatus.OS_PAGE_CACHE_BUSY, None, -1, 0, 0, 0, b"", ())


@pytest.mark.parametrize(("level", "queue_id", "stored_level"), [("3", 2, "3"), ("99", 17, "18")])
def test_a_delayed_message_waits_in_the_queue_of_its_level(opened, level, queue_id, stored_level, clock):
    from mqtool.engine.options import StoreOptions

    store = opened(hooks=[delay_message(StoreOptions())])
    result = store.put("Orders", 5, b"later", encode(DELAY=level, TAGS="A"))
    record = stored(store, result)
    assert (record.topic, record.queue_id) == (b"SCHEDULE_TOPIC_XXXX", queue_id)
    found = properties.decode(record.properties)
    assert (found["REAL_TOPIC"], found["REAL_QID"], found["DELAY"]) == ("Orders", "5", stored_level)
    store.dispatch()
    unit = store._components.queues.get("SCHEDULE_TOPIC_XXXX", queue_id).unit(0)
    assert unit[2] == clock.time + (10_000 if level == "3" else 7_200_000)


def test_a_message_without_a_level_goes_where_it_was_sent(opened):
    from mqtool.engine.options import StoreOptions

    store = opened(hooks=[delay_message(StoreOptions())])
    assert stored(store, store.put("Orders", 5, b"now", encode(DELAY="0"))).topic == b"Orders"
    assert store.put("Orders", 5, b"?", encode(DELAY="soon")).status is PutStatus.MESSAGE_ILLEGAL


def test_a_put_says_where_the_message_is(opened, clock):
    store = opened()
    result = store.put("T", 0, b"hello", b"", store_host=hosts.build(hosts.parse_text("192.168.1.10:10911")))
    assert (result.status, result.append_status, result.ok) == (PutStatus.PUT_OK, AppendStatus.PUT_OK, True)
    assert (result.physical_offset, result.end, result.store_timestamp) == (0, result.size, clock.time)
    assert result.offset_message_id == "C0A8010A00002A9F0000000000000000"


def test_a_batch_as_a_client_encodes_it_is_stored_like_its_messages(opened):
    messages = [BatchMessage(b"x" * size, encode(KEYS=f"k{size}") if size % 2 else b"", size) for size in range(40)]
    encoded = b"".join(message_batch.build(message_batch.make(*one)) for one in messages)
    options = {"commit_log_file_size": 1 << 15}
    given, split = opened("given", **options), opened("split", **options)
    assert given.put_batch("T", 0, messages) == split.put_batch("T", 0, encoded)
    assert (given.path / "commitlog").is_dir()
    assert tree(given.path / "commitlog") == tree(split.path / "commitlog")


@pytest.mark.parametrize("cut", [1, 19, 21, 22, 23, 50])
def test_a_batch_that_does_not_end_is_refused_whole(opened, cut):
    parts = (message_batch.make(b"first", b"a\x01b\x02"), message_batch.make(b"x" * 30, b""))
    encoded = b"".join(map(message_batch.build, parts))
    store = opened()
    assert store.put_batch("T", 0, encoded[:-cut]).status is PutStatus.MESSAGE_ILLEGAL
    assert store.max_physical_offset == 0
