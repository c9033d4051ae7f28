"""Reading a damaged store finds every record that is still there, and takes nothing else for one."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

import mqtool
from mqtool.store import Message
from tests.support.damage import CASES
from tests.support.stores import fixture

READABLE = sorted(case for case in CASES if not case.startswith("store-empty"))


@cache
def base_records(base: str) -> dict[int, bytes]:
    """Every record of an undamaged base: physical offset to bytes, by the broker's own list."""
    directory = fixture(f"damage/bases/{base}")
    lines = [json.loads(line) for line in (directory / "messages.jsonl").read_text().splitlines()]
    with mqtool.open(directory / "store") as store:
        return {line["phy"]: store.commit_log.read(line["phy"], line["size"]) for line in lines}


@pytest.mark.parametrize("case", READABLE)
def test_intact_records_are_found_and_nothing_else_is(case: str, damaged: Callable[[str], Path]) -> None:
    expected = base_records(case.partition("@")[2])
    with mqtool.open(damaged(case)) as store:
        found = {item.physical_offset for item in store.messages() if isinstance(item, Message)}
        intact = {offset for offset, data in expected.items() if store.commit_log.read(offset, len(data)) == data}
    assert intact <= found
    assert found <= expected.keys()
