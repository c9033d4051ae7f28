"""The package contains nothing that only tests use."""

import ast
import functools
import re
from collections.abc import Iterator

from tests.house.modules import Module, modules

GENERATED = "mqtool.protocol.rocketmq_v2"

STARTED_FROM_OUTSIDE = {
    "mqtool.__main__",  # python -m mqtool
    "mqtool.server.pytest_plugin",  # pyproject.toml
    "mqtool.polars",  # docs/library.md
}
"""Modules that no other one imports."""

USED_FROM_OUTSIDE = {
    "mqtool.duckdb.connect",  # docs/library.md
    "mqtool.polars.scan_store",
    "mqtool.scan.messages.scan",
    "mqtool.server.pytest_plugin.mqtool_new_server",
    "mqtool.server.pytest_plugin.mqtool_server",
    "mqtool.cli.reference.command_page",  # docs/site_hooks.py
    "mqtool.cli.reference.schemas",  # docs/site_hooks.py
    "mqtool.search.segmented",  # docs/site_hooks.py
    "mqtool.search.words_of",  # docs/site_hooks.py
    "mqtool.cli.exits.MEANINGS",
    "mqtool.formats.equeue.ID_LAYOUTS",  # docs/generate.py
    "mqtool.formats.hosts.UNIQUE_KEY_V4",
    "mqtool.formats.hosts.UNIQUE_KEY_V6",
    "mqtool.formats.epoch.build",  # inverses of parsers, compared with them on every real file
    "mqtool.formats.tfchunk.build_footer",
    "mqtool.formats.tfchunk.build_record",
    "mqtool.siblings.equeue.explain.walk",  # compared with what the real system reads
}
"""Names that only documented programs, the documentation's generators or comparisons with real systems use."""


_WORD = re.compile(r"[A-Za-z_]\w*")
_ANNOTATION = re.compile(r"[\w.\[\]|, ]{0,199}[\w\]]")  # no sentence


class Names:
    """The names that modules define at their top and where each leads, through imports and packages that pass it on."""

    def __init__(self) -> None:
        self.modules = {module.name: module for module in modules() if not module.name.startswith(GENERATED)}
        self.defined = {name: dict(_defined(module.tree.body)) for name, module in self.modules.items()}
        self.imported = {name: dict(self._imported(module)) for name, module in self.modules.items()}

    def _imported(self, module: Module) -> Iterator[tuple[str, tuple[str, str | None]]]:
        package = module.name.split(".") if module.path.name == "__init__.py" else module.name.split(".")[:-1]
        for node in module.nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield alias.asname or alias.name.split(".")[0], (alias.name if alias.asname else "mqtool", None)
            elif isinstance(node, ast.ImportFrom):
                base = package[: len(package) - node.level + 1] if node.level else []
                source = ".".join([*base, *filter(None, [node.module])])
                for alias in node.names:
                    full = f"{source}.{alias.name}"
                    yield alias.asname or alias.name, (full, None) if full in self.modules else (source, alias.name)

    def origin(self, module: str, name: str) -> str | None:
        """Returns where a module has a name from, as `module.name`; None for what the package does not define."""
        while name not in self.defined.get(module, {}):
            source, passed = self.imported.get(module, {}).get(name, ("", None))
            if passed is None or source == module:  # a module, in Python or an extension module of the package
                return None
            module, name = source, passed
        return f"{module}.{name}"

    def used(self, module: Module) -> Iterator[tuple[int, str]]:
        """Yields line and origin of each name that a module uses, also in text such as an annotation."""
        for node in module.nodes:
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                yield node.lineno, self.origin(module.name, node.id) or ""
            elif isinstance(node, ast.Attribute):
                owner = self._module_of(module.name, node.value)
                yield node.lineno, (self.origin(owner, node.attr) if owner else node.attr) or ""
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _ANNOTATION.fullmatch(node.value):
                yield from ((node.lineno, self.origin(module.name, word) or "") for word in _WORD.findall(node.value))

    def _module_of(self, module: str, node: ast.expr) -> str | None:
        if isinstance(node, ast.Attribute):
            owner = self._module_of(module, node.value)
            return f"{owner}.{node.attr}" if owner and f"{owner}.{node.attr}" in self.modules else None
        source, name = self.imported[module].get(node.id, ("", "")) if isinstance(node, ast.Name) else ("", "")
        return source if name is None else None


@functools.cache
def package_names() -> Names:
    return Names()


def _defined(body: list[ast.stmt]) -> Iterator[tuple[str, ast.stmt]]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from ((n.id, node) for target in targets for n in ast.walk(target) if isinstance(n, ast.Name))
        elif isinstance(node, ast.If | ast.Try):
            yield from _defined([*node.body, *node.orelse, *(s for h in getattr(node, "handlers", []) for s in h.body)])


def _is_registered(module: str, name: str, node: ast.stmt) -> bool:
    """Whether the package finds it by its name: commands, compiled functions, and constants that each such module has."""
    decorators = {ast.unparse(one).partition("(")[0] for one in getattr(node, "decorator_list", [])}
    return decorators & {"compiled", "intrinsic"} != set() or (
        module.startswith("mqtool.cli.commands.") and name == module.rpartition(".")[2]
    )


def test_every_name_at_the_top_of_a_module_is_used():
    names = package_names()
    uses: dict[str, list[tuple[str, int]]] = {}
    for module in names.modules.values():
        for line, origin in names.used(module):
            uses.setdefault(origin, []).append((module.name, line))
    unused = set()
    for module, defined in names.defined.items():
        for name, node in defined.items():
            first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", []))])
            own = range(first, (node.end_lineno or first) + 1)
            outside = [(user, at) for user, at in uses.get(f"{module}.{name}", []) if user != module or at not in own]
            # A constant that several modules have is read as an attribute of whichever module it is: `one.CHECKS`.
            by_attribute = name.isupper() and name in uses
            if not (outside or by_attribute or name.startswith("__") or _is_registered(module, name, node)):
                unused.add(f"{module}.{name}")
    assert sorted(unused - USED_FROM_OUTSIDE) == [], "delete it; tests may keep what only they need in tests/support"
    assert sorted(USED_FROM_OUTSIDE - unused) == [], "the package uses it now: take it from the list"


def test_every_module_is_imported():
    names = package_names()
    imported = {source for module in names.imported.values() for source, _ in module.values()}
    loaded = re.compile(r"mqtool\.(cli\.commands\.\w+|siblings\.\w+\.kind)")
    by_name = {name for name in names.modules if loaded.fullmatch(name)}
    packages = {name.rpartition(".")[0] for name in names.modules}
    unused = names.modules.keys() - imported - by_name - packages
    assert sorted(unused - STARTED_FROM_OUTSIDE) == []
    assert sorted(STARTED_FROM_OUTSIDE - unused - by_name) == [], "it is imported now: take it from the list"
