"""The pages of docs/ by topic: installed with the package, or read from the checkout that it runs in."""

import json
import re
from collections.abc import Iterable, Iterator
from functools import cache
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
_SYMPTOM = re.compile(r"^## Symptom\n\n((?:- .+\n)+)", re.MULTILINE)
_FEWEST_WORDS = 3
"""Of a part of a log line: fewer are in too many lines."""


class Page(Struct, frozen=True):
    """One page."""

    topic: str  # path below docs/ without `.md`; a page `README` or `index` has the name of its directory
    title: str  # its first heading
    text: str  # all of it but its front matter, Markdown
    # From the section Symptom and the front matter, in words that are searched for:
    symptoms: tuple[str, ...] = ()  # what a user sees or asks
    log: tuple[str, ...] = ()  # what a broker or client logs, `…` for what varies: what a symptom has in backticks, too
    codes: tuple[str, ...] = ()  # response codes and exit codes
    zh: tuple[str, ...] = ()  # Chinese terms and questions


@cache
def pages() -> tuple[Page, ...]:
    """Returns all pages, by topic; raises UnavailableError if the package was installed without them."""
    pages = []
    for (*names, word), text in texts(_root(), ".md"):
        topic = "/".join(names if word in _INDEX else (*names, word)) or word.lower()
        lists, body = _parted(text)
        title = _TITLE.search(body)
        known = {name: lists.get(name, ()) for name in _LISTS}
        symptoms = symptoms_in(body)
        quoted = (words for line in symptoms for words in line.split("`")[1::2] if " " in words)
        known |= {"symptoms": (*symptoms, *known["symptoms"]), "log": (*quoted, *known["log"])}
        pages.append(Page(topic, title[1] if title else topic, body, **known))
    return tuple(sorted(pages, key=lambda page: page.topic))


def symptoms_in(text: str) -> tuple[str, ...]:
    """Returns the lines of a page's section Symptom."""
    section = _SYMPTOM.search(text)
    return tuple(line.removeprefix("- ") for line in section[1].splitlines()) if section else ()


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


def pages_named(pages: Iterable[Page], topic: str) -> list[Page]:
    """Returns the page with a topic, or all pages whose last word it is: `disk-full` for `howto/disk-full`.

    A Chinese page, as `zh/howto/disk-full`, has that name only if no other page has it.
    """
    name = topic.lower().strip("/")
    exact = [page for page in pages if page.topic.lower() == name]
    ending = [page for page in pages if page.topic.lower().endswith(f"/{name}")]
    return exact or [page for page in ending if not page.topic.startswith("zh/")] or ending


def logged(pages: Iterable[Page], line: str) -> list[tuple[Page, str]]:
    """Returns the pages that quote a line of a log, with the quotation; the longest match first.

    The line may have more before and after, as a time and a thread, and may be cut at both ends.
    """
    text = plain(line)
    matches = [(max((_matched(words, text), words) for words in (*page.log, "")), page) for page in pages]
    quoting = [(length, page, words) for (length, words), page in matches if length]
    return [(page, words) for _, page, words in sorted(quoting, key=lambda match: -match[0])]


def _matched(quotation: str, text: str) -> int:
    """Returns how many characters a line shares with a quotation, 0 if it does not match."""
    pieces = [words for piece in quotation.split("…") if (words := plain(piece))]
    length, at = 0, 0
    for piece in pieces:
        start = text.find(piece, at)  # a value may touch it: `0x…`, `…bytes`
        if start < 0:
            break
        length, at = length + len(piece), start + len(piece)
    else:
        return length
    is_cut = len(text.split()) >= _FEWEST_WORDS and any(text in piece for piece in pieces)
    return len(text) if is_cut else length * (length > sum(map(len, pieces)) / 2)


def plain(text: str) -> str:
    """Returns the words of a text, without case and punctuation."""
    return " ".join(re.findall(r"\w+", text.casefold()))
