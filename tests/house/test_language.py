"""Texts that users read are plain English: the wordings below must not come back."""

import ast
import re

import pytest

from tests.house.modules import ROOT, Module, modules

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
    r"\bbeside\b": "next to, compared with; while a broker is running",
    r"\bso many\b": "this number of",
    r"\bwhoever\b": "the user who, any client that",
    r"\b(?:lies?|lay|stands?|stood) (?:in|at|on|there|between|behind|outside|inside|next to|after)\b": "is in, is stored at",
    r"\bone (?:behind|beside|next to) the other\b": "consecutive, in order",
    r"\bputs? right\b": "correct",
    r"\bforetell": "predict",
    r"\b(?:is|are|was|were) (?:not )?believed\b": "is used, is ignored",
    r"\bsays? loudly\b": "warns",
    r"\bin one go\b": "at once, together",
    r"\b(?:come|comes|came) again\b": "is delivered again, occurs again",
    r"\bexclude each other\b": "cannot be combined",
    r"\bdo(?:es)? not go (?:together|with)\b": "cannot be combined; does not apply to",
    r"\bone a core\b": "one for each core",
    r"\bharmed\b": "damaged",
    r"\bknown troubles?\b": "known problems",
    r"\b(?:take|takes|took|taking) turns\b": "alternate",
    r"\bhanded round\b": "passed on",
    r"\bmade ahead\b": "preallocated",
    r"\bgo(?:es)? on\b": "continue",
    r"\bfor want of\b": "for lack of",
    r"\bvouch(?:es)? for\b": "confirm",
    r"\bends? sooner\b": "end earlier",
    r"\b(?:holds?|contains?) no byte(?: of)?\b": "contains no data",
    r"\bworked out\b": "computed",
    r"\b(?:all|everything) else is (?:left|kept) (?:as it is|alone)\b": "is not changed",
}
VAGUE = {"found", "made", "told", "wanted", "one", "most", "least"}
"""Names that say nothing about a value: `entries`, `match`, `row`, `limit` and `minimum` do."""
PAGES = ("docs", "deploy", "fixtures", "benchmarks")
PATTERN = re.compile("|".join(f"(?:{pattern})" for pattern in BANNED), re.IGNORECASE)


def literals(module: Module) -> list[tuple[int, str]]:
    """(line, text) of every string of several words in a module, without docstrings unless they are help of a command."""
    is_command = "cli/commands" in module.path.as_posix()
    docs = {id(node.value) for node in module.nodes if isinstance(node, ast.Expr) and not is_command}
    return [
        (node.lineno, node.value)
        for node in module.nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs and " " in node.value
    ]


def places(texts: list[tuple[str, str]]) -> list[str]:
    """Where a banned wording is, with the wording; line breaks count as blanks, and `code` does not count."""
    found = []
    for place, text in texts:
        for match in PATTERN.finditer(re.sub(r"`[^`]*`|<!--.*?-->", "``", " ".join(text.split()))):
            better = next(
                better for pattern, better in BANNED.items() if re.fullmatch(pattern, match[0], re.IGNORECASE)
            )
            found.append(f"{place}: {match[0]!r}: write {better}")
    return found


def variables(tree: ast.AST) -> list[tuple[int, str]]:
    """(line, name) of each variable and parameter, in the order of `ast.walk`."""
    named = {ast.arg: "arg", ast.ExceptHandler: "name"}
    return [
        (node.lineno, node.id if isinstance(node, ast.Name) else getattr(node, named[type(node)]))
        for node in ast.walk(tree)
        if type(node) in named or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    ]


SCRIPTS = ("setup", "check", "demo", "justfile", ".ci/run")


def test_scripts_are_plain_english():
    assert places([(name, (ROOT / name).read_text("utf-8")) for name in SCRIPTS]) == []


def test_help_errors_findings_and_remedies_are_plain_english():
    assert len(modules()) > 300
    texts = [(f"{module.path}:{line}", text) for module in modules() for line, text in literals(module)]
    assert places(texts) == []


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


@pytest.mark.parametrize("suffix", ["md", "html"])
def test_pages_are_plain_english(suffix):
    pages = [*ROOT.glob("*.md"), *(page for part in PAGES for page in (ROOT / part).rglob("*.md"))]
    assert len(pages) > 90
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
        "every job beside RocketMQ's own",
        "so many bytes of the file",
        "the store lies on a disk",
        "--yes and --dry-run exclude each other",
    ],
)
def test_the_check_finds_the_old_wordings(text):
    assert len(places([("here", text)])) == 1
