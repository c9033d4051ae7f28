"""`mqtool report`: what stands on the page, what may not, and how a real browser shows it."""

import re
from itertools import pairwise
from pathlib import Path

import pytest

from mqtool.verify import segment
from tests.cli.answers import problems
from tests.support import chromium
from tests.support.builder import StoreBuilder
from tests.support.damage import damage_case
from tests.support.html_page import Page
from tests.support.stores import answers, copy_store, fixture, tree_digest

HEALTHY = fixture("orders-5.5.0/store")
DAMAGED = "old-zero-page@5.5.0-clean"
HOSTILE = "<script>alert(1)</script>\"'&{{7*7}}\u202e<img src=x onerror=1>"


@pytest.fixture
def report(mqtool, tmp_path):
    def call(store: Path, *arguments: object, code: int = 0) -> str:
        out = tmp_path / "report.html"
        before = tree_digest(store)
        result = mqtool("report", store, "-o", out, "--format", "json", *arguments)
        assert result.code == code, result.stderr
        assert tree_digest(store) == before
        assert problems("report", result.document) == []
        assert result.document["size"] == out.stat().st_size
        return out.read_text("utf-8")

    return call


@pytest.fixture
def damaged(tmp_path):
    """A store with a page of zeros in an old segment, and one segment gone."""
    store = damage_case(DAMAGED, tmp_path / "damaged")
    sorted((store / "commitlog").iterdir())[5].unlink()
    return store


def test_a_healthy_store_is_reported_as_clean(report):
    page = Page(report(HEALTHY))
    assert "clean Nothing is wrong." in page.text
    assert "No message and no byte is lost." in page.text
    assert "The configuration fits the files." in page.text, "which is next to the store"


def test_a_damaged_store_shows_all_that_verify_says(report, mqtool, damaged):
    verified = mqtool("verify", damaged, "--format", "json").document
    page = Page(report(damaged, code=1))
    head = page.text.partition("Messages lost")[0]
    assert f"Lost already: {verified['lost_messages']} messages" in head
    assert f"Next start: {verified['next_start']['headline']}." in head
    for finding in verified["findings"]:
        for word in (finding["code"], finding["evidence"]):
            assert " ".join(word.split()) in page.text
    for part in verified["lost_ranges"]:
        assert f"{part['start']} {part['end']}" in page.text
    for loss in verified["lost_messages_of_groups"]:
        assert f"{loss['group']} {loss['topic']} {loss['queue_id']} {loss['consumer_offset']} " in page.text
    for code in {finding["code"] for finding in verified["findings"]}:
        (check,) = mqtool("help", code, "--format", "json").document["rows"]
        assert " ".join(check["remedy"].split()) in page.text


def test_a_page_has_the_one_command_that_verify_names(report, mqtool, damaged):
    (step,) = mqtool("verify", damaged, "--format", "json").document["next_steps"]
    text = report(damaged, code=1)
    assert re.findall(r"<code>(mqtool [^<]*)</code>", text) == [step]


def test_a_page_names_the_line_for_broker_conf_and_no_command_where_sizes_are_wrong(report, tmp_path):
    store = copy_store("crash-5.5.0", tmp_path)
    (tmp_path / "broker.conf").write_text("mappedFileSizeCommitLog=65536\n", "utf-8")
    text = Page(report(store, code=1)).text
    assert "set mappedFileSizeCommitLog=131072" in text
    assert "What to do Each finding below says what to do." in text


def test_the_queues_are_those_of_the_broker(report):
    text = Page(report(HEALTHY)).text
    for row in answers("orders-5.5.0", "queues"):
        if row["units"]:
            assert f"{row['topic']} {row['queueId']} {row['minOffset']} {row['maxOffset']} " in text


def test_queues_of_the_broker_itself_are_folded(report):
    shown, _, folded = report(HEALTHY).partition("<summary>")
    assert "<bdi>Orders</bdi></th>" in shown
    assert "<bdi>SCHEDULE_TOPIC_XXXX</bdi></th>" in folded.partition("</details>")[0]
    assert "<bdi>SCHEDULE_TOPIC_XXXX</bdi></th>" not in shown


def test_messages_that_the_broker_has_not_delivered_are_named(mqtool, tmp_path):
    target = tmp_path / "page.html"
    assert mqtool("report", fixture("metadata-4.9.7/store"), "-o", target).code in (0, 1)
    text = target.read_text("utf-8")
    assert "2 transaction message(s) of RMQ_SYS_TRANS_HALF_TOPIC/0 not delivered yet" in text
    assert "2 delay message(s) of SCHEDULE_TOPIC_XXXX/17 not delivered yet" in text


def test_every_topic_is_drawn_with_its_messages(report):
    text = Page(report(HEALTHY)).text
    counts: dict[str, int] = {}
    for row in answers("orders-5.5.0", "messages"):
        counts[row["topic"]] = counts.get(row["topic"], 0) + 1
    most = sorted(counts, key=lambda topic: -counts[topic])[:20]
    for topic in most:
        assert f"Messages of topic {topic} over time {counts[topic]} message" in text


@pytest.mark.parametrize(
    "name", ["orders-4.9.7", "crash-5.5.0", "dledger-5.5.0", "rocksdb-cq-5.5.0", "v2-long-topic", "bcq-5.5.0"]
)
def test_any_store_of_the_real_broker_has_a_page(report, mqtool, name, tmp_path):
    store = copy_store(name, tmp_path)
    page = Page(report(store))
    assert mqtool("verify", store, "--format", "json").document["status"] in page.text


def test_no_body_and_no_property_is_in_the_page(report, tmp_path):
    builder = StoreBuilder()
    for _ in range(300):
        builder.put(b"SECRET-BODY", tags="SECRETTAG", keys="SECRETKEY", unique_key="SECRETID")
    store = builder.write(tmp_path / "store")
    data = bytearray((store / "commitlog" / f"{0:020d}").read_bytes())
    at = builder.puts[30].data.index(b"SECRET") + builder.puts[30].physical_offset
    data[at + 3] ^= 0x20
    at = builder.puts[50].data.index(b"SECRETKEY") + builder.puts[50].physical_offset
    data[at + 8] ^= 0x20
    (store / "commitlog" / f"{0:020d}").write_bytes(data)
    text = report(store, code=1)
    assert "log-bad-body" in text
    assert "SECRET" not in text.upper()


def test_hostile_names_are_shown_and_do_nothing(report, tmp_path):
    builder = StoreBuilder()
    for number in range(20):
        builder.put(b"body %d" % number, topic=HOSTILE, unique_key=f"{number:032d}")
    store = builder.write(tmp_path / "store", queues=False)
    text = report(store)
    page = Page(text)
    assert {tag for tag, _ in page.tags} & {"script", "img", "iframe", "object"} == set()
    assert "\u202e" not in text
    assert "{{7*7}}\\u202e" in page.text
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]


def test_the_page_asks_for_nothing(report, damaged):
    page = Page(report(damaged, code=1))
    places = [
        value
        for _, attributes in page.tags
        for name, value in attributes.items()
        if name in ("src", "href", "action", "data", "srcset", "poster")
    ]
    assert places
    assert all(place == "data:," or place.startswith("#") for place in places)


def test_the_name_of_a_store_cannot_leave_its_place(report, tmp_path):
    store = copy_store("rollover-5.5.0", tmp_path)
    renamed = store.rename(tmp_path / "<b>&amp;\n{{x}}")
    page = Page(report(renamed))
    assert "<b>&amp;\\u000a{{x}}" in page.text
    assert "b" not in {tag for tag, _ in page.tags}


def test_topics_narrow_the_page(report):
    text = Page(report(HEALTHY, "--topic", "Orders")).text
    assert "commitlog clean" in text
    assert "index clean" not in text


def test_a_page_is_not_put_into_the_store(mqtool, tmp_path):
    store = copy_store("rollover-5.5.0", tmp_path)
    result = mqtool("report", store, "-o", store / "report.html")
    assert (result.code, (store / "report.html").exists()) == (2, False)


def test_a_page_that_cannot_be_written_is_said_before_the_store_is_read(mqtool, tmp_path):
    result = mqtool("report", HEALTHY, "-o", tmp_path / "none" / "report.html")
    assert result.code == 2
    assert "does not exist" in result.stderr


def looked_at(report, tmp_path, store: Path, width: int, code: int):
    report(store, code=code)
    return chromium.look_at(tmp_path / "report.html", tmp_path, width)


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("kind", ["healthy", "damaged"])
def test_a_browser_shows_it_whole_at_every_width(report, tmp_path, damaged, kind, width):
    store, code = (HEALTHY, 0) if kind == "healthy" else (damaged, 1)
    seen = looked_at(report, tmp_path, store, width, code)
    assert seen["width"] <= width, "the page must not scroll sideways"
    assert seen["verdict"] < 600, "the verdict is on the first screen"
    assert seen["title"].startswith("clean" if kind == "healthy" else "corrupt")
    assert (seen["console"], seen["loaded"], seen["scripts"]) == ([], [], 0)
    assert seen["smallest"] >= 12
    assert seen["bars"]
    assert min(seen["bars"]) >= 1
    assert bool(seen["marks"]) is (kind == "damaged")
    assert all(mark >= 1 for mark in seen["marks"])


def test_a_page_can_be_read_without_seeing_it(report, tmp_path, damaged):
    seen = looked_at(report, tmp_path, damaged, 1280, 1)
    assert seen["landmarks"] == [1, 1, 1, 1]
    assert seen["headings"][0] == 1
    assert seen["headings"].count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(seen["headings"]))
    assert seen["contrast"] >= 4.5
    assert seen["tables"] == seen["captions"] > 0
    assert [seen[name] for name in ("unscoped", "unnamed", "unfocusable", "dead")] == [0, 0, 0, 0]
    assert (seen["twice"], seen["missing"]) == ([], [])


def test_it_prints(report, tmp_path, damaged):
    report(damaged, code=1)
    out = tmp_path / "report.pdf"
    chromium.run(tmp_path, f"--print-to-pdf={out}", (tmp_path / "report.html").as_uri())
    data = out.read_bytes()
    assert data.startswith(b"%PDF")
    assert 1 <= data.count(b"/Type /Page\n") <= 12


def test_the_times_of_topics_beyond_what_is_counted_are_not_known(report, tmp_path, monkeypatch):
    monkeypatch.setattr(segment, "MAX_SLOTS", 1)
    builder = StoreBuilder()
    for topic in ("Counted", "Later"):
        builder.put(topic=topic, keys="k")
    page = report(builder.write(tmp_path / "store"))
    assert page.count("when is not known") == page.count("1 message, all at ") > 0
