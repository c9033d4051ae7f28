"""Dependencies point one way, and each library stays in the layer that it belongs to."""

import ast

import pytest

from mqtool.cli.commands import COMMANDS
from tests.house.modules import modules

BASE = {"errors", "words", "commands", "choices", "values", "signals"}
READING = BASE | {"jobs", "formats", "native", "records", "store"}
ALLOWED = {
    "errors": set(),
    "words": set(),
    "commands": set(),
    "choices": set(),
    "values": set(),
    "signals": set(),
    "pages": BASE,
    "guide": BASE,
    "search": BASE | {"guide"},
    "jobs": BASE,
    "formats": BASE,
    "protocol": BASE | {"formats"},
    "native": BASE | {"formats"},
    "records": BASE | {"formats", "native"},
    "store": BASE | {"jobs", "formats", "native", "records"},
    "recovery": READING,
    "verify": READING | {"guide", "recovery"},
    "rebuild": READING,
    "diff": READING,
    "story": READING,
    "report": READING | {"verify", "pages", "story"},
    "engine": READING | {"recovery"},
    "ingest": READING | {"engine"},
    "export": READING,
    "scan": READING | {"export", "verify"},
    "duckdb": READING | {"export", "scan"},
    "polars": READING | {"export", "scan"},
    "replay": READING | {"engine", "ingest", "export"},
    "spark": READING | {"export", "scan", "verify", "siblings", "rebuild"},
    "repair": READING | {"guide", "recovery", "verify", "rebuild", "engine", "diff", "convert", "replay"},
    "siblings": READING | {"verify"},
    "convert": READING | {"rebuild"},
    "server": READING | {"engine", "ingest", "protocol", "pages"},
    "__init__": {"store"},
    "__main__": {"cli"},
}
ALLOWED["cli"] = set(ALLOWED) - {"__main__"}

# Libraries that only some layers may use: they cost start-up time, or stand for a responsibility.
ONLY_IN = {
    "asyncio": {"engine", "server"},
    "construct": {"formats"},
    "mmap": {"engine"},  # reading may meet a file that shrinks, which would end the process
    "pyarrow": {
        "jobs",
        "records",
        "siblings",
        "store",
        "verify",
        "ingest",
        "repair",
        "export",
        "scan",
        "duckdb",
        "polars",
        "spark",
        "cli",
    },
    "numpy": set(ALLOWED) - {"errors", "words", "commands", "choices", "values", "jobs", "__init__", "__main__"},
    "pyspark": {"spark"},
    "duckdb": {"duckdb"},
    "polars": {"polars"},
    "rocksdict": {"store"},
    "uvloop": {"server"},
    "h2": {"server"},
    "google": {"protocol", "server"},  # protobuf
    "fsspec": {"store"},
    "jinja2": {"pages", "report", "server"},
    "rich": {"cli"},
    "typer": {"cli"},
}


def layer_of(imported: str) -> str | None:
    """`mqtool.records.frames` is in `records`; a name of the package itself, such as `mqtool.__version__`, in no layer."""
    package, _, rest = imported.partition(".")
    layer = rest.partition(".")[0]
    return layer if package == "mqtool" and layer in ALLOWED else None


@pytest.mark.slow
def test_every_module_belongs_to_a_known_layer():
    unknown = {module.layer for module in modules()} - set(ALLOWED)
    assert not unknown, "give it a row in ALLOWED"


@pytest.mark.slow
@pytest.mark.parametrize("layer", sorted(ALLOWED))
def test_a_layer_imports_itself_and_what_lies_below(layer):
    allowed = ALLOWED[layer] | {layer, None}
    upward = [
        f"{module.path}:{line} imports {name}"
        for module in modules()
        if module.layer == layer
        for line, name in module.imports()
        if layer_of(name) not in allowed
    ]
    assert upward == []


def cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Groups of modules that import each other, by way of others or at once: the strongly connected components."""
    number, lowest, path, found = {}, {}, [], []

    def visit(name):
        number[name] = lowest[name] = len(number)
        path.append(name)
        for imported in graph[name]:
            if imported not in number:
                visit(imported)
                lowest[name] = min(lowest[name], lowest[imported])
            elif imported in path:
                lowest[name] = min(lowest[name], number[imported])
        if lowest[name] == number[name]:
            group = path[path.index(name) :]
            del path[path.index(name) :]
            if len(group) > 1:
                found.append(sorted(group))

    for name in graph:
        if name not in number:
            visit(name)
    return found


def test_cycles_are_found():
    graph = {"a": {"b"}, "b": {"c", "e"}, "c": {"a", "d"}, "d": {"e"}, "e": {"d"}, "f": {"a"}}
    assert cycles(graph) == [["d", "e"], ["a", "b", "c"]]


def test_no_import_cycles():
    """Wherever an import stands: also in a function, or for types only. A name imported from a package is not a module."""
    names = {module.name for module in modules()}

    def module_of(imported):
        return imported if imported in names else imported.rpartition(".")[0]

    graph = {
        module.name: {module_of(name) for _, name in module.imports()} & names - {module.name} for module in modules()
    }
    assert cycles(graph) == [], "break the cycle: what both need belongs below them"


def test_a_command_is_one_file_and_imports_no_other():
    files = {f"mqtool.cli.commands.{name.replace('-', '_')}" for name in COMMANDS}
    found = {module.name: module for module in modules() if module.name.startswith("mqtool.cli.commands.")}
    assert found.keys() == files
    assert [
        f"{module.path}:{line} imports {name}"
        for module in found.values()
        for line, name in module.imports()
        if name.startswith(tuple(f"{file}." for file in files)) or name in files
    ] == [], "what commands share is in mqtool.cli"


@pytest.mark.slow
@pytest.mark.parametrize("library", sorted(ONLY_IN))
def test_a_library_stays_in_its_layers(library):
    strays = [
        f"{module.path}:{line}"
        for module in modules()
        if module.layer not in ONLY_IN[library]
        for line, name in module.imports()
        if name.partition(".")[0] == library
    ]
    assert strays == []


def test_formats_and_records_open_no_file():
    openers = {"open", "read_bytes", "read_text", "write_bytes", "write_text"}
    calls = [
        f"{module.path}:{node.lineno}"
        for module in modules()
        if module.layer in {"formats", "records", "protocol"}
        for node in module.nodes
        if isinstance(node, ast.Call)
        if (node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")) in openers
    ]
    assert calls == []


WALKERS = {"SegmentSpan", "SegmentWalk", "EntryWalk", "walk_kind"}


def test_a_walk_is_put_together_in_one_place():
    calls = {
        str(module.path)
        for module in modules()
        if module.layer != "records"
        for node in module.nodes
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in WALKERS
    }
    assert calls == {"mqtool/store/log/log_walk.py"}


ROOMS_OF_SERVER = (
    *("clock", "net", "routes", "namesrv", "producer", "replication", "mirror"),
    *("broker", "auth", "faults", "grpc", "controls", "admin"),
)


def test_a_room_of_the_server_imports_only_those_before_it():
    backward = [
        f"{module.path}:{line} imports {name}"
        for module in modules()
        if module.name.startswith("mqtool.server.") and module.name.split(".")[2] in ROOMS_OF_SERVER
        for line, name in module.imports()
        if name.startswith("mqtool.server.")
        and name.split(".")[2] not in ROOMS_OF_SERVER[: ROOMS_OF_SERVER.index(module.name.split(".")[2]) + 1]
    ]
    assert backward == []


def test_a_server_asks_a_clock_for_the_time():
    direct = {"time.time", "time.time_ns", "time.monotonic", "time.monotonic_ns"}
    uses = [
        f"{module.path}:{node.lineno}"
        for module in modules()
        if module.layer == "server"
        for node in module.nodes
        if isinstance(node, ast.Attribute) and ast.unparse(node) in direct
    ]
    assert uses == []
