"""Every compiled function is a form of a rule in docs/architecture.md, and no rule has a third form or another tool chain."""

import re

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
    assert len(sources) > 500
    assert [str(path.relative_to(ROOT)) for path in sources if calls.search(path.read_text("utf-8"))] == []
