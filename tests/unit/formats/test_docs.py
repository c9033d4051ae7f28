"""The format pages are generated from the layouts and fixtures, complete, and up to date."""

import importlib.util
import re

import pytest

from tests.support.stores import FIXTURES

DOCS = FIXTURES.parent / "docs"
PAGES = sorted(path for path in (DOCS / "formats").glob("*.md") if path.name != "README.md")
SECTIONS = ["Purpose", "Layout", "Invariants", "Example", "Torn tail and recovery", "4.9 and 5.5", "Sources"]
OTHER_SYSTEMS = [section.replace("4.9 and 5.5", "Releases") for section in SECTIONS]


@pytest.fixture(scope="module")
def generate():
    spec = importlib.util.spec_from_file_location("docs_generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_is_what_the_generator_writes(page, generate):
    assert page.read_text("utf-8") == generate.filled(page.read_text("utf-8")), "run: python docs/generate.py"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_has_every_section_in_order(page):
    assert re.findall(r"^## (.*)$", page.read_text("utf-8"), re.MULTILINE) in (SECTIONS, OTHER_SYSTEMS)


def test_every_layout_and_example_is_on_a_page(generate):
    marks = {(mark[2], mark[3]) for page in PAGES for mark in generate.MARKED.finditer(page.read_text("utf-8"))}
    assert {name for kind, name in marks if kind == "table"} == set(generate.LAYOUTS)
    assert {name for kind, name in marks if kind == "example"} == set(generate.EXAMPLES)
    assert {name for kind, name in marks if kind == "text"} == set(generate.TEXTS)


def test_every_page_is_linked_from_the_overview():
    linked = re.findall(r"\]\((\S+?\.md)\)", (DOCS / "formats" / "README.md").read_text("utf-8"))
    assert sorted(set(linked)) == [page.name for page in PAGES]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_link_of_a_page_leads_somewhere(page):
    links = re.findall(r"\]\(([^\s#)]+)", page.read_text("utf-8"))
    assert all((page.parent / link).exists() for link in links)


def test_a_stale_page_is_seen(generate):
    page = (DOCS / "formats" / "checkpoint.md").read_text("utf-8")
    assert generate.filled(page.replace("| 24 | i64 |", "| 25 | i64 |")) == page
