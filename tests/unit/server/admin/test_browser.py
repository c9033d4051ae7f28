"""The page in a real browser without scripts: at a desk and on a phone, by keyboard, and without seeing it."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.browser import Browser
from tests.unit.server.admin.conftest import Running
from tests.unit.server.broker.conftest import until

pytestmark = pytest.mark.browser

BODY = '<script>document.title = "taken over"</script><b id="main">bold</b>'
TOPIC = "Orders"
LONG_TOPIC = "A-topic-with-a-name-as-long-as-" + "x" * 90
PAGES = {
    "overview": "/",
    "topics": "/topics?own=1",
    "groups": "/groups",
    "topic": f"/topic?name={LONG_TOPIC}",
    "group": "/group?name=GBrowser",
    "forms": "/messages",
    "message": f"/messages?topic={TOPIC}&offset=1",
    "list": f"/messages?topic={TOPIC}&key=same",
    "mistake": f"/messages?topic={TOPIC}&offset=x",
    "missing": "/topic?name=none",
}


@pytest.fixture(scope="module")
def address(serve: Callable[..., Running]) -> str:
    site = serve()
    with site.connect() as client:
        for topic in (TOPIC, LONG_TOPIC):
            for number in range(3):
                client.put(
                    topic, f"{number} {BODY}".encode(), properties={"KEYS": "same", "TAGS": "<i>", "wide": "w" * 900}
                )
            until(lambda topic=topic: client.call(30, topic=topic, queueId=0).fields["offset"] == "3")
        client.heartbeat("browser@1", consumers={"GBrowser": [TOPIC, LONG_TOPIC]})
        client.call(15, consumerGroup="GBrowser", topic=TOPIC, queueId=0, commitOffset=1)
    return f"http://{site.admin}"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("name", sorted(PAGES))
def test_a_page_fits_and_can_be_read_without_seeing_it(browser, address, name, width):
    browser.size(width)
    browser.visit(address + PAGES[name])
    seen = browser.measure()
    assert seen["width"] <= width, "the page must not scroll sideways"
    assert seen["styled"]
    assert seen["landmarks"] == [1, 1, 1, 1]
    assert seen["headings"].count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(seen["headings"]))
    assert seen["contrast"] >= 4.5
    assert seen["smallest"] >= 12
    assert [seen[what] for what in ("captionless", "unscoped", "unlabelled", "low", "unfocusable")] == [0] * 5
    assert (seen["twice"], seen["missing"], seen["handlers"]) == ([], [], [])


def test_nothing_is_loaded_but_the_style(browser, address):
    browser.complaints.clear()
    browser.visit(address + PAGES["message"])
    assert browser.measure()["loaded"] == ["/style.css"]
    assert browser.complaints == []


@pytest.mark.slow
def test_a_body_with_a_script_stays_text_where_scripts_run(address, tmp_path: Path):
    with Browser(tmp_path, scripts=True) as browser:
        browser.visit(address + PAGES["message"])
        seen = browser.measure()
        assert seen["title"].startswith(f"Message of {TOPIC}")
        assert BODY in seen["text"]
        assert {"script", "b"} & set(seen["tags"]) == set()


def test_a_message_is_looked_up_by_keyboard_alone(browser, address):
    browser.visit(address + "/messages")
    browser.value("document.getElementById('place-topic').focus()")
    browser.type(TOPIC)
    browser.press("Tab")
    browser.press("Tab")
    browser.type("1")
    browser.press("Enter", loads=True)
    assert f"1 {BODY}" in browser.measure()["text"]


def test_the_first_key_leads_past_the_navigation(browser, address):
    browser.visit(address + "/")
    browser.press("Tab")
    assert browser.value("document.activeElement.className") == "skip"
    assert browser.value("document.activeElement.getBoundingClientRect().left >= 0")
    browser.press("Tab")
    assert browser.value("getComputedStyle(document.activeElement).outlineStyle") == "solid"


@pytest.mark.slow
def test_links_lead_from_the_lag_to_the_next_message(browser, address):
    browser.visit(address + "/")
    for link in ("GBrowser", TOPIC, "at 2 of queue 0", "Previous in the queue"):
        target = browser.value(f"[...document.querySelectorAll('main a')].find(a => a.textContent === '{link}').href")
        browser.visit(target)
    assert f"1 {BODY}" in browser.measure()["text"]
