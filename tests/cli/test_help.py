"""`mqtool help`: pages by topic, and pages found by their words."""

import json
import os

import pytest

from mqtool import guide
from mqtool.cli.app import run
from tests.house.modules import ROOT


def test_without_a_topic_every_page_is_listed_once(capsys):
    assert run(["help", "--format", "jsonl"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    topics = [row["topic"] for row in rows]
    assert len(topics) == len(set(topics)) == len(list((ROOT / "docs").rglob("*.md")))
    assert all(row["title"] for row in rows)


def test_a_topic_is_printed_as_it_was_written(capsys):
    assert run(["help", "exit-codes"]) == 0
    [path] = (ROOT / "docs").rglob("exit-codes.md")
    printed = capsys.readouterr().out
    assert printed.startswith("# Exit codes\n")
    assert path.read_text("utf-8").endswith(printed)


def test_front_matter_is_read_and_not_shown(capsys):
    """YAML of a form that needs no library: PyYAML reads the same."""
    yaml = pytest.importorskip("yaml")
    pages = {page.topic: page for page in guide.pages()}
    for path in sorted((ROOT / "docs").rglob("*.md")):
        if (text := path.read_text("utf-8")).startswith("---\n"):
            topic = path.relative_to(ROOT / "docs").with_suffix("").as_posix()
            page = pages[topic.removesuffix("/index").removesuffix("/README")]
            front = yaml.safe_load(text.split("---\n")[1])
            for name, items in front.items():
                assert (topic, getattr(page, name)[-len(items) :]) == (topic, tuple(map(str, items)))
            assert page.text.startswith("# ")
    assert run(["help", "rb-18"]) == 0
    assert capsys.readouterr().out.startswith("# RB-18")


def test_words_of_a_topic_and_the_end_of_its_path_are_enough(capsys):
    assert run(["help", "Exit", "codes"]) == 0
    spelled = capsys.readouterr().out
    assert run(["help", "rb-01"]) == 0
    assert spelled.startswith("# ")
    assert capsys.readouterr().out.startswith("# RB-01")


def test_on_a_terminal_a_page_is_formatted_and_shown_by_the_pager(monkeypatch):
    shown = []
    monkeypatch.setattr("pydoc.pager", shown.append)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.delenv("LESS", raising=False)
    assert run(["help", "exit-codes"]) == 0
    (text,) = shown
    assert "\x1b[" in text
    assert "# Exit codes" not in text
    assert os.environ["LESS"] == "-FR"


def test_without_the_pages_it_is_said_what_to_install(monkeypatch, capsys, tmp_path):
    guide.pages.cache_clear()
    monkeypatch.setattr(guide, "__file__", str(tmp_path / "mqtool" / "guide.py"))
    monkeypatch.setattr("importlib.resources.files", lambda package: tmp_path / package)
    assert run(["help"]) != 0
    assert "the documentation is not installed; install the wheel of mqtool again" in capsys.readouterr().err


def test_a_symptom_in_words_leads_to_its_page(capsys):
    assert run(["help", "disk", "FULL"]) == 0
    assert capsys.readouterr().out.startswith("# The disk is full\n")


@pytest.mark.parametrize("code", ["253", "254", "255"])
def test_an_exit_code_of_the_broker_leads_to_what_it_means(capsys, code):
    """As Kubernetes shows them; the real brokers end with -3, -2 and -1."""
    guide_page = guide.text_of("howto/broker-does-not-start.md")
    assert run(["help", code]) == 0
    printed = capsys.readouterr().out
    assert printed == guide_page or printed.splitlines()[1].startswith("howto/broker-does-not-start ")


def test_other_words_are_searched_for_in_pages_commands_and_codes(capsys):
    assert run(["help", "the", "TORN", "tail", "--format", "jsonl"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert rows[0]["topic"] == "runbooks/RB-04"
    assert len(rows) == 12
    assert all(row["text"] == "" and row["why"] for row in rows)
    assert run(["help", "predict", "a", "startup", "--format", "jsonl"]) == 0
    assert "mqtool explain-start" in {json.loads(line)["topic"] for line in capsys.readouterr().out.splitlines()}
    assert run(["help", "units of a queue overlap"]) == 0
    assert "\nchecks queue-" in capsys.readouterr().out


def test_words_that_no_page_has_are_an_answer_of_no(capsys):
    assert run(["help", "xylophone", "zither"]) == 1
    assert "`mqtool help` lists all topics" in capsys.readouterr().err
