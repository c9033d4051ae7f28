"""Plans of positions: what they are refused for, and what they say of groups that would not use them."""

import json

import pytest

from mqtool.errors import UnsupportedFormatError, UsageError
from mqtool.formats import config_files
from mqtool.repair import MoveOffsets, apply, make_plan
from mqtool.store.groups.offset_moves import Move
from tests.support.stores import copy_store


@pytest.fixture
def root(in_memory):
    """A store with groups that are made and one whose consumers must not consume."""
    found = copy_store("orders-5.5.0", in_memory)
    path = found / "config" / "subscriptionGroup.json"
    groups = json.loads(path.read_text()) if path.is_file() else {"subscriptionGroupTable": {}}
    for name, enabled in (("off", False), ("on", True), ("%LMQ%light", True)):
        groups["subscriptionGroupTable"][name] = {"groupName": name, "consumeEnable": enabled}
    path.write_text(json.dumps(groups))
    return found


def planned(root, *moves, **config):
    return make_plan(root, MoveOffsets(moves), config=config)


def test_a_position_that_has_moved_since_is_not_overwritten(root):
    with pytest.raises(UsageError, match="group on, Orders/0: expected position 7, found None; plan again"):
        planned(root, Move("on", "Orders", 0, 7, 1))


def test_positions_of_the_second_configuration_manager_are_not_in_a_file(root):
    (root / "config" / "metadata").mkdir()
    (root / "config" / "metadata" / "CURRENT").write_text("MANIFEST-000001\n")
    with pytest.raises(UnsupportedFormatError, match=r"config/metadata: .* in one RocksDB .*configManagerVersion=v2"):
        planned(root, Move("on", "Orders", 0, None, 1))


def test_groups_that_would_not_use_a_position_are_named(root):
    moves = [Move(group, "Orders", 0, None, 1) for group in ("on", "off", "unknown", "%LMQ%light")]
    notes = planned(root, *moves, enableLmq="false").notes
    words = [note for note in notes if note.startswith("group ") and ": position " not in note]
    assert words == [
        "group %LMQ%light belongs to light message queues, and enableLmq=false: no client can use its position",
        "group off: consumeEnable=false, so it gets no message, whatever its position",
        (
            "group unknown has no configuration: with autoCreateSubscriptionGroup=true, the default, the broker creates "
            "it; otherwise create it (mqadmin updateSubGroup -g unknown), or clients get SUBSCRIPTION_GROUP_NOT_EXIST"
        ),
    ]


def test_of_very_many_queues_only_some_are_described(root, monkeypatch):
    monkeypatch.setattr("mqtool.repair.offsets.MAX_NOTES", 1)
    notes = planned(root, *(Move("on", "Orders", queue, None, 1) for queue in range(3))).notes
    assert notes[-1] == "2 more queue(s); `mqtool plan` prints all of them"


def test_the_first_position_of_a_light_queue_makes_its_table(root):
    path = root / "config" / "lmqConsumerOffset.json"
    path.write_text('{"offsetTable": {}}')
    plan = planned(root, Move("%LMQ%light", "%LMQ%light", 0, None, 3), enableLmq="true")
    apply(plan, backup_acknowledged=True, verify_after=False)
    found = config_files.parse_consumer_offsets(path.read_bytes())
    assert (found.offset_table, found.lmq_offset_table) == ({}, {"%LMQ%light@%LMQ%light": 3})
