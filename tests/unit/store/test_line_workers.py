"""Lines that several threads build are those of one."""

import pytest

import mqtool
from mqtool.jobs.pool import thread_pool
from mqtool.records.damage import Damage
from mqtool.store.log import json_lines as module
from mqtool.store.log.json_lines import Lines, json_lines
from tests.support.builder import StoreBuilder
from tests.support.native import needs_native

COUNT = 600


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    builder = StoreBuilder(segment_size=1 << 14)
    for number in range(COUNT):
        builder.put(f"message {number}".encode(), topic=f"T{number % 3}", tags="ab"[number % 2])
    root = builder.write(tmp_path_factory.mktemp("lines") / "store")
    segment = sorted((root / "commitlog").iterdir())[1]
    data = bytearray(segment.read_bytes())
    data[2000:2100] = bytes(100)
    segment.write_bytes(data)
    return root


def plain(items):
    """Damage as it is and the lines between as text, cut anywhere."""
    found = []
    for item in items:
        if isinstance(item, Damage):
            found.append(item)
        elif found and isinstance(found[-1], str):
            found[-1] += bytes(item.data).decode()
        else:
            found.append(bytes(item.data).decode())
    return found


def alone(root, **wanted):
    with mqtool.open(root) as store:
        return plain(json_lines(store, **wanted))


@needs_native
def test_threads_make_the_same_lines_where_rules_are_compiled(root, monkeypatch):
    expected, hexadecimal, counts = alone(root), alone(root, body_mode="hex"), []
    monkeypatch.setattr(module, "thread_pool", lambda count: counts.append(count) or thread_pool(count))
    with mqtool.open(root) as store:
        assert plain(json_lines(store, jobs=3)) == expected
        assert counts == [2]
        assert plain(json_lines(store, "hex", jobs=3)) == hexadecimal
        assert counts == [2, 2]


def test_reading_may_stop_in_the_middle(root):
    with mqtool.open(root) as store:
        lines = json_lines(store, jobs=2)
        assert isinstance(next(lines), Lines)
        lines.close()
        assert next(lines, None) is None
