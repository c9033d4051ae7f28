"""Texts that users read are plain English: the wordings below must not come back."""

import ast
import re
from pathlib import Path

import pytest

from tests.house.modules import ROOT

BANNED = {
    r"\banew\b": "again; or rebuild",
    r"\bmend(?:s|ed|ing)?\b": "repair, fix",
    r"\b(?:that|which|what) (?:is|are) none\b": "is not a …, invalid",
    r"\b(?:is|are) gone\b": "is deleted, is missing, is lost",
    r"\bgoes (?:then|later|in this turn|in one turn)\b": "is deleted",
    r"\b(?:not )?(?:closed|stopped?|stops) in order\b": "shut down cleanly",
    r"\borderly (?:stop|start)": "clean shutdown",
    r"\bthe way back\b": "undo data; how to undo",
    r"\b(?:takes?|took|taken|taking) (?:it |that |them )?back\b": "undo",
    r"\bla(?:y|ys|id|ying) over\b": "overlay",
    r"\b(?:is|are|was|were) told\b": "is reported",
    r"\b(?:came|comes) to its end\b": "finished",
    r"\bsound (?:records?|messages?|ones)\b": "valid",
    r"\bthe other way round\b": "vice versa",
    r"\bfor ever\b": "forever",
    r"\blooked at\b": "checked, read, inspected",
    r"\bsee to (?:the|it)\b": "check",
    r"\bself-made\b": "self-signed",
    r"\bbeside (?:a|the) (?:running|live)\b": "while a broker is running",
    r"\bmade ahead\b": "preallocated",
    r"\bgo(?:es)? on\b": "continue",
    r"\bfor want of\b": "for lack of",
    r"\bvouch(?:es)? for\b": "confirm",
    r"\bends? sooner\b": "end earlier",
    r"\b(?:holds?|contains?) no byte(?: of)?\b": "contains no data",
    r"\bworked out\b": "computed",
    r"\b(?:all|everything) else is (?:left|kept) (?:as it is|alone)\b": "is not changed",
}
PATTERN = re.compile("|".join(f"(?:{pattern})" for pattern in BANNED), re.IGNORECASE)


def literals(path: Path) -> list[tuple[int, str]]:
    """(line, text) of every string of several words in a module, without docstrings unless they are help of a command."""
    tree = ast.parse(path.read_text("utf-8"))
    is_command = "cli/commands" in path.as_posix()
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and not is_command}
    return [
        (node.lineno, node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs and " " in node.value
    ]


def places(texts: list[tuple[str, str]]) -> list[str]:
    """Where a banned wording is, with the wording; line breaks count as blanks, and `code` does not count."""
    found = []
    for place, text in texts:
        for match in PATTERN.finditer(re.sub(r"`[^`]*`", "``", " ".join(text.split()))):
            better = next(
                better for pattern, better in BANNED.items() if re.fullmatch(pattern, match[0], re.IGNORECASE)
            )
            found.append(f"{place}: {match[0]!r}: write {better}")
    return found


def test_help_errors_findings_and_remedies_are_plain_english():
    modules = sorted((ROOT / "mqtool").rglob("*.py"))
    assert len(modules) > 300
    texts = [(f"{path.relative_to(ROOT)}:{line}", text) for path in modules for line, text in literals(path)]
    assert places(texts) == []


@pytest.mark.parametrize("suffix", ["md", "html"])
def test_pages_are_plain_english(suffix):
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.md")]
    roots = {"md": pages, "html": (ROOT / "mqtool").rglob("*.html")}
    assert places([(str(path.relative_to(ROOT)), path.read_text("utf-8")) for path in sorted(roots[suffix])]) == []


@pytest.mark.parametrize(
    "text",
    [
        "build the queue anew",
        "what the start mends",
        "a name that is none",
        "two files are gone",
        "was not closed in order",
    ],
)
def test_the_check_finds_the_old_wordings(text):
    assert len(places([("here", text)])) == 1
