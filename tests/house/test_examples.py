"""What the tour and the library page show is what a reader gets who does the same."""

import importlib.util

import pytest

from tests.house.modules import ROOT


def examples():
    spec = importlib.util.spec_from_file_location("examples", ROOT / "docs" / "examples.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.parametrize("name", examples().PAGES)
def test_a_page_shows_what_its_examples_print(name):
    text = (ROOT / "docs" / name).read_text("utf-8")
    assert examples().filled(text) == text, "run docs/examples.py"


@pytest.mark.parametrize("name", examples().PAGES)
def test_every_example_of_a_page_prints_something(name):
    text = (ROOT / "docs" / name).read_text("utf-8")
    empty = [body for kind, body in examples().BLOCK.findall(text) if kind == "text" and not body.strip()]
    assert empty == []
