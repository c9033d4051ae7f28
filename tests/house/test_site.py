"""The documentation site: builds without a warning, every page is near, no link is dead, and search finds the right page."""

import json
import os
import posixpath
import re
import subprocess
import sys
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

import pytest

from mqtool import guide
from mqtool.cli.reference import RUNBOOK
from tests.house.modules import ROOT
from tests.support.browser import Browser
from tests.support.tiers import night

pytest.importorskip("mkdocs", reason="the extra docs is not installed: pip install -e '.[docs]'")
pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.xdist_group("site")]

REPOSITORY_ONLY = ("architecture", "decisions/")
"""Pages for whoever changes the code."""
CLICKS = 2
SEARCHES = {
    "broker does not start": ("howto/broker-does-not-start.html",),
    "consumer gets nothing": ("howto/consumer-gets-nothing.html",),
    "messages consumed twice": ("howto/messages-consumed-twice.html",),
    "disk full": ("howto/disk-full.html",),
    "delayed message not delivered": ("howto/delay-messages-never-arrive.html", "runbooks/RB-17.html"),
    "move broker to new host": ("howto/move-a-broker.html",),
    "new slave": ("howto/new-slave.html",),
    "kubernetes": ("howto/kubernetes.html",),
    "exit code 4": ("exit-codes.html",),
    "export to parquet": ("lake.html",),
    "queue-hole": ("checks.html",),
    "unit test broker pytest": ("tutorials/broker-in-tests.html",),
    "which topic uses the most disk space": ("howto/which-topic-eats-the-disk.html",),
    "restore a backup": ("backup.html",),
}


class Page(HTMLParser):
    """Links, ids and pictures of a page."""

    def __init__(self, text):
        super().__init__()
        self.links, self.ids, self.unnamed = [], set(), []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.ids |= {values[name] for name in ("id", "name") if values.get(name)}
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])
        if (tag == "img" and not values.get("alt")) or (
            tag == "svg" and "mq" in (values.get("class") or "") and not values.get("aria-label")
        ):
            self.unnamed.append(self.getpos())


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    target = tmp_path_factory.mktemp("site") / "html"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(target)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)}
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "WARNING" not in result.stderr
    return target


GUIDES = {f"runbooks/{name}": page.topic for page in guide.pages() for name in RUNBOOK.findall(page.text)}
"""The guides that have runbooks as sections, by the runbook."""


@pytest.fixture(scope="module")
def pages(site):
    return {
        path.relative_to(site).as_posix(): Page(path.read_text("utf-8"))
        for path in site.rglob("*.html")
        if path.name != "404.html"
    }


def test_every_page_of_docs_is_on_the_site(pages):
    sources = {
        path.relative_to(ROOT / "docs").with_suffix(".html").as_posix() for path in (ROOT / "docs").rglob("*.md")
    }
    assert len(GUIDES) == 10
    sources -= {f"{runbook}.html" for runbook in GUIDES}
    sources = {re.sub(r"README\.html$", "index.html", name) for name in sources if not name.startswith(REPOSITORY_ONLY)}
    assert sources - set(pages) == set()
    assert len(pages) > 70


def targets(name, page):
    """(address as written, page or file, anchor) of each link that stays on the site."""
    for link in page.links:
        parts = urlsplit(link)
        if not parts.scheme and not parts.netloc:
            path = (
                posixpath.normpath(posixpath.join(posixpath.dirname(name), unquote(parts.path))) if parts.path else name
            )
            yield link, path, unquote(parts.fragment)


def test_no_link_is_dead(site, pages):
    dead = []
    for name, page in pages.items():
        for link, path, anchor in targets(name, page):
            if not (site / path).exists() or (anchor and path in pages and anchor not in pages[path].ids | {"__skip"}):
                dead.append(f"{name}: {link}")
    assert dead == []


def test_every_page_is_within_two_clicks(pages):
    reached, edge = {"index.html"}, {"index.html"}
    for _ in range(CLICKS):
        edge = {path for name in edge for _, path, _ in targets(name, pages[name]) if path in pages} - reached
        reached |= edge
    assert set(pages) - reached == set()


def test_a_page_leads_to_itself_in_the_other_language(site, pages):
    for name in pages:
        text = (site / name).read_text("utf-8")
        language = "zh" if name.startswith("zh/") else "en"
        assert f'<html lang="{language}"' in text, name
        links = dict(re.findall(r'<a href="([^"]+)" hreflang="(..)"', text))
        targets = {posixpath.normpath(posixpath.join(posixpath.dirname(name), link)): to for link, to in links.items()}
        same = {"en": name.removeprefix("zh/"), "zh": f"zh/{name.removeprefix('zh/')}"}
        assert targets == {same[to] if same[to] in pages else f"{'zh/' * (to == 'zh')}index.html": to for to in same}


def test_every_picture_says_what_it_shows(pages):
    assert {name: page.unnamed for name, page in pages.items() if page.unnamed} == {}
    pictures = list((ROOT / "docs" / "pictures").glob("*.svg"))
    assert len(pictures) >= 5
    assert all("<title>" in path.read_text("utf-8") for path in pictures)


CONTRAST = """
(() => {
  const numbers = (text) => text.match(/[0-9.]+/g).map(Number);
  const over = (top, under) => [0, 1, 2].map((i) => top[i] * (top[3] ?? 1) + under[i] * (1 - (top[3] ?? 1)));
  const luminance = (rgb) => [0.2126, 0.7152, 0.0722].reduce((sum, weight, i) => {
    const c = rgb[i] / 255;
    return sum + weight * (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  }, 0);
  const chain = (node) => node ? [node, ...chain(node.parentElement)] : [];
  return [...document.querySelectorAll("body *")].flatMap((node) => {
    const style = getComputedStyle(node), box = node.getBoundingClientRect();
    const opacity = chain(node).reduce((all, one) => all * getComputedStyle(one).opacity, 1);
    const empty = ![...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
    if (empty || node.closest("svg") || !box.width || style.visibility === "hidden" || !opacity) return [];
    const behind = chain(node).reverse().reduce(
      (rgb, one) => over(numbers(getComputedStyle(one).backgroundColor), rgb), [255, 255, 255]);
    const [r, g, b, a] = numbers(style.color);
    const [low, high] = [over([r, g, b, (a ?? 1) * opacity], behind), behind].map(luminance).sort((x, y) => x - y);
    const ratio = (high + 0.05) / (low + 0.05);
    return ratio < (parseFloat(style.fontSize) < 24 ? 4.5 : 3) ? [[node.textContent.trim().slice(0, 40), ratio]] : [];
  });
})()
"""


@pytest.mark.browser
@pytest.mark.parametrize("mode", ["light", night("dark")])
def test_text_can_be_read_and_pages_fit_a_phone(site, tmp_path, mode):
    with Browser(tmp_path, scripts=True) as browser:
        browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": mode}])
        for page in (
            "index",
            "tour",
            "recovery",
            "cli",
            "commands/dump",
            "checks",
            "limits",
            "formats/commit-log",
            "zh/howto/disk-full",
        ):
            for width in (390, 1280):
                browser.size(width)
                browser.visit((site / f"{page}.html").as_uri())
                scheme = browser.value("document.body.dataset.mdColorScheme")
                assert scheme == {"light": "default", "dark": "slate"}[mode]
                assert (page, browser.value(CONTRAST)) == (page, [])
                assert browser.value("document.documentElement.scrollWidth") <= width, page


def plain(html):
    """Text without its tags, as the site's search takes it."""
    return re.sub(r"<[^>]*>", " ", html)


@pytest.fixture(scope="module")
def search(site):
    """The site's search index, asked as its own search box does: Chinese characters are cut into words of the index."""
    lunr = pytest.importorskip("lunr")
    built = json.loads((site / "search" / "search_index.json").read_text("utf-8"))
    fields = {name: value["boost"] for name, value in built["config"]["fields"].items() if name != "tags"}
    documents = [
        {"id": number, "location": row["location"]} | {name: plain(row[name]).replace("\u200b", " ") for name in fields}
        for number, row in enumerate(built["docs"])
    ]
    index = lunr.lunr(
        ref="id",
        fields=[{"field_name": name, "boost": boost} for name, boost in fields.items()],
        documents=[(document, {"boost": row["boost"]}) for document, row in zip(documents, built["docs"], strict=True)],
    )

    def cut(run):
        words, at = [], 0
        while at < len(run):
            end = next((end for end in range(len(run), at, -1) if run[at:end] in index.inverted_index), at + 1)
            words.append(run[at:end])
            at = end
        return " ".join(words)

    def pages_for(words):
        found = []
        words = re.sub(r"[\u3400-\u9fff]+", lambda run: f" {cut(run[0])} ", words)
        for hit in index.search(re.sub(r"[-+:~^*]", " ", words)):
            page = documents[int(hit["ref"])]["location"].split("#")[0]
            if page not in found:
                found.append(page)
        return found

    return pages_for


@pytest.mark.parametrize("words", SEARCHES)
def test_search_finds_the_right_page_among_the_first_three(search, words):
    assert set(SEARCHES[words]) & set(search(words)[:3]), search(words)[:6]


def test_search_answers_the_questions_that_help_answers(search):
    lines = (ROOT / "tests" / "unit" / "guide" / "questions.tsv").read_text("utf-8").splitlines()
    missed = []
    for question, topics in (line.split("\t") for line in lines):
        first = {re.sub(r"^zh/|(/index)?\.html$", "", page) for page in search(question)[:3]}
        missed += [] if first & {GUIDES.get(topic, topic) for topic in topics.split(", ")} else [question]
    assert len(missed) <= len(lines) // 10, missed


def test_pictures_are_those_of_their_script():
    command = [sys.executable, "docs/pictures.py", "--check"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"run docs/pictures.py: {result.stdout}"
