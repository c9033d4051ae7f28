"""A careful recovery of any damaged store destroys nothing: bytes and whole messages are in the log or set aside."""

import base64
import json

import pytest
from msgspec.structs import replace

import mqtool
from mqtool.engine import RecoveryMode, open_store
from mqtool.errors import MqtoolError
from tests.support.damage import CASES, base_config, damage_case, held_locks
from tests.support.engine import HeldClock, options_of, tree

ASKED = [case for case in CASES.values() if case.mode == "store"][::4]


def messages(root, case):
    with mqtool.open(root, base_config(case.base)) as store:
        return {(m.topic, m.queue_id, m.born_timestamp, m.raw_body) for m in store.messages() if hasattr(m, "raw_body")}


def listed(files):
    lines = [line for name, data in files.items() if name.endswith("messages.jsonl") for line in data.splitlines()]
    rows = map(json.loads, lines)
    return {
        (row["topic"], row["queue_id"], row["born_timestamp"], base64.b64decode(row["body_base64"])) for row in rows
    }


@pytest.mark.slow
@pytest.mark.parametrize("case", ASKED, ids=lambda case: case.id)
def test_bytes_and_messages_are_in_the_log_or_set_aside(case, in_memory):
    root = damage_case(case, in_memory)
    before = tree(root)
    options = replace(options_of(base_config(case.base), case.base[:5]), recovery=RecoveryMode.CAREFUL)
    with held_locks(case, root):
        try:
            found = messages(root, case)
            store = open_store(root, options, clock=HeldClock(), background=False)
        except MqtoolError:
            assert tree(root) == before
            return
    store.close()
    after = tree(root)
    aside = {name: data for name, data in after.items() if name.startswith("quarantine/")}
    for name, data in before.items():
        if not name.startswith("commitlog/"):
            continue
        end, now = len(data.rstrip(b"\0")), after.get(name, b"")
        cut = next((at for at in range(end) if at >= len(now) or now[at] != data[at]), end)
        assert any(data[cut:end] in kept for kept in aside.values()) or cut == end, name
    assert found <= messages(root, case) | listed(aside)
    assert len(listed(aside)) <= store.recovered.cut_messages
