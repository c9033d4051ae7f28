"""The pages of docs/ by topic: installed with the package, or read from the checkout that it runs in."""

import re
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

_INDEX = frozenset({"README", "index"})
_TITLE = re.compile(r"^# (.+)$", re.MULTILINE)
_PACKAGE = Path(__file__).resolve().parents[1]


class Page(Struct, frozen=True):
    """One page."""

    topic: str  # path below docs/ without `.md`; a page `README` or `index` has the name of its directory
    title: str  # its first heading
    text: str  # all of it, Markdown


def pages() -> list[Page]:
    """Returns all pages, by topic; none where the package was installed without them."""
    root = next((path for path in (_PACKAGE / "docs", _PACKAGE.parent / "docs") if path.is_dir()), None)
    return [] if root is None else sorted(_pages(root), key=lambda page: page.topic)


def _pages(root: Path) -> Iterator[Page]:
    for path in root.rglob("*.md"):
        words = path.relative_to(root).with_suffix("").parts
        topic = "/".join(words[:-1] if words[-1] in _INDEX else words)
        text = path.read_text("utf-8")
        title = _TITLE.search(text)
        yield Page(topic or words[-1].lower(), title[1] if title else topic, text)


def pages_named(pages: list[Page], topic: str) -> list[Page]:
    """Returns the page with a topic, or all pages whose last word it is: `recovery` for `explanation/recovery`."""
    name = topic.lower().strip("/")
    exact = [page for page in pages if page.topic.lower() == name]
    return exact or [page for page in pages if page.topic.lower().endswith(f"/{name}")]


def search(pages: list[Page], words: tuple[str, ...]) -> list[Page]:
    """Returns pages that contain all words, ignoring case; pages with them in the title, or most often, come first."""
    terms = [word.lower() for word in words]
    ranked = []
    for page in pages:
        title, text = page.title.lower(), page.text.lower()
        counts = [text.count(word) for word in terms]
        if all(counts):
            in_title = sum(word in title or word in page.topic.lower() for word in terms)
            ranked.append((-in_title, -min(counts) * 1000 // len(text), page.topic, page))
    return [page for *_, page in sorted(ranked, key=lambda row: row[:3])]
