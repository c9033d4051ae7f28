"""The pages as a browser without a screen gets them: figures are the broker's, and nothing can be smuggled in."""

import json
import re
import zlib
from urllib.parse import quote

import pytest

from mqtool.errors import StoreClosedError, StoreError
from mqtool.server.admin import message
from mqtool.server.admin import site as pages
from mqtool.store.config.broker_config import BrokerConfig
from tests.support.engine import open_small
from tests.support.html_page import Page
from tests.support.remoting import records
from tests.unit.server.broker.conftest import until

HOSTILE = "<script>alert(1)</script>\"'&{{7*7}}\u202e<img src=x onerror=1>"


@pytest.fixture
def put(client, request):
    """Stores messages in a topic named after the test, and waits until they are in their queues."""
    topic = request.node.name.replace("[", "-").replace("]", "")[-100:]

    def call(*bodies: bytes, **more):
        sent = [client.put(topic, body, **more) for body in bodies]
        assert [one.code for one in sent] == [0] * len(bodies)
        last = int(sent[-1].fields["queueOffset"])
        until(lambda: int(client.call(30, topic=topic, queueId=sent[-1].fields["queueId"]).fields["offset"]) > last)
        return topic, sent

    return call


def test_the_first_page_shows_state_topics_and_lag(site, client, put):
    topic, _ = put(b"a", b"b", b"c")
    client.heartbeat("lag@1", consumers={"GLag": [topic]})
    client.call(15, consumerGroup="GLag", topic=topic, queueId=0, commitOffset=1)
    page = Page(site.get("/").text)
    assert "ready Messages are accepted and delivered." in page.text
    assert f"GLag {topic} 2 1 " in page.text
    assert re.search(rf"{topic} 3 [0-9.]+ 1 2 ", page.text)


def test_a_page_without_a_field_refreshes_itself(site, put):
    topic, _ = put(b"a")
    refreshed = {
        path: 'http-equiv="refresh"' in site.get(path).text for path in ("/", f"/topic?name={topic}", "/topics")
    }
    assert refreshed == {"/": True, f"/topic?name={topic}": True, "/topics": False}


def test_the_rate_of_a_topic_is_that_of_the_counters(site, client, put):
    topic, _ = put(*[b"x"] * 60)
    stats = site.server.broker.stats
    expected = stats.item("TOPIC_PUT_NUMS", topic)["statsMinute"]
    shown = float(re.search(rf"{topic} 60 ([0-9.]+) ", Page(site.get("/topics").text).text)[1])
    assert expected["sum"] == 60
    assert 0 < shown <= 60


def test_a_topic_shows_its_queues_as_the_broker_counts_them(site, client, put):
    topic, _ = put(b"a", b"b", queue=2)
    page = Page(site.get(f"/topic?name={topic}").text)
    assert "0 0 0 0 –" in page.text
    assert "2 0 2 2 at 1 of queue 2" in page.text


def test_a_group_shows_members_and_offsets(site, client, put):
    topic, _ = put(b"a", b"b")
    client.heartbeat("member@7", consumers={"GShown": [topic]})
    client.call(15, consumerGroup="GShown", topic=topic, queueId=0, commitOffset=2)
    page = Page(site.get("/group?name=GShown").text)
    assert "1 member, CLUSTERING, CONSUME_PASSIVELY" in page.text
    assert "member@7 127.0.0.1:" in page.text
    assert f"{topic} 0 2 2 0" in page.text


@pytest.mark.parametrize("page", ["topic", "group"])
def test_what_is_not_there_is_said_to_be_missing(site, page):
    got = site.get(f"/{page}?name=none")
    assert (got.status, f"There is no {page} none." in got.text) == (404, True)


@pytest.mark.parametrize("how", ["id", "unique", "unique-without-topic", "key", "place", "physical"])
def test_a_message_is_found_by_what_is_known_of_it(site, client, put, how):
    unique = f"{abs(hash(how)):032X}"
    topic, (_, sent) = put(b"other", f"wanted {how}".encode(), properties={"KEYS": "one two", "UNIQ_KEY": unique})
    ((record, _),) = records(client.pull(topic, offset=1))
    query = {
        "id": f"id={sent.fields['msgId']}",
        "unique": f"id={unique}&topic={topic}",
        "unique-without-topic": f"id={unique}",
        "key": f"topic={topic}&key=two",
        "place": f"topic={topic}&queue=0&offset=1",
        "physical": f"physical={record['physical_offset']}",
    }[how]
    page = Page(site.get(f"/messages?{query}").text)
    if how in ("unique", "unique-without-topic", "key"):  # both have them: a list, whose links lead to each
        link = next(one for one in page.links() if one == f"/messages?physical={record['physical_offset']}")
        page = Page(site.get(link).text)
    assert f"wanted {how}" in page.text
    assert f"Physical offset {record['physical_offset']}" in page.text


def test_a_search_in_all_topics_that_takes_too_long_says_how_far_it_came(site, put, monkeypatch):
    put(b"a")
    put(b"b")
    monkeypatch.setattr(message, "SEARCH_S", -1.0)
    got = site.get(f"/messages?id={'A' * 32}")
    assert re.search(r"Searched 1 of \d+ topics; give a topic to search only that one\.", Page(got.text).text)


def test_a_place_outside_of_a_queue_says_what_the_queue_has(site, put):
    topic, _ = put(b"a", b"b")
    got = site.get(f"/messages?topic={topic}&queue=0&offset=7")
    assert (got.status, "Queue 0 of the topic contains 0 to 1." in Page(got.text).text) == (404, True)
    got = site.get(f"/messages?topic={topic}&queue=1&offset=0")
    assert (got.status, "Queue 1 of the topic contains no message." in Page(got.text).text) == (404, True)


def test_a_message_says_which_groups_have_consumed_it(site, client, put):
    topic, _ = put(b"a", b"b")
    for group, offset in (("TOOLS_CONSUMER", 2), ("SELF_TEST_C_GROUP", 1)):
        client.call(15, consumerGroup=group, topic=topic, queueId=0, commitOffset=offset)
    page = Page(site.get(f"/messages?topic={topic}&offset=1").text)
    assert "SELF_TEST_C_GROUP 1 no TOOLS_CONSUMER 2 yes" in page.text


def test_another_message_with_the_same_hash_of_its_key_is_not_shown(site, put):
    topic, _ = put(b"a", properties={"KEYS": "Aa"})  # "Aa" and "BB" have one hash in Java
    until(lambda: site.get(f"/messages?topic={topic}&key=Aa").status == 200)  # its index entry follows its unit
    assert site.get(f"/messages?topic={topic}&key=BB").status == 404


def test_a_place_inside_a_record_is_no_message(site, client, put):
    topic, _ = put(b"a")
    ((record, _),) = records(client.pull(topic))
    assert site.get(f"/messages?physical={record['physical_offset'] + 1}").status == 404


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("topic=TBW102&offset=x", "expected a queue offset of 0 to 9223372036854775807, found x"),
        ("topic=TBW102&queue=-1&offset=0", "expected a queue id"),
        ("physical=99999999999999999999", "expected a physical"),
        ("key=a", "a topic is needed, too"),
        ("topic=none&key=a", "there is no topic none"),
        ("physical=%D9%A1", "expected a physical offset"),
    ],
)
def test_a_question_that_makes_no_sense_is_answered_with_what_is_expected(site, query, said):
    got = site.get(f"/messages?{query}")
    assert (got.status, said in Page(got.text).text) == (400, True)


def test_a_hostile_body_is_text(site, put):
    topic, _ = put(
        HOSTILE.encode() + b"\nsecond\r\n\tline\x00", properties={"KEYS": HOSTILE.replace(" ", ""), "TAGS": HOSTILE}
    )
    got = site.get(f"/messages?topic={topic}&offset=0")
    page = Page(got.text)
    shown = HOSTILE.replace("\u202e", "\\u202e")
    assert any(f"{shown}\nsecond\n    line\\u0000" in text for text in page.texts)
    assert "\u202e" not in got.text
    assert {tag for tag, _ in page.tags} & {"script", "img"} == set()
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]


def test_a_hostile_question_is_shown_as_it_was_asked(site):
    for target in ("/messages?topic={}&key=x", "/topic?name={}", "/group?name={}", "/topics?q={}", "/messages?id={}"):
        got = site.get(target.format(quote(HOSTILE)))
        page = Page(got.text)
        assert {tag for tag, _ in page.tags} & {"script", "img"} == set()
        assert "\u202e" not in got.text


def test_topics_with_hostile_names_do_nothing(site, client):
    from mqtool.server.broker.topics import plain_topic

    async def add():
        site.server.broker.topics.put(plain_topic(HOSTILE, 1))

    async def remove():
        site.server.broker.topics.delete(HOSTILE)

    site.run(add())
    try:
        page = Page(site.get("/topics").text)
        assert {tag for tag, _ in page.tags} & {"script", "img"} == set()
        link = next(one for one in page.links() if "script" in one)
        assert HOSTILE.replace("\u202e", "\\u202e") in Page(site.get(link).text).text
    finally:
        site.run(remove())


def test_a_long_body_is_cut_and_a_compressed_one_read(site, put):
    topic, _ = put(zlib.compress(b"y" * 100_000), sys_flag=1)
    text = Page(site.get(f"/messages?topic={topic}&offset=0").text).text
    assert "97.7 KiB; its beginning is shown" in text
    assert "y" * 8000 in text
    assert "y" * 9000 not in text


def test_a_body_that_would_fill_the_memory_is_shown_as_stored(site, put):
    topic, _ = put(zlib.compress(bytes(64 << 20)), sys_flag=1)
    got = site.get(f"/messages?topic={topic}&offset=0")
    assert "decodes to more than" in got.text
    assert len(got.text) < 20_000


def test_bytes_that_are_no_text_are_shown_as_digits(site, put):
    topic, _ = put(b"\xff\xfe\x00\x01")
    assert "0000 ff fe 00 01" in Page(site.get(f"/messages?topic={topic}&offset=0").text).text


def test_a_message_that_names_its_place_wrongly_is_distinguished(site, put):
    topic, _ = put(b"only")
    page = Page(site.get(f"/messages?topic={topic}&offset=9").text)
    assert "Queue 0 of the topic contains 0 to 0." in page.text


def test_long_lists_come_in_parts(site, client):
    for number in range(101):
        client.create_topic(f"Part-{number:03}")
    first = Page(site.get("/topics?q=part-").text)
    assert ("Part 1 of 2" in first.text, "Part-100" in first.text) == (True, False)
    following = next(link for link in first.links() if "page=2" in link)
    assert "Part-100" in Page(site.get(following).text).text


def test_a_group_without_offsets_is_listed_with_its_members(site, client, put):
    topic, _ = put(b"a")
    group = {"groupName": "GIdle", "retryMaxTimes": 1}
    assert client.call(200, json.dumps(group).encode()).code == 0
    assert "GIdle no offsets – 0 0.0" in Page(site.get("/groups?q=gidle").text).text
    client.heartbeat("idle@1", consumers={"GIdle": [topic]})
    assert "GIdle no offsets – 1 0.0" in Page(site.get("/groups?q=gidle").text).text


def test_offsets_of_a_topic_that_does_not_exist_are_not_shown(site, client, put):
    topic, _ = put(b"a")
    client.heartbeat("c@1", consumers={"GHalf": [topic]})
    client.call(15, consumerGroup="GHalf", topic=topic, queueId=0, commitOffset=1)
    site.run(commit(site, "GHalf", "NoSuchTopic"))
    page = Page(site.get("/group?name=GHalf").text)
    assert f"{topic} 0 1 1 0" in page.text
    assert "NoSuchTopic" not in page.text


async def commit(site, group, topic):
    site.server.broker.offsets.commit(group, topic, 0, 5)


def test_in_place_of_a_damaged_message_the_next_one_is_shown(serve, tmp_path):
    with open_small(tmp_path / "store") as store:
        sent = [store.put("T", 0, b"body %d" % number) for number in range(3)]
    path = tmp_path / "store" / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[sent[1].physical_offset + 88] ^= 0xFF
    path.write_bytes(data)
    config = BrokerConfig({"maxHashSlotNum": "10", "maxIndexNum": "20"}, source="test")
    site = serve(tmp_path / "store", read_only=True, config=config)
    page = Page(site.get("/messages?topic=T&queue=0&offset=1").text).text
    assert "The message at queue offset 1 is damaged or deleted; this is the next one." in page
    assert ("body 2" in page, "body 1" in page) == (True, False)


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (StoreError("cannot be read", "commitlog"), 500, "The store could not be read: commitlog: cannot be read"),
        (OSError(5, "Input/output error"), 500, "The store could not be read: [Errno 5] Input/output error"),
        (StoreClosedError("used after close", "store"), 503, "The broker is stopping."),
    ],
    ids=["store", "disk", "closed"],
)
def test_a_page_about_a_store_that_cannot_be_read_says_why(site, monkeypatch, error, status, said):
    def fails(_):
        raise error

    monkeypatch.setitem(pages.ROUTES, "/topics", fails)
    got = site.get("/topics")
    assert (got.status, said in Page(got.text).text) == (status, True)
