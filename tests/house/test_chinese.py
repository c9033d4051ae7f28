"""A Chinese page has the commands and headings of its English page, and every guide has a Chinese page."""

import re

import pytest

from mqtool import guide, search
from tests.house.modules import ROOT

DOCS = ROOT / "docs"
PAIRS = {
    "README.zh-CN.md": ("README.zh-CN.md", "README.md"),
    **{
        path.relative_to(DOCS).as_posix(): (f"docs/{path.relative_to(DOCS)}", f"docs/{path.relative_to(DOCS / 'zh')}")
        for path in sorted((DOCS / "zh").rglob("*.md"))
    },
}
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"(?:^|\s+)(?:#|//) .*$", re.MULTILINE)


def parts(page: str) -> tuple[list[tuple[str, str]], list[str]]:
    """Code blocks without their comments, and the marks of headings, of a page."""
    text = (ROOT / page).read_text("utf-8")
    blocks = [(kind, COMMENT.sub("", code)) for kind, code in BLOCK.findall(text)]
    return blocks, re.findall(r"^(#+) ", BLOCK.sub("", text), re.MULTILINE)


@pytest.mark.parametrize(("chinese", "english"), PAIRS.values(), ids=PAIRS)
def test_a_chinese_page_has_the_commands_and_headings_of_the_english_one(chinese, english):
    assert parts(chinese) == parts(english)


@pytest.mark.parametrize(("chinese", "english"), PAIRS.values(), ids=PAIRS)
def test_a_chinese_page_is_written_with_chinese_punctuation_and_a_space_next_to_latin_words(chinese, english):
    text = BLOCK.sub("", (ROOT / chinese).read_text("utf-8"))
    prose = re.sub(r"`[^`]*`", "`…`", re.sub(r"\]\([^)]*\)", "]", text))
    assert (
        re.findall(r"[\u3001-\u9fff\uff00-\uffef]\n *[\u3001-\u9fff\uff00-\uffef`]", prose) == []
    )  # it shows as a blank
    assert re.findall(r"[\u4e00-\u9fff][,;:?!(]|[\u4e00-\u9fff][A-Za-z0-9`]|[A-Za-z0-9`%][\u4e00-\u9fff]", prose) == []


def test_every_guide_has_a_chinese_page():
    guides = {f"howto/{path.name}" for path in (DOCS / "howto").glob("*.md")} | {"tutorials/broker-in-tests.md"}
    assert {f"zh/{name}" for name in (*guides, "runbooks/README.md")} <= set(PAIRS)


def test_a_chinese_page_is_found_first_by_its_symptoms():
    pages = guide.pages()
    chinese = [(page.topic, words) for page in pages if page.topic.startswith("zh/") for words in page.symptoms]
    assert len(chinese) > 40
    assert [row for row in chinese if next(search.search(pages, row[1])).page.topic != row[0]] == []
