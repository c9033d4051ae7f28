"""The pages of docs/ by topic: installed with the package, or read from the checkout that it runs in."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from mqtool.errors import UnavailableError

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

_INDEX = frozenset({"README", "index"})
_TITLE = re.compile(r"^# (.+)$", re.MULTILINE)


class Page(Struct, frozen=True):
    """One page."""

    topic: str  # path below docs/ without `.md`; a page `README` or `index` has the name of its directory
    title: str  # its first heading
    text: str  # all of it, Markdown


def pages() -> list[Page]:
    """Returns all pages, by topic.

    Raises:
        UnavailableError: the package was installed without them.
    """
    return sorted(_pages(_root(), ()), key=lambda page: page.topic)


def text_of(name: str) -> str:
    """Returns the page with a path below docs/; raises `UnavailableError` as `pages` does."""
    return (_root() / name).read_text("utf-8")


def _root() -> "Traversable":
    from importlib.resources import files  # noqa: PLC0415 - it costs 20 ms, and few commands print a page

    package = files("mqtool")  # maybe in a zip file
    for root in (package / "docs", Path(str(package)).parent / "docs"):
        if root.is_dir():
            return root
    raise UnavailableError("the documentation is not installed; install the wheel of mqtool again")


def _pages(folder: "Traversable", names: tuple[str, ...]) -> Iterator[Page]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _pages(entry, (*names, entry.name))
        elif entry.name.endswith(".md"):
            word, text = entry.name.removesuffix(".md"), entry.read_text("utf-8")
            topic = "/".join(names if word in _INDEX else (*names, word)) or word.lower()
            title = _TITLE.search(text)
            yield Page(topic, title[1] if title else topic, text)


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
