"""Reports wordings that read as a translation, with what to write instead: `python -m tests.house.wordings`.

`./check` prints them and goes by nothing of it: whether a wording is wrong is for a reader to decide.
"""

import ast
import re

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


SCRIPTS = ("setup", "check", "demo", "justfile", ".ci/run")


def report() -> list[str]:
    """The wordings in help, errors, findings, pages and scripts."""
    pages = [*ROOT.glob("*.md"), *(page for part in PAGES for page in (ROOT / part).rglob("*.md"))]
    files = [*(ROOT / name for name in SCRIPTS), *sorted(pages), *sorted((ROOT / "mqtool").rglob("*.html"))]
    texts = [(f"{module.path}:{line}", text) for module in modules() for line, text in literals(module)]
    return places([*texts, *((str(path.relative_to(ROOT)), path.read_text("utf-8")) for path in files)])


if __name__ == "__main__":
    for line in report():
        print(f"check: wording: {line}")
