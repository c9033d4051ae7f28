"""Every compiled function is a form of a rule in docs/architecture.md, and no rule has a third form or another tool chain."""

import ast
import re
from collections import Counter

import pytest

from mqtool.formats import commit_log, index_file
from mqtool.formats.consume_queue import UNIT_SIZE
from mqtool.native import MODULES
from mqtool.verify.record_rules import SPIKE_MS
from tests.house.modules import PACKAGE, ROOT
from tests.house.test_architecture import ARCHITECTURE

ROWS = re.findall(r"^\| ([^|]+) \| (`[^|]+`) \| (`native\.[^|]+`) \|$", ARCHITECTURE, re.MULTILINE)


def names(cell: str) -> list[str]:
    return re.findall(r"`([\w.]+)`", cell)


def defined(name: str) -> bool:
    module, _, thing = name.rpartition(".")
    for suffix in (".py", ".pyx"):
        path = PACKAGE.joinpath(*module.split(".")).with_suffix(suffix)
        if path.is_file():
            return bool(re.search(rf"^(?:cdef )?(?:def|class) {thing}\b", path.read_text("utf-8"), re.MULTILINE))
    return False


def test_every_form_exists():
    assert len(ROWS) > 10
    forms = [name for _, python, compiled in ROWS for name in (*names(python), *names(compiled))]
    assert [name for name in forms if not defined(name)] == []


def test_every_compiled_function_is_listed_once():
    listed = sorted(name for _, _, compiled in ROWS for name in names(compiled))
    public = sorted(
        f"native.{path.stem}.{name}"
        for path in (PACKAGE / "native").glob("*.pyx")
        for name in re.findall(r"^(?:def|cdef class) (\w+)", path.read_text("utf-8"), re.MULTILINE)
    )
    assert public == listed


def test_nothing_is_compiled_or_mapped_as_code_at_run_time():
    calls = re.compile(r"\bexec\(|PROT_EXEC|\bnumba\b|\bllvmlite\b|PyCFunction|ctypes\.pythonapi")
    sources = [path for path in PACKAGE.rglob("*") if path.suffix in {".py", ".pyx", ".pxd", ".h", ".c"}]
    assert len(sources) > 300
    assert [str(path.relative_to(ROOT)) for path in sources if calls.search(path.read_text("utf-8"))] == []


NATIVE = PACKAGE / "native"
C_STRUCTS = {"fields", "piece", "source", "time"}
BUILT_IN = {"acquire", "append", "buf", "get", "release", "shape", "sort", "_fields"}
"""Attributes of locks, lists, dicts, buffers and named tuples."""


def parameters(text: str) -> list[str]:
    """Names of the parameters of a function of Cython, whose types may contain commas."""
    names = re.sub(r"\[[^\]]*\]", "", text).replace(" not None", "").split(",")
    return [name.split()[-1] for name in names if name.strip()]


def stub(module: str) -> dict[str, list[str]]:
    """Functions and methods in a stub, and their parameters."""
    tree = ast.parse((NATIVE / f"{module}.pyi").read_text("utf-8"))
    scopes = [("", tree), *((f"{node.name}.", node) for node in tree.body if isinstance(node, ast.ClassDef))]
    return {
        prefix + node.name: [argument.arg for argument in node.args.args]
        for prefix, scope in scopes
        for node in scope.body
        if isinstance(node, ast.FunctionDef) and not node.decorator_list
    }


@pytest.mark.parametrize("module", MODULES)
def test_stubs_have_the_functions_and_parameters_of_the_modules(module):
    source = (NATIVE / f"{module}.pyx").read_text("utf-8")
    functions, owner = {}, ""
    for kind, indent, name, arguments in re.findall(
        r"^(cdef class |( *)def )(\w+)(?:\(([^)]*)\))?", source, re.MULTILINE
    ):
        if kind == "cdef class ":
            owner = name
        elif name not in {"__cinit__", "__dealloc__", "__reduce__"}:
            functions[f"{owner}.{name}" if indent else name] = parameters(arguments)
    assert functions == stub(module)


def test_stubs_declare_each_attribute_that_engine_reads_by_name():
    """And mypy checks that the objects passed to it have them."""
    source = (NATIVE / "engine.pyx").read_text("utf-8")
    code = re.sub(r'"""[\s\S]*?"""|"[^"\n]*"|#.*|^(?:from|import) .*|\bself\.', "", source, flags=re.MULTILINE)
    used = {name for owner, name in re.findall(r"(?=(\b\w+|[)\]])\.([A-Za-z_]\w*))", code) if owner not in C_STRUCTS}
    tree = ast.parse((NATIVE / "engine.pyi").read_text("utf-8"))
    protocols = [
        node for node in tree.body if isinstance(node, ast.ClassDef) and ast.unparse(node.bases[0]) == "Protocol"
    ]
    declared = {
        member.target.id if isinstance(member, ast.AnnAssign) else member.name
        for protocol in protocols
        for member in protocol.body
    }
    assert used - BUILT_IN == declared


def test_each_compiled_function_is_called_in_one_place():
    """There the choice between its form and that in Python is made, and nowhere else can there be a third one."""
    calls = Counter(
        name
        for path in PACKAGE.rglob("*.py")
        for name in re.findall(r"\b(native\.(?:engine|lines|logs)\.\w+)\(", path.read_text("utf-8"))
    )
    assert calls == dict.fromkeys((name for _, _, compiled in ROWS for name in names(compiled)), 1)


def test_numbers_of_the_modules_are_those_of_the_layouts():
    sources = [(NATIVE / name).read_text("utf-8") for name in ("bytes.pxd", "logs.pyx")]
    numbers = {
        name: int(value, 0)
        for text in sources
        for name, value in re.findall(r"^    ([A-Z_0-9]+) = (-?\w+)", text, re.MULTILINE)
    }
    flag, at = commit_log.SysFlag, commit_log.field_offset
    expected = {
        "MAGIC_V1": commit_log.MAGIC_V1,
        "MAGIC_V2": commit_log.MAGIC_V2,
        "MIN_RECORD": commit_log.MIN_RECORD_SIZE,
        "FRAME": commit_log.FRAME.size,
        "MAGIC_AT": at("magic_code"),
        "CRC_AT": at("body_crc"),
        "QUEUE_AT": at("queue_id"),
        "FLAG_AT": at("flag"),
        "OFFSET_AT": at("queue_offset"),
        "PHYSICAL_AT": at("physical_offset"),
        "SYS_FLAG_AT": at("sys_flag"),
        "BORN_AT": at("born_timestamp"),
        "BORN_HOST_AT": at("born_host"),
        "STORED_AT": at("store_timestamp"),
        "STORE_HOST_AT": at("store_host"),
        "RETRIES_AT": at("reconsume_times"),
        "PREPARED_AT": at("prepared_transaction_offset"),
        "BODY_AT": commit_log.BODY_POSITIONS[0],
        "PREPARED": flag.TRANSACTION_PREPARED,
        "ROLLBACK": flag.TRANSACTION_ROLLBACK,
        "UNIT": UNIT_SIZE,
        "INDEX_HEADER": index_file.HEADER_SIZE,
        "INDEX_SLOT": index_file.SLOT_SIZE,
        "INDEX_ENTRY": index_file.ENTRY.size,
        "MAX_STEP_BACK": SPIKE_MS,
    }
    assert {name: numbers[name] for name in expected} == expected
