"""Variables are named after what they hold, and the report of wordings finds them."""

import ast

import pytest

from tests.house.modules import modules
from tests.house.wordings import places

VAGUE = {"found", "made", "told", "wanted", "one", "most", "least"}
"""Names that say nothing about a value: `entries`, `match`, `row`, `limit` and `minimum` do."""


def variables(tree: ast.AST) -> list[tuple[int, str]]:
    """(line, name) of each variable and parameter, in the order of `ast.walk`."""
    named = {ast.arg: "arg", ast.ExceptHandler: "name"}
    return [
        (node.lineno, node.id if isinstance(node, ast.Name) else getattr(node, named[type(node)]))
        for node in ast.walk(tree)
        if type(node) in named or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    ]


def test_variables_are_named_after_what_they_hold():
    vague = [
        f"{module.path}:{line}: {name}"
        for module in modules()
        for line, name in variables(module.tree)
        if name in VAGUE
    ]
    assert vague == []


def test_every_way_to_name_a_value_is_checked():
    text = "def f(made, *told):\n  for one in made: least = one\n  try: wanted = 1\n  except OSError as found: most: int = 2"
    assert {name for _, name in variables(ast.parse(text))} == VAGUE


@pytest.mark.parametrize(
    "text",
    [
        "build the queue anew",
        "what the start mends",
        "a name that is none",
        "two files are gone",
        "was not closed in order",
        "every job beside RocketMQ's own",
        "so many bytes of the file",
        "the store lies on a disk",
        "--yes and --dry-run exclude each other",
    ],
)
def test_the_check_finds_the_old_wordings(text):
    assert len(places([("here", text)])) == 1
