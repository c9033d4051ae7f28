"""Questions in users' words and lines of real logs lead to the page that answers, among the first three."""

import json
import sqlite3
from pathlib import Path

import pytest

from mqtool import guide, search
from mqtool.cli.app import run
from mqtool.errors import UnavailableError
from mqtool.guide import Page

HERE = Path(__file__).parent
AMONG = 3
ENOUGH = 0.95


def rows(name):
    """(question or line, topics that answer it, in either language) of a file."""
    lines = (HERE / name).read_text("utf-8").splitlines()
    return [(question, topics.split(", ")) for question, topics in (line.split("\t") for line in lines)]


def answers(capsys, *words):
    """Rows that a command prints."""
    run([*words, "--format", "jsonl"])
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize("name", ["questions.tsv", "terse_questions.tsv", "log_lines.tsv"])
def test_the_right_page_is_among_the_first_three(name, capsys):
    missed = []
    for question, topics in rows(name):
        first = [row["topic"].removeprefix("zh/") for row in answers(capsys, "help", question)[:AMONG]]
        if not set(first) & set(topics):
            missed.append((question, first))
    assert len(missed) <= (1 - ENOUGH) * len(rows(name)), missed


def test_help_offers_what_runbook_match_finds(capsys):
    matched = 0
    for line, _ in rows("log_lines.tsv"):
        if found := answers(capsys, "runbook", "match", line):
            topics = [row["topic"] for row in answers(capsys, "help", line)]
            assert {f"runbooks/{row['id']}" for row in found} <= set(topics[: len(found) + 1]), line
            matched += 1
    assert matched > len(rows("log_lines.tsv")) / 2
    assert run(["runbook", "match", "ERROR main - java.net.BindException: Address already in use"]) == 1
    assert "`mqtool help howto/broker-does-not-start` quotes it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("2026-01-01 10:00:00 ERROR main - found: 17 of A, then B (x) end", True),
        ("found: 17 of A, then B", True),  # cut at its end, with more than half of the words
        ("of A then B", True),  # cut at both ends
        ("then B", False),  # in too many lines
        ("B then of A found", False),
    ],
)
def test_a_line_may_have_more_or_be_cut(line, shown):
    page = Page("runbooks/RB-00", "", "", log=("found: … of A, then B … end",))
    assert bool(guide.logged([page], line)) is shown


ENGLISH = Page("howto/disk-full", "The disk is full", "## Free space\n\nDelete segments.", zh=("磁盘满了",))
CHINESE = Page("zh/howto/disk-full", "磁盘写满", "## 释放空间\n\n删除过期的 CommitLog 文件。")
OTHER = Page(
    "howto/delay",
    "Late messages",
    "They are late, and the disk has nothing to do with it. Code 170.",
    codes=("CODE: 17",),
)


def topics(question):
    """Topics that a search finds, the best first."""
    return [hit.page.topic for hit in search.search([OTHER, ENGLISH, CHINESE], question)]


def test_pages_of_the_language_of_the_question_come_first():
    assert topics("磁盘满")[:2] == ["zh/howto/disk-full", "howto/disk-full"]
    assert topics("the disk is full")[0] == "howto/disk-full"
    assert topics("释放空间")[0] == "zh/howto/disk-full"


def test_a_hit_shows_the_words_that_fit():
    assert next(search.search([ENGLISH], "磁盘")).why == "磁盘满了"
    assert "Delete segments" in next(search.search([ENGLISH], "removed a segment")).why


def test_the_parts_of_a_name_are_words():
    assert next(search.search([OTHER, ENGLISH], "freeSpace")).page is ENGLISH


def test_a_number_is_a_word_of_its_own():
    assert topics("code 17") == ["howto/delay"]
    assert topics("-17") == []


def test_without_fts5_it_is_said_what_to_do(monkeypatch):
    class Connection:
        def execute(self, statement):
            raise sqlite3.OperationalError("no such module: fts5")

    monkeypatch.setattr("sqlite3.connect", lambda path: Connection())
    with pytest.raises(UnavailableError, match=r"FTS5.*no such module: fts5.*another Python.*`mqtool help` lists all"):
        next(search.search([Page("new", "New", "disk")], "disk"))


def test_a_word_has_one_group_of_synonyms():
    lines = (Path(search.__file__).parent / "synonyms.txt").read_text("utf-8").splitlines()
    words = [word for line in lines if not line.startswith("#") for word in line.removeprefix("-, ").split(", ")]
    assert sorted({word for word in words if words.count(word) > 1}) == []
    assert words == [word.strip().casefold() for word in words]
