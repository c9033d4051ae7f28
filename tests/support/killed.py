"""An export that dies at a chosen step, again and again: `python -m tests.support.killed STORE DIRECTORY KIND`.

A step is any call that changes what is on disk: opening a file to write, fsync, rename, removal. The process dies just
before it, as from SIGKILL: no handler runs. Each try is a fork of a process that has used no Arrow thread yet.
Prints a JSON line for each step.
"""

import builtins
import json
import os
import pathlib
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from mqtool.errors import ExportError
from mqtool.export.parquet import WriteOptions
from mqtool.export.schema import ReadRequest
from tests.support import lake

KINDS = ("alone", "first", "second", "rewound")
"""An export without state; the first of an incremental one; the one that adds to it; one of a log that was cut back."""

_NAME = "rollover-5.5.0"
_KILLED = 9


def main() -> None:
    """Runs all steps of one kind."""
    store, directory, kind = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    step = 0
    while True:
        step += 1
        work = directory / str(step)
        work.mkdir()
        code, told = _in_child(partial(_one, store, work, kind, step))
        shutil.rmtree(work)
        print(json.dumps({"step": step, **told}), flush=True)
        if code or not told.get("killed"):
            return


def _in_child(work: Callable[[], dict[str, Any]]) -> tuple[int, dict[str, Any]]:
    """Runs in a fork; returns its exit code and what it says."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        code = 1
        try:
            said = json.dumps(work()).encode()
            os.write(writer, said)
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code, json.loads(said or b"{}")


def _one(store: Path, work: Path, kind: str, step: int) -> dict[str, Any]:
    """One try: prepare, die, look, run again, look; then once more, which must change nothing."""
    target, state = work / "lake", None if kind == "alone" else str(work / "state")
    ends = lake.record_ends(_NAME)
    old, new = {"second": (60, len(ends)), "rewound": (90, 60)}.get(kind, (0, len(ends)))
    if kind == "rewound":
        lake.grow(_NAME, store, ends[29])
        assert _in_child(lambda: _export(store, target, state))[0] == 0
    if old:
        lake.grow(_NAME, store, ends[old - 1])
        assert _in_child(lambda: _export(store, target, state))[0] == 0
    lake.grow(_NAME, store, ends[new - 1])
    code, _ = _in_child(lambda: _dying(lambda: _export(store, target, state), step))
    seen = _visible(target)
    again, said = _in_child(lambda: _export(store, target, state))
    final = _visible(target)
    _in_child(lambda: _export(store, target, state))
    return {
        "killed": code == _KILLED,
        "seen_ok": (kind == "rewound" or max(seen.values(), default=1) == 1) and len(seen) >= min(old, new),
        "again": again,
        "said": said.get("outcome"),
        "final_ok": final == Counter({(end, None): 1 for end in ends[:new]}) and _visible(target) == final,
        "leftovers": sorted(path.name for path in (target / "_mqtool").iterdir() if path.name.startswith("staging")),
    }


def _export(store: Path, target: Path, state: str | None) -> dict[str, Any]:
    options = WriteOptions(("topic",))
    try:
        result = lake.run_export(
            store,
            target,
            state=state,
            split_bytes=30_000,
            write=options,
            read=ReadRequest(every_class=True),
            rewind=state is not None,
        )
    except ExportError as error:
        return {"outcome": str(error)}
    return {"outcome": "completed" if result.finished_earlier else "exported" if result.committed else "nothing"}


def _visible(target: Path) -> Counter[tuple[int, int | None]]:
    """(end of the record, batch index) of every row that a reader would find now."""

    def look() -> dict[str, Any]:
        names = ["physical_offset", "store_size", "batch_index"]
        paths = lake.files(target) if (target / "messages").exists() else []
        found = [row for path in paths for row in pq.read_table(path, columns=names).to_pylist()]
        return {"rows": [(row["physical_offset"] + row["store_size"], row["batch_index"]) for row in found]}

    return Counter((end, index) for end, index in _in_child(look)[1]["rows"])


def _dying(work: Callable[[], dict[str, Any]], step: int) -> dict[str, Any]:
    """Runs until the given change of the disk, and dies before it."""
    count = 0

    def counted(function: Callable[..., Any], when: Callable[..., bool] = lambda *_, **__: True) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            nonlocal count
            if when(*arguments, **named):
                count += 1
                if count == step:
                    os._exit(_KILLED)
            return function(*arguments, **named)

        return call

    def writes(*arguments: Any, **named: Any) -> bool:
        return any(isinstance(value, str) and value in ("wb", "xb", "w") for value in (*arguments[1:], *named.values()))

    changes = (
        (os, "fsync"),
        (shutil, "rmtree"),
        (pathlib.Path, "rename"),
        (pathlib.Path, "replace"),
        (pathlib.Path, "unlink"),
    )
    for owner, name in (*changes, (builtins, "open"), (pathlib.Path, "open")):
        original = getattr(owner, name)
        setattr(owner, name, counted(original, writes) if name == "open" else counted(original))
    return work()


if __name__ == "__main__":
    main()
