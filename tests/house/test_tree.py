"""What must not be anywhere in the tree."""

import ast
import functools
import re
import subprocess
from pathlib import Path

import pytest

from tests.house.modules import ROOT, modules

OPEN_PROMISES = re.compile(r"\b(?:TODO|FIXME|XXX|NotImplementedError)\b")
MACHINE_PATHS = re.compile(r"(?<![\w.~$}>*-])/(?!home/rocketmq/)(?:home|Users|root|work)/\w")
"""That of a user is one, that of the official image of RocketMQ is the same everywhere."""
LARGEST_TEXT = 1 << 20
OTHERS_NAME = re.compile(r"(?<!rocketmq-)\bmqtool\[(?!-)[a-z{]|pip install (?:--\S+ )*['\"]?mqtool\b")
"""The name on the package index belongs to another project: installing it would fetch a stranger's code."""
REGISTRY_HOSTS = re.compile(r"pythonhosted|pypi\.org|repo1?\.maven|maven\.org|artifactory|npmjs\.")


@functools.cache
def texts() -> dict[str, str]:
    """Every text file that git knows or would add, by its path, without this one; fixtures have tests of their own.

    What is larger than any text of ours, such as a store that somebody left in the tree, is none.
    """
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    paths = {name: ROOT / name for name in names if name and (not name.startswith("fixtures/") or name.endswith(".md"))}
    return {
        name: path.read_text("utf-8", "replace")
        for name, path in paths.items()
        if path.is_file() and path.stat().st_size <= LARGEST_TEXT and path != Path(__file__)
    }


def places(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{name}:{number}: {line.strip()[:100]}"
        for name, text in texts().items()
        if pattern.search(text)
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]


def test_nothing_was_left_for_later():
    assert places(OPEN_PROMISES) == []


def test_no_path_of_a_machine_stands_anywhere():
    assert places(MACHINE_PATHS) == []


def test_no_package_registry_is_named():
    assert places(REGISTRY_HOSTS) == []


def test_nothing_is_installed_by_the_name_of_another_project():
    assert places(OTHERS_NAME) == []


def test_every_module_says_what_belongs_in_it():
    assert [str(module.path) for module in modules() if not ast.get_docstring(module.tree)] == []


@pytest.mark.slow
def test_every_test_can_fail():
    checks = re.compile(r"\bassert\b|\bcheck|raises|warns|pytest\.fail|harmed")
    idle = [
        f"{name}: {node.name}"
        for name, text in texts().items()
        if name.startswith("tests/") and name.endswith(".py")
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
        if not checks.search(ast.unparse(node.body))
    ]
    assert idle == []
