"""The modules of the package, parsed: what the tests of the house look at."""

import ast
import functools
import gc
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "mqtool"


@dataclass(frozen=True)
class Module:
    """One file of the package; `name` is `mqtool.records.frames`, `layer` is `records`, or the file itself at the top."""

    path: Path
    name: str
    layer: str
    tree: ast.Module
    lines: int

    @functools.cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """Every node of the tree."""
        return tuple(ast.walk(self.tree))

    def imports(self) -> Iterator[tuple[int, str]]:
        """Line and full name of each import, wherever in the file it stands; relative ones made absolute."""
        package = self.name.split(".") if self.path.name == "__init__.py" else self.name.split(".")[:-1]
        for node in self.nodes:
            if isinstance(node, ast.Import):
                yield from ((node.lineno, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                base = package[: len(package) - node.level + 1] if node.level else []
                source = ".".join([*base, *filter(None, [node.module])])
                yield from ((node.lineno, f"{source}.{alias.name}") for alias in node.names)

    def functions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        """Every function and method."""
        for node in self.nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node


@functools.cache
def modules() -> tuple[Module, ...]:
    """Every module of the package."""
    gc.disable()  # it would search more than a million nodes for cycles again and again, for three quarters of the time
    try:
        return tuple(_parse(path) for path in sorted(PACKAGE.rglob("*.py")))
    finally:
        gc.enable()


def _parse(path: Path) -> Module:
    text = path.read_text("utf-8")
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    layer = parts[1]
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    return Module(path.relative_to(ROOT), name, layer, ast.parse(text), text.count("\n"))
