"""`mqtool story`: the same life as rows, as a page and as spans; nothing is written into the store."""

import json
import re

import pytest

import mqtool as library
from mqtool.cli.exits import ExitCode
from tests.support.browser import Browser
from tests.support.builder import StoreBuilder
from tests.support.html_page import Page
from tests.support.stores import FIXTURES, copy_store, tree_digest


@pytest.fixture
def lives(tmp_path):
    return copy_store("lives-5.5.0", tmp_path)


def test_rows_are_the_steps_and_the_store_is_only_read(mqtool, lives):
    digest = tree_digest(lives)
    result = mqtool("story", lives, "dead-0", "-f", "json")
    assert result.code == ExitCode.OK
    steps = [row["step"] for row in result.document["rows"] if row["step"] not in ("traced", "passed")]
    assert steps == ["sent", "sent-back", "retry", "sent-back", "retry", "dead"]
    assert all(row["proved"] and row["proof"] for row in result.document["rows"])
    assert tree_digest(lives) == digest


def test_a_key_of_several_messages_tells_the_life_of_each(mqtool):
    rows = mqtool("story", FIXTURES / "orders-5.5.0" / "store", "blanks", "-f", "json").document["rows"]
    with library.open(FIXTURES / "orders-5.5.0" / "store") as store:
        expected = {message.unique_key for message in store.messages() if "blanks" in message.keys}
    assert {row["message"] for row in rows} == expected
    assert len(expected) == 8


def test_nothing_found_is_said_and_the_exit_code_is_1(mqtool, lives):
    result = mqtool("story", lives, "no-such-key")
    assert result.code == ExitCode.NO
    assert "no record has this" in result.stderr


def test_a_lost_index_is_said_and_a_large_log_is_not_scanned(mqtool, lives, monkeypatch):
    for path in (lives / "index").iterdir():
        path.unlink()
    assert mqtool("story", lives, "dead-0", "-f", "json").document["rows"][0]["step"] == "traced"  # a small log is read
    monkeypatch.setattr("mqtool.store.find.MAX_SCANNED", 1000)
    result = mqtool("story", lives, "dead-0")
    assert result.code == ExitCode.NO
    assert "are not covered by the index and were not read" in result.stderr


def test_a_rollback_is_not_provable_where_the_log_was_not_read(mqtool, lives, monkeypatch):
    rows = mqtool("story", lives, "txrollback-0", "-f", "json").document["rows"]
    assert rows[-1]["step"] == "rolled-back"
    half = rows[0]["physical_offset"]
    for path in (lives / "index").iterdir():
        path.unlink()
    monkeypatch.setattr("mqtool.store.find.MAX_SCANNED", 1000)
    rows = mqtool("story", lives, str(half), "-f", "json").document["rows"]
    assert [row["step"] for row in rows] == ["half", "not-provable"]
    assert not rows[-1]["proved"]


def test_a_parked_message_whose_delivery_is_not_in_the_store_is_not_provable(mqtool, lives):
    path = lives / "config" / "delayOffset.json"
    path.write_text(path.read_text().replace("17:0", "17:5"))
    rows = mqtool("story", lives, "delaywait-0", "-f", "json").document["rows"]
    assert [row["step"] for row in rows if row["step"] != "traced"] == ["delayed", "not-provable"]
    assert "level 17 at 5" in rows[-1]["proof"]


def test_spans_are_otlp_with_the_conventions_of_messaging(mqtool, lives):
    result = mqtool("story", lives, "popretry-1", "--format", "otlp")
    (resource,) = json.loads(result.stdout)["resourceSpans"]
    spans = resource["scopeSpans"][0]["spans"]
    assert len({span["traceId"] for span in spans}) == 1
    assert all(re.fullmatch("[0-9a-f]{32}", span["traceId"]) for span in spans)
    assert len({span["spanId"] for span in spans}) == len(spans)
    assert all(re.fullmatch("[0-9a-f]{16}", span["spanId"]) for span in spans)
    assert all(int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"]) for span in spans)
    names = [span["name"] for span in spans]
    assert {"send LivesPop", "receive LivesPop", "ack LivesPop"} <= set(names)
    root, *rest = spans
    assert {span["parentSpanId"] for span in rest} == {root["spanId"]}
    values = {one["key"]: one["value"] for one in root["attributes"]}
    assert values["messaging.system"] == {"stringValue": "rocketmq"}
    assert values["messaging.destination.name"] == {"stringValue": "LivesPop"}
    assert values["messaging.rocketmq.namespace"] == {"stringValue": ""}
    assert mqtool("story", lives, "popretry-1", "--format", "otlp").stdout == result.stdout
    conventional = {
        *("system", "destination.name", "destination.partition.id", "message.id", "consumer.group.name"),
        *("operation.name", "operation.type", "rocketmq.namespace", "rocketmq.message.type", "rocketmq.message.tag"),
        "rocketmq.message.keys",
    }
    named = {one["key"].removeprefix("messaging.") for span in spans for one in span["attributes"]}
    assert {name for name in named if not name.startswith("mqtool.")} == conventional


def test_only_spans_of_delayed_messages_have_a_delivery_timestamp(mqtool, lives):
    result = mqtool("story", lives, "delaywait-0", "--format", "otlp")
    spans = json.loads(result.stdout)["resourceSpans"][0]["scopeSpans"][0]["spans"]
    timed = [
        span
        for span in spans
        if any(one["key"] == "messaging.rocketmq.message.delivery_timestamp" for one in span["attributes"])
    ]
    types = {
        (one["value"]["stringValue"]) for span in timed for one in span["attributes"] if one["key"].endswith("type")
    }
    assert timed
    assert "delay" in types


def test_the_page_shows_every_step_with_its_proof(mqtool, lives, tmp_path):
    page = tmp_path / "life.html"
    rows = mqtool("story", lives, "txgivenup-0", "-o", page, "-f", "json").document["rows"]
    text = page.read_text("utf-8")
    Page(text)
    for row in rows:
        assert row["what"] in text
        assert row["proof"] in text
    assert text.count("<circle") == len(rows)


@pytest.mark.browser
def test_the_page_fits_a_phone_and_its_picture_can_be_read(mqtool, lives, tmp_path):
    page = tmp_path / "life.html"
    mqtool("story", lives, "plain-0", "-o", page)
    with Browser(tmp_path) as browser:
        browser.size(390)
        browser.visit(page.as_uri())
        assert browser.value("document.documentElement.scrollWidth") <= 390
        assert browser.value("document.querySelector('svg.life text').getBoundingClientRect().height") >= 10


def test_the_page_is_never_written_into_the_store(mqtool, lives):
    result = mqtool("story", lives, "plain-0", "-o", lives / "life.html")
    assert result.code == ExitCode.USAGE
    assert not (lives / "life.html").exists()


def test_a_key_of_very_many_messages_is_read_up_to_a_limit_that_is_said(mqtool, monkeypatch):
    monkeypatch.setattr("mqtool.store.find.MAX_READ", 5)
    result = mqtool("story", FIXTURES / "orders-5.5.0" / "store", "blanks", "-f", "json")
    assert "more records have this key and were not read" in result.stderr
    assert len({row["message"] for row in result.document["rows"]}) == 5


def test_the_span_of_a_message_without_keys_has_no_attributes_of_keys(mqtool, tmp_path):
    builder = StoreBuilder()
    builder.put(b"body", topic="T")
    result = mqtool("story", builder.write(tmp_path / "store"), "0", "--format", "otlp")
    (resource,) = json.loads(result.stdout)["resourceSpans"]
    root, *_ = resource["scopeSpans"][0]["spans"]
    names = {one["key"] for one in root["attributes"]}
    assert "messaging.destination.name" in names
    assert names.isdisjoint(
        {"messaging.message.id", "messaging.rocketmq.message.tag", "messaging.rocketmq.message.keys"}
    )
