"""The pages of docs/ by topic: installed with the package, or read from the checkout that it runs in."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from mqtool.errors import UnavailableError

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

_INDEX = frozenset({"README", "index"})
_LISTS = ("symptoms", "log", "codes", "zh")
_TITLE = re.compile(r"^# (.+)$", re.MULTILINE)
_FRONT_MATTER = re.compile(r"\A---\n(.*?)^---\n+", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#{1,3} .+$", re.MULTILINE)


class Page(Struct, frozen=True):
    """One page."""

    topic: str  # path below docs/ without `.md`; a page `README` or `index` has the name of its directory
    title: str  # its first heading
    text: str  # all of it but its front matter, Markdown
    # From the front matter, in words that are searched for:
    symptoms: tuple[str, ...] = ()  # what a user sees or asks
    log: tuple[str, ...] = ()  # what a broker or client logs, `…` for what varies
    codes: tuple[str, ...] = ()  # response codes and exit codes
    zh: tuple[str, ...] = ()  # Chinese terms and questions


def pages() -> list[Page]:
    """Returns all pages, by topic; raises UnavailableError if the package was installed without them."""
    pages = []
    for (*names, word), text in texts(_root(), ".md"):
        topic = "/".join(names if word in _INDEX else (*names, word)) or word.lower()
        lists, body = _parted(text)
        title = _TITLE.search(body)
        known = {name: lists[name] for name in _LISTS if name in lists}
        pages.append(Page(topic, title[1] if title else topic, body, **known))
    return sorted(pages, key=lambda page: page.topic)


def text_of(name: str) -> str:
    """Returns the page with a path below docs/, without its front matter; raises `UnavailableError` as `pages` does."""
    return _parted((_root() / name).read_text("utf-8"))[1]


def _parted(text: str) -> tuple[dict[str, tuple[str, ...]], str]:
    """Returns the lists of a page's front matter, and the page without it.

    The front matter is YAML of one form, `NAME:` and lines `- TEXT`, where a text may be in double quotes.
    """
    front = _FRONT_MATTER.match(text)
    if front is None:
        return {}, text
    lists = {}
    for part in re.split(r"^(?=\w)", front[1], flags=re.MULTILINE)[1:]:
        name, _, lines = part.partition(":")
        items = [line.strip().removeprefix("- ") for line in lines.splitlines() if line.strip()]
        lists[name] = tuple(json.loads(item) if item.startswith('"') else item for item in items)
    return lists, text[front.end() :]


def _root() -> "Traversable":
    package = Path(__file__).parent
    for root in (package / "docs", package.with_name("docs")):
        if root.is_dir():
            return root
    from importlib.resources import files  # noqa: PLC0415 - it costs 20 ms, and only a package in a zip file needs it

    if (zipped := files("mqtool") / "docs").is_dir():
        return zipped
    raise UnavailableError("the documentation is not installed; install the wheel of mqtool again")


def texts(folder: "Traversable", ending: str, names: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yields path, without the ending, and text of each file of a folder whose name has an ending."""
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from texts(entry, ending, (*names, entry.name))
        elif entry.name.endswith(ending):
            yield (*names, entry.name.removesuffix(ending)), entry.read_text("utf-8")


def pages_named(pages: list[Page], topic: str) -> list[Page]:
    """Returns the page with a topic, or all pages whose last word it is: `recovery` for `explanation/recovery`."""
    name = topic.lower().strip("/")
    exact = [page for page in pages if page.topic.lower() == name]
    return exact or [page for page in pages if page.topic.lower().endswith(f"/{name}")]


def search(pages: list[Page], words: tuple[str, ...]) -> list[Page]:
    """Returns pages with words that begin like these, ignoring case; those with most in title or headings come first.

    A number is not found inside of a longer one.
    """
    terms = [re.compile(rf"(?<!\w){re.escape(word)}(?!\d)", re.IGNORECASE) for word in words]
    ranked = []
    for page in pages:
        counts = [len(term.findall(page.text)) for term in terms]
        if all(counts):
            named, headings = f"{page.topic} {page.title}", "\n".join(_HEADING.findall(page.text))
            places = [-sum(bool(term.search(text)) for term in terms) for text in (named, headings)]
            ranked.append(((places, -min(counts) * 1000 // len(page.text), page.topic), page))
    return [page for _, page in sorted(ranked, key=lambda row: row[0])]
