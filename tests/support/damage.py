"""The damaged stores of `fixtures/damage`: build one from its base and edits, and what the broker made of it."""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.stores import copy_tree, fixture, read_lines

HOLDER = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
    print("held", flush=True)
    sys.stdin.read()
"""


@dataclass(frozen=True)
class DamageCase:
    """One line of cases.jsonl; `base` is `4.9.7-clean`, `4.9.7-crash`, `5.5.0-clean` or `5.5.0-crash`."""

    id: str
    base: str
    about: str
    edits: tuple[dict[str, Any], ...]
    mode: str = "store"

    def __str__(self) -> str:
        return self.id

    @property
    def kind(self) -> str:
        """The case without its base: `tail-torn`."""
        return self.id.partition("@")[0]

    @property
    def locked(self) -> tuple[str, ...]:
        """Files that another process holds locked in this case."""
        return tuple(edit["file"] for edit in self.edits if edit["op"] == "lock")


def damage_case(case: DamageCase | str, tmp_path: Path) -> Path:
    """Build the damaged store in `tmp_path/store` and return that path; for a held lock see `held_locks`."""
    case = (CASES | MADE)[case] if isinstance(case, str) else case
    store = copy_tree(fixture(f"damage/bases/{case.base}/store"), tmp_path / "store")
    for edit in case.edits:
        apply_edit(store, edit)
    return store


def apply_edit(store: Path, edit: dict[str, Any]) -> None:
    """Carry out one edit below `store`; fixtures/README.md says what each does."""
    op, path = edit["op"], store / edit["file"]
    match op:
        case "write" | "zero":
            with path.open("r+b") as file:
                file.seek(edit["offset"])
                file.write(bytes.fromhex(edit["hex"]) if op == "write" else bytes(edit["length"]))
        case "truncate":
            os.truncate(path, edit["size"])
        case "create":
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(bytes.fromhex(edit["hex"]) if "hex" in edit else bytes(edit["size"]))
        case "mkdir":
            path.mkdir(parents=True)
        case "delete" if path.is_dir():
            shutil.rmtree(path)
        case "delete":
            path.unlink()
        case "rename" | "copy":
            target = store / edit["to"]
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(path, target) if op == "rename" else shutil.copyfile(path, target)
        case "lock":
            assert path.is_file(), f"nothing to lock: {path}"
        case _:
            raise ValueError(f"unknown edit: {op}")


@contextlib.contextmanager
def held_locks(case: DamageCase, store: Path) -> Iterator[None]:
    """While this lasts, another process holds byte 0 of each file that the case wants locked."""
    with contextlib.ExitStack() as stack:
        for name in case.locked:
            stack.enter_context(held_lock(store / name))
        yield


@contextlib.contextmanager
def held_lock(path: Path) -> Iterator[None]:
    """While this lasts, another process holds byte 0 of the file, as a running broker does."""
    command = [sys.executable, "-c", HOLDER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        yield
        holder.stdin.close()


def damage_answers(opened_by: str, written_by: str | None = None) -> dict[str, dict[str, Any]]:
    """What release `opened_by` made of each case, by case id; at an upgrade `written_by` is the older release."""
    upgrade = written_by not in (None, opened_by)
    name = f"answers-{written_by}-by-{opened_by}" if upgrade else f"answers-{opened_by}"
    return {line["id"]: line for line in read_lines(fixture(f"damage/{name}.jsonl"))}


def base_messages(base: str) -> list[dict[str, Any]]:
    """The 395 records of a base: n, phy, size, topic, queue, offset (-1: in no queue), sysFlag, key, stored."""
    return read_lines(fixture(f"damage/bases/{base}/messages.jsonl"))


def changed_messages(case: DamageCase, store: Path) -> list[dict[str, Any]]:
    """Records of the base whose bytes are not where they were in a case's store; read without the library."""
    original = fixture(f"damage/bases/{case.base}/store")
    size = 16384  # of a segment in every base
    changed = []
    for message in base_messages(case.base):
        name, position = f"{message['phy'] // size * size:020d}", message["phy"] % size
        files = [root / "commitlog" / name for root in (original, store)]
        data = [path.read_bytes()[position : position + message["size"]] if path.is_file() else b"" for path in files]
        if data[0] != data[1]:
            changed.append(message)
    return changed


def base_config(base: str) -> Path:
    """The broker keys that shape a base's files."""
    return fixture(f"damage/bases/{base}/layout.properties")


def _read_cases() -> dict[str, DamageCase]:
    lines = read_lines(fixture("damage/cases.jsonl"))
    cases = [DamageCase(**(line | {"edits": tuple(line["edits"])})) for line in lines]
    return {case.id: case for case in cases}


def foreign_segment(base: str, number: int) -> DamageCase:
    """A base in which a segment is replaced by the same-named one of the other base of its release."""
    release, _, end = base.partition("-")
    name = f"commitlog/{number * 16384:020d}"
    data = fixture(f"damage/bases/{release}-{'crash' if end == 'clean' else 'clean'}/store/{name}").read_bytes()
    about = "a segment of another broker's log in the place of the store's own"
    return _written(f"foreign-segment-{number}", base, about, name, [(0, data)])


def exchanged_blocks(base: str, number: int, first: int, second: int, size: int) -> DamageCase:
    """A base in which two blocks of a segment, counted in their size in bytes, have changed places."""
    name = f"commitlog/{number * 16384:020d}"
    data = fixture(f"damage/bases/{base}/store/{name}").read_bytes()
    writes = [(to * size, data[block * size : (block + 1) * size]) for block, to in ((first, second), (second, first))]
    kind = f"exchanged-blocks-{number}-{first}-{second}-{size}"
    return _written(kind, base, "two blocks of a segment have changed places", name, writes)


def _written(kind: str, base: str, about: str, name: str, writes: list[tuple[int, bytes]]) -> DamageCase:
    edits = tuple({"op": "write", "file": name, "offset": at, "hex": data.hex()} for at, data in writes)
    return DamageCase(f"{kind}@{base}", base, about, edits)


CASES: dict[str, DamageCase] = _read_cases()
"""Cases of which the fixtures have what real brokers did."""

MADE = {
    case.id: case
    for base in ("4.9.7-clean", "4.9.7-crash", "5.5.0-clean", "5.5.0-crash")
    for case in (
        *(foreign_segment(base, number) for number in (0, 2, 5, 8)),
        *(exchanged_blocks(base, number, 0, 2, 4096) for number in (2, 8)),
        exchanged_blocks(base, 4, 1, 2, 2048),
    )
}
"""Further cases."""
