"""Pages ranked by a question, in English or Chinese: an index in memory, made by SQLite's FTS5.

A page is indexed as passages: each symptom, log line and code, and each section. Its rank is that of its best passages,
so that words in one symptom count for more than the same words in several places.
"""

import pkgutil
import re
import sqlite3
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache

from msgspec import Struct

from mqtool.errors import UnavailableError
from mqtool.guide import Page

_WEIGHTS = {"howto": 1.25, "runbooks": 1.2, "decisions": 0.5}
"""Of kinds of pages, by the first part of the topic, after `zh` for a Chinese page; of others 1."""
_ZH = "zh/"
_OTHER_LANGUAGE = 0.5
"""Weight of passages that are not in the language of the question."""
_CHINESE_PAGE = 1.6
"""Weight of Chinese passages in a Chinese page: other pages have Chinese symptoms too."""
_SYMPTOM, _TITLE, _SECTION = 2.0, 1.5, 1.0
"""Weights of passages."""
_SECOND = 0.5
"""What the second best passage of a page counts for."""
_EXACT, _SYNONYM, _PREFIX, _COMMON = 1.0, 0.75, 0.6, 0.25
"""Weights of the ways in which a word of the question is found, and of words such as `where` and `is`."""
_PREFIX_FROM = 4
"""Letters of a word that may be the beginning of another."""

_HAN = re.compile(r"[\u3400-\u9fff]")
_HAN_RUN = re.compile(r"[\u3400-\u9fff]+")
_SPACED = re.compile(r"(?<=[\u3400-\u9fff]) (?=[\u3400-\u9fff])")
_TIME = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?")
_NEGATIVE = re.compile(r"(?<![\w.-])-(\d)")
_WORD = re.compile(r"[^\W_](?:\w|'(?=\w))*")
_CAMEL_CASE = re.compile(r"[a-z]+[A-Z]\w*")
_CAPITAL = re.compile(r"(?=[A-Z])")
_SECTIONS = re.compile(r"^(?=#{1,3} )", re.MULTILINE)


class Hit(Struct, frozen=True):
    """A page that a search found."""

    page: Page  # the page
    why: str = ""  # the passage that fits best, cut


class _Words(Struct, frozen=True):
    """What mqtool/synonyms.txt states."""

    groups: tuple[tuple[str, ...], ...]  # words and phrases that mean the same
    common: frozenset[str]  # words that say little about the subject, or phrases of Chinese characters


def search(pages: Iterable[Page], question: str) -> Iterator[Hit]:
    """Yields the pages that have words of a question or their synonyms, the best first.

    Raises UnavailableError if Python's SQLite has no FTS5.
    """
    concepts = list(_concepts(question))
    connection, passages = _index(tuple(pages))
    scores = [0.0] * len(passages)
    for concept in concepts:
        best: dict[int, float] = {}
        for term, weight in concept.items():
            for row, score in connection.execute("select rowid, bm25(passage) from passage(?)", (term,)):
                best[row] = max(best.get(row, 0.0), -score * weight)
        for row, score in best.items():
            scores[row - 1] += score
    passages_of: dict[str, list[tuple[float, int]]] = {}
    has_han = bool(_HAN.search(question))
    for row, (page, weight, text) in enumerate(passages):
        if scores[row]:
            score = scores[row] * weight * _weight(page, text, has_han=has_han)
            passages_of.setdefault(page.topic, []).append((score, row))
    ranked = []
    for topic, places in passages_of.items():
        (score, row), *more = sorted(places, key=lambda place: (-place[0], place[1]))
        score += _SECOND * more[0][0] if more else 0
        ranked.append((-score, topic, row))
    any_term = " OR ".join(term for concept in concepts for term in concept)
    for _, _, row in sorted(ranked):
        page, weight, text = passages[row]
        if weight == _SECTION:
            where = "select snippet(passage, 1, '', '', '…', 24) from passage(?) where rowid = ?"
            (text,) = next(connection.execute(where, (any_term, row + 1)))
            text = _SPACED.sub("", " ".join(text.split())).replace("minus", "-")
        yield Hit(page, text)


@lru_cache(maxsize=1)
def _index(pages: tuple[Page, ...]) -> tuple[sqlite3.Connection, list[tuple[Page, float, str]]]:
    """Returns an index in memory of the passages of pages, and each passage with its page and weight."""
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute('create virtual table passage using fts5(title, text, tokenize="porter unicode61")')
    except sqlite3.OperationalError as error:
        raise UnavailableError(
            f"the search needs SQLite with FTS5 ({error}): use another Python, or name a topic; `mqtool help` lists all"
        ) from error
    passages = [(page, weight, text) for page in pages for weight, text in _passages(page)]
    rows = [(_indexed(f"{page.title} {page.topic}"), _indexed(text)) for page, _, text in passages]
    connection.executemany("insert into passage values (?, ?)", rows)
    return connection, passages


def weight_of(topic: str) -> float:
    """Returns the weight of a page's kind."""
    return _WEIGHTS.get(re.split("[/ ]", topic.removeprefix(_ZH))[0], 1.0)


def words_of(page: Page) -> Iterator[str]:
    """Yields what another search has to find a page by: symptoms, log lines, codes, and synonyms of its title."""
    yield from (*page.symptoms, *page.log, *page.codes, *page.zh)
    title = f" {' '.join(_tokens(page.title))} "
    for group in _words().groups:
        if any(_is_in(member, title) for member in group):
            yield from group


def segmented(text: str) -> str:
    """Returns text with blanks of no width around the Chinese words that have synonyms, and around other characters."""
    words = {word for group in _words().groups for word in group if _HAN.search(word)}
    pattern = "|".join((*sorted(words, key=len, reverse=True), _HAN.pattern))
    return re.sub(pattern, "\u200b\\g<0>\u200b", text)


def _weight(page: Page, text: str, *, has_han: bool) -> float:
    is_chinese_page = page.topic.startswith(_ZH)
    kind = weight_of(page.topic)
    if bool(_HAN.search(text)) != has_han:
        return kind * _OTHER_LANGUAGE
    return kind * (_CHINESE_PAGE if has_han and is_chinese_page else 1)


def _passages(page: Page) -> Iterator[tuple[float, str]]:
    """Yields the passages of a page with their weights."""
    yield _TITLE, page.title
    for text in (*page.symptoms, *page.log, *page.codes, *page.zh):
        yield _SYMPTOM, text
    for section in _SECTIONS.split(page.text):
        yield _SECTION, section


def _indexed(text: str) -> str:
    """Returns text whose Chinese characters are words, and so are negative numbers."""
    text = _NEGATIVE.sub(r"minus\1", text) if "-" in text else text
    return text if text.isascii() else _HAN_RUN.sub(lambda run: f" {' '.join(run[0])} ", text)


def _concepts(question: str) -> Iterator[dict[str, float]]:
    """Yields the FTS5 terms of each word of a question, its synonyms among them, with their weights."""
    words = _words()
    has_han = bool(_HAN.search(question))
    rest = f" {' '.join(_tokens(_TIME.sub(' ', question)))} "
    for group in words.groups:
        named = [member for member in group if _is_in(member, rest)]
        if named:
            members = [member for member in group if has_han or not _HAN.search(member)]
            yield {_term(member): _EXACT if member in named else _SYNONYM for member in members}
            for member in sorted(named, key=len, reverse=True):
                rest = rest.replace(member, "|") if _HAN.search(member) else rest.replace(f" {member} ", " | ")
    for token in rest.split():
        for run in _HAN_RUN.findall(token):
            yield from ({_term(run[at : at + 2]): _EXACT} for at in range(max(1, len(run) - 1)))
        if token.isalnum() and not _HAN.search(token):
            is_common = token in words.common
            terms = {_term(token): _COMMON if is_common else _EXACT}
            if len(token) >= _PREFIX_FROM and not (is_common or token.isdigit()):
                terms[f"{_term(token)}*"] = _PREFIX
            yield terms


def _is_in(member: str, question: str) -> bool:
    return member in question if _HAN.search(member) else f" {member} " in question


def _tokens(text: str) -> Iterator[str]:
    """Yields the words of a question in lower case, without `won't` and the like; of `delayLevel` its parts, too."""
    known = {member for group in _words().groups for member in group}
    names = {name for name in _CAMEL_CASE.findall(text) if name.casefold() not in known}
    text = " ".join((text, *(_CAPITAL.sub(" ", name) for name in sorted(names))))
    text = _NEGATIVE.sub(r"minus\1", text.casefold().replace("’", "'"))
    for phrase in _words().common:
        if _HAN.search(phrase):
            text = text.replace(phrase, " ")
    for word in _WORD.findall(_HAN_RUN.sub(r" \g<0> ", text.replace("_", " "))):
        stem, _, ending = word.partition("'")
        if not (stem.endswith("n") and ending == "t"):
            yield stem


def _term(words: str) -> str:
    return f'"{_indexed(words).strip()}"'


@cache
def _words() -> _Words:
    lines = (pkgutil.get_data("mqtool", "synonyms.txt") or b"").decode().splitlines()
    rows = [line.split(", ") for line in lines if line and not line.startswith("#")]
    return _Words(
        tuple(tuple(row) for row in rows if row[0] != "-"),
        frozenset(word for row in rows if row[0] == "-" for word in row[1:]),
    )
