"""The stores of EQueue and EventStore in `fixtures/`: their answers, and damaged copies."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.damage import apply_edit
from tests.support.stores import FIXTURES, copy_tree, fixture, read_lines

EQUEUE_STORES = tuple(sorted(path.parent.name for path in FIXTURES.glob("equeue-*/store")))
TFCHUNK_STORES = tuple(sorted(path.parent.name for path in FIXTURES.glob("tfchunk/*/store")))
EQUEUE_CASES = tuple(line["id"] for line in read_lines(FIXTURES / "equeue-damage" / "cases.jsonl"))
TFCHUNK_CASES = tuple(line["id"] for line in read_lines(FIXTURES / "tfchunk" / "damage" / "cases.jsonl"))


def equeue_store(name: str) -> Path:
    """Root of an EQueue store."""
    return fixture(f"{name}/store")


def tfchunk_store(name: str) -> Path:
    """Root of an EventStore database."""
    return fixture(f"tfchunk/{name}/store")


def lines(home: str, kind: str) -> list[dict[str, Any]]:
    """Lines of `answers/KIND.jsonl` of a store, `equeue-small` or `tfchunk/plain`."""
    return read_lines(fixture(home) / "answers" / f"{kind}.jsonl")


def opened(home: str) -> dict[str, Any]:
    """What an open saw: `answers/open.json`."""
    return dict(json.loads((fixture(home) / "answers" / "open.json").read_text("utf-8")))


def settings(home: str) -> dict[str, Any]:
    """The options of a store's last run."""
    document = json.loads((fixture(home) / "answers" / "store.json").read_text("utf-8"))
    return dict(document["steps"][-1]["options"])


@cache
def _damage(home: str, kind: str) -> dict[str, dict[str, Any]]:
    return {line["id"]: line for line in read_lines(fixture(f"{home}/{kind}.jsonl"))}


def case(case_id: str, home: str = "equeue-damage") -> dict[str, Any]:
    """A damage case: base, edits, about, perhaps config."""
    return _damage(home, "cases")[case_id]


def answer(case_id: str, home: str = "equeue-damage") -> dict[str, Any]:
    """What the real system made of a damage case."""
    return _damage(home, "answers")[case_id]


def damaged(case_id: str, target: Path, home: str = "equeue-damage") -> Path:
    """Builds a damaged copy and returns its root."""
    found = case(case_id, home)
    base = found["base"] if home == "equeue-damage" else f"tfchunk/{found['base']}"
    root = copy_tree(fixture(f"{base}/store"), target)
    for edit in found["edits"]:
        apply_edit(root, {**edit, "length": edit.get("size")} if edit["op"] == "zero" else edit)
    return root
