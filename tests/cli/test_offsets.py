"""`mqtool offsets` and `mqtool plan offsets`: what they print, what `apply` writes, and that `undo` undoes it."""

import errno
import io
import json
import os
import shutil

import pytest

import mqtool as library
from mqtool.cli.document import SECTION_ROWS
from mqtool.server.testing import MqServer
from tests.support.remoting import Client
from tests.support.stores import copy_store, fixture, tree_digest
from tests.unit.formats.test_client_offsets import BY_5_5_0

BOTH = ["orders-4.9.7", "orders-5.5.0"]


@pytest.fixture
def tmp_path(in_memory):
    """Changes sync a great deal."""
    return in_memory


@pytest.fixture(params=BOTH)
def store(request, tmp_path):
    """A store with positions, in lmqConsumerOffset.json."""
    return copy_store(request.param, tmp_path)


def offsets_of(store, config=None):
    """Positions by group, topic and queue, read by the parser of JSON alone."""
    with library.open(store, config) as opened:
        return opened.metadata.consumer_offsets


def test_show_prints_what_the_files_and_queues_say(mqtool, store):
    rows = mqtool("offsets", store, "--group", "pull-*", "--format", "jsonl").lines
    assert {(row["topic"], row["queue_id"]) for row in rows} >= {("Orders", 0), ("Orders", 1), ("Keyed", 0)}
    with library.open(store) as opened:
        for row in rows:
            if row["kind"] == "committed":
                queue = opened.queue(row["topic"], row["queue_id"])
                assert (row["min_offset"], row["max_offset"]) == (queue.min_offset, queue.max_offset)
                assert row["lag"] == queue.max_offset - row["offset"]
                got = opened.get_message(row["topic"], row["queue_id"], row["offset"], 1).messages
                assert row["next_time"] == (got[0].store_timestamp if got else None)


def test_show_prints_the_positions_of_a_broadcasting_client(mqtool, store, tmp_path):
    (tmp_path / "offsets.json").write_bytes(BY_5_5_0)
    rows = mqtool("offsets", store, "-t", "Orders", "--broadcast", tmp_path / "offsets.json", "--format", "jsonl").lines
    found = [row for row in rows if row["kind"] == "broadcast"]
    assert [(row["queue_id"], row["offset"], row["read"], row["max_offset"] is None) for row in found] == [
        (0, 17, False, False)
    ]


def test_positions_of_a_broadcasting_client_on_several_brokers_need_the_name_of_this_one(mqtool, store, tmp_path):
    path = tmp_path / "offsets.json"
    path.write_bytes(BY_5_5_0.replace(b"broker-a", b"broker-b", 1).replace(b'Top\\"ic', b"Orders"))
    show = ("offsets", store, "-t", "Orders", "--broadcast", path, "--format", "jsonl")
    found = mqtool(*show)
    assert (found.code, "positions on broker-a, broker-b; give --config with the brokerName" in found.stderr) == (
        2,
        True,
    )
    (tmp_path / "broker.conf").write_text("brokerName=broker-b\n")
    rows = mqtool(*show, "--config", tmp_path / "broker.conf").lines
    assert [(row["queue_id"], row["offset"]) for row in rows if row["kind"] == "broadcast"] == [(3, 5)]
    path.write_text("[]")
    found = mqtool(*show)
    assert (found.code, found.stderr.startswith(f"mqtool: {path}: "), found.stderr.count("\n")) == (2, True, 1)


def test_show_compares_two_replicas(mqtool, store, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(store, other)
    path = other / "config" / "lmqConsumerOffset.json"
    before = offsets_of(store)["pull-group"]["Orders"][0]
    path.write_text(path.read_text().replace(f"0:{before}", f"0:{before + 1}"))
    rows = mqtool("offsets", store, "-g", "pull-group", "-t", "Orders", "--compare", other, "--format", "jsonl").lines
    shown = {row["queue_id"]: row["difference"] for row in rows if row["kind"] == "committed"}
    assert shown[0] == 1
    assert set(shown.values()) == {0, 1}


def test_show_compares_with_a_replica_without_positions_and_names_what_cannot_be_read(mqtool, store, tmp_path):
    other = shutil.copytree(store, tmp_path / "other")
    for path in (other / "config").glob("*onsumerOffset.json*"):
        path.write_text('{"offsetTable": {}}')
    words = ("-g", "pull-group", "-t", "Orders")
    rows = mqtool("offsets", store, *words, "--compare", other, "--format", "jsonl").lines
    found = {row["queue_id"]: row["offset"] for row in rows if row["kind"] == "committed"}
    assert found == offsets_of(store)["pull-group"]["Orders"]
    assert {(row["other_offset"], row["difference"]) for row in rows} == {(None, None)}
    broken = sorted((other / "config").glob("*onsumerOffset.json*"))
    for path in broken:
        path.write_text('{"offsetTable":')
    result = mqtool("offsets", other, *words)
    assert result.code == 1
    assert [path.name for path in broken if f"mqtool: {path.name}: " in result.stderr] == [path.name for path in broken]


def test_show_compares_with_a_replica_that_alone_has_a_position(mqtool, store, tmp_path):
    other = shutil.copytree(store, tmp_path / "other")
    position = offsets_of(other)["pull-group"]["Orders"]
    for path in (store / "config").glob("*onsumerOffset.json*"):
        path.write_text('{"offsetTable": {}}')
    found = mqtool("offsets", store, "-g", "pull-group", "-t", "Orders", "--compare", other, "--format", "jsonl")
    rows = {row["queue_id"]: row for row in found.lines if row["kind"] == "committed"}
    assert {queue_id: row["other_offset"] for queue_id, row in rows.items()} == position
    assert {(row["offset"], row["lag"], row["read"], row["difference"]) for row in rows.values()} == {
        (None, None, False, None)
    }


@pytest.mark.parametrize("columns", [80, 100])
def test_people_get_a_table_for_each_group_and_topic(mqtool, store, columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = mqtool("offsets", store, "--group", "pull-group", "--topic", "Orders").text.splitlines()
    assert max(map(len, lines)) <= columns
    assert lines[0].startswith("Group pull-group, topic Orders, ")
    with library.open(store) as opened:
        expected = [
            [queue_id, offset, queue.min_offset, queue.max_offset, queue.max_offset - offset]
            for queue_id, offset in sorted(opened.metadata.consumer_offsets["pull-group"]["Orders"].items())
            for queue in (opened.queue("Orders", queue_id),)
        ]
    assert [list(map(int, line.split()[:5])) for line in lines[2 : 2 + len(expected)]] == expected
    assert f", {sum(row[4] for row in expected)} messages not read" in lines[0]


@pytest.mark.parametrize("columns", [80, 100])
@pytest.mark.parametrize("name", ["orders-5.5.0", "lives-5.5.0", "metadata-4.9.7"])
def test_a_position_is_one_line(mqtool, name, columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    root = fixture(f"{name}/store")
    rows = mqtool("offsets", root, "--format", "jsonl").lines
    lines = mqtool("offsets", root).text.splitlines()
    assert max(map(len, lines)) <= columns
    assert sum(line.split()[:1] == ["queue"] for line in lines) < len(rows)
    assert sum(line.strip()[:1].isdecimal() for line in lines) == len(rows)


def test_show_counts_what_pop_has_handed_out(mqtool):
    """Three messages were popped and never acknowledged, by the real broker's client."""
    rows = mqtool("offsets", fixture("lives-5.5.0/store"), "--format", "jsonl").lines
    out = {(row["group"], row["topic"], row["queue_id"]): row["in_flight"] for row in rows if row["in_flight"]}
    assert {(group, topic) for group, topic, _ in out} == {("LivesHanging", "LivesHang")}
    assert sum(out.values()) == 3


def test_reading_changes_nothing(mqtool, store, tmp_path):
    before = tree_digest(store)
    assert mqtool("offsets", store).code == 0
    plan = ("plan", "offsets", store, "--group", "pull-group", "--to", "earliest", "--list")
    assert mqtool(*plan, "-o", tmp_path / "plan.json").code == 0
    assert tree_digest(store) == before


def test_plan_apply_and_undo(mqtool, store, tmp_path):
    before, known = tree_digest(store), offsets_of(store)
    words = ("--group", "pull-group", "--topic", "Orders", "--queue", "0", "--to", "earliest", "--list")
    plan = mqtool("plan", "offsets", store, *words, "-o", tmp_path / "plan.json", "--format", "json")
    (row,) = plan.document["positions"]
    was = known["pull-group"]["Orders"][0]
    assert (row["before"], row["after"], row["again"], row["never"]) == (was, 0, was, 0)
    with library.open(store) as opened:
        messages = opened.get_message("Orders", 0, 0, was).messages
    assert [one["message_id"] for one in plan.document["messages"]] == [one.offset_message_id for one in messages]
    assert row["again_span"]["first_time"] == messages[0].store_timestamp
    assert row["again_span"]["last_time"] == messages[-1].store_timestamp
    done = mqtool("apply", tmp_path / "plan.json", "--yes", "--format", "json")
    assert (done.code, done.document["files"], done.document["errors"]) == (0, 1, 0)
    known["pull-group"]["Orders"][0] = 0
    assert offsets_of(store) == known, "no other position has changed"
    assert mqtool("undo", store, "--yes").code == 0
    assert tree_digest(store) == before


EARLIEST = ("--group", "pull-group", "--topic", "Orders", "--to", "earliest", "--list")


def test_every_format_lists_every_message(mqtool, store, tmp_path):
    def printed(output_format):
        (tmp_path / "plan.json").unlink(missing_ok=True)
        words = ("-o", tmp_path / "plan.json", "--format", output_format)
        found = mqtool("plan", "offsets", store, *EARLIEST, *words)
        assert found.code == 0, found.stderr
        return found

    places = {
        ("Orders", queue_id, offset)
        for queue_id, position in offsets_of(store)["pull-group"]["Orders"].items()
        for offset in range(position)
    }
    assert len(places) > SECTION_ROWS, "or a shortened list would pass"
    for output_format in ("json", "jsonl"):
        document = json.loads(printed(output_format).stdout)
        assert document["ok"] is True
        rows = document["messages"]
        assert {(row["topic"], row["queue_id"], row["queue_offset"]) for row in rows} == places
        assert len(rows) == len(places) == sum(row["again"] for row in document["positions"])
    assert len(printed("jsonl").stdout.splitlines()) == 1
    for output_format in ("table", "wide"):
        text = printed(output_format).stdout.decode()
        assert sum(line.startswith("  again ") for line in text.splitlines()) == len(places)
        assert "\nMessages\n" in text
    fields = [line.partition(",")[0] for line in printed("csv").stdout.decode().splitlines()]
    assert [name for name in fields if name.endswith(".message_id")] == [
        f"messages.{number}.message_id" for number in range(len(places))
    ]


def test_a_plan_on_stdout_leaves_no_room_for_a_list(mqtool, store):
    found = mqtool("plan", "offsets", store, *EARLIEST, "-o", "-")
    assert (found.code, found.stdout) == (2, b"")
    assert "name a file for the plan" in found.stderr


def test_the_file_keeps_every_byte_but_the_number(mqtool, store, tmp_path):
    path = store / "config" / "lmqConsumerOffset.json"
    before = path.read_bytes().splitlines()
    was = offsets_of(store)["pull-group"]["Orders"][0]
    words = ("--group", "pull-group", "--topic", "Orders", "--queue", "0", "--shift", "-1")
    assert mqtool("plan", "offsets", store, *words, "-o", tmp_path / "plan.json").code == 0
    assert mqtool("apply", tmp_path / "plan.json", "--yes").code == 0
    changed = [(old, new) for old, new in zip(before, path.read_bytes().splitlines(), strict=True) if old != new]
    assert len(changed) == 1
    assert changed[0][0].replace(f"0:{was}".encode(), f"0:{was - 1}".encode()) == changed[0][1]


def test_a_plan_of_changed_positions_is_refused(mqtool, store, tmp_path):
    words = ("--group", "pull-group", "--to", "earliest")
    assert mqtool("plan", "offsets", store, *words, "-o", tmp_path / "plan.json").code == 0
    path = store / "config" / "lmqConsumerOffset.json"
    path.write_text(path.read_text() + " ")
    assert mqtool("apply", tmp_path / "plan.json", "--yes").code == 4


def test_positions_are_deleted_and_restored_from_a_backup(mqtool, store, tmp_path):
    known = offsets_of(store)
    assert mqtool("backup", store, "-o", tmp_path / "backup").code == 0
    words = ("--group", "pull-group", "--delete")
    assert mqtool("plan", "offsets", store, *words, "-o", tmp_path / "plan.json").code == 0
    assert mqtool("apply", tmp_path / "plan.json", "--yes").code == 0
    assert "pull-group" not in offsets_of(store)
    assert mqtool("discard-undo", store, "--yes").code == 0
    words = ("--group", "pull-group", "--positions", tmp_path / "backup")
    assert mqtool("plan", "offsets", store, *words, "-o", tmp_path / "again.json").code == 0
    assert mqtool("apply", tmp_path / "again.json", "--yes").code == 0
    assert offsets_of(store) == known


@pytest.mark.parametrize("how", ["store", "file"])
def test_positions_come_from_another_store_or_its_file(mqtool, store, tmp_path, how):
    other = tmp_path / "other"
    shutil.copytree(store, other)
    words = ("--group", "pull-group", "--topic", "Orders", "--to", "latest")
    assert mqtool("plan", "offsets", store, *words, "-o", tmp_path / "plan.json").code == 0
    assert mqtool("apply", tmp_path / "plan.json", "--yes").code == 0
    assert mqtool("discard-undo", store, "--yes").code == 0
    source = other if how == "store" else other / "config" / "lmqConsumerOffset.json"
    words = ("--group", "*", "--positions", source)
    assert mqtool("plan", "offsets", store, *words, "-o", tmp_path / "again.json").code == 0
    assert mqtool("apply", tmp_path / "again.json", "--yes").code == 0
    assert offsets_of(store) == offsets_of(other)


def test_positions_go_through_the_ids_of_a_replay(mqtool, store, tmp_path):
    """Every message that the group has not consumed is after the new position, and none that it has."""
    new, ids = tmp_path / "new", tmp_path / "ids.jsonl"
    assert mqtool("replay", store, "--into", new, "--ids", ids, "--topic", "Orders").code == 0
    was = offsets_of(store)["pull-group"]["Orders"]
    words = ("--group", "pull-group", "--positions", store, "--through", ids)
    assert mqtool("plan", "offsets", new, *words, "-o", tmp_path / "plan.json").code == 0
    assert mqtool("apply", tmp_path / "plan.json", "--yes").code == 0
    now = offsets_of(new)["pull-group"]["Orders"]
    rows = [json.loads(line) for line in ids.read_text().splitlines()]
    places = [(row["old"], row["new"]) for row in rows if row["new"] is not None and row["old"]["queue_id"] in was]
    assert places
    for old, made in places:
        assert (old["queue_offset"] >= was[old["queue_id"]]) == (made["queue_offset"] >= now[made["queue_id"]])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), "--group"),
        (("--group", "pull-group"), "expected one of --to"),
        (("--group", "pull-group", "--to", "latest", "--clamp"), "found --clamp, --to"),
        (("--group", "pull-group", "--shift", "0", "--clamp"), "found --clamp, --shift"),
        (("--group", "pull-group", "--to", "never"), "earliest, latest"),
        (("--group", "PULL-GROUP", "--clamp"), "pull-group differs only by case; `mqtool offsets` lists"),
        (("--group", "PULL-GROUP", "--to", "latest"), "pull-group differs only by case; name the topics"),
        (("--group", "pull-group", "--topic", "Ordres", "--to", "latest"), "in Ordres; `mqtool info` lists topics"),
        (("--group", "pull-group", "--from-group", "nobody"), "has no positions"),
        (("--group", "pull-group", "--topic", "Orders", "--to", "0", "--queue", "9"), "in Orders, queue 9"),
        (("--group", "pull-group", "--clamp", "--before", "3"), "No such option: --before"),
    ],
)
def test_what_makes_no_sense_is_refused(mqtool, store, tmp_path, words, expected):
    found = mqtool("plan", "offsets", store, *words, "-o", tmp_path / "plan.json")
    assert found.code == 2
    assert expected in found.stderr
    assert not (tmp_path / "plan.json").exists()


NO_POSITIONS = {
    "an empty table": ('{"offsetTable": {}}', "expected positions of consumer groups, found none"),
    "no JSON": ("offsets", "expected consumerOffset.json, a store or a backup"),
    "deep JSON": ("[" * 100_000, "nested too deeply"),
}


@pytest.mark.parametrize("text", NO_POSITIONS)
def test_a_file_without_positions_is_refused(mqtool, store, tmp_path, text):
    (tmp_path / "file").write_text(NO_POSITIONS[text][0])
    found = mqtool(
        "plan", "offsets", store, "--group", "*", "--positions", tmp_path / "file", "-o", tmp_path / "plan.json"
    )
    assert (found.code, NO_POSITIONS[text][1] in found.stderr) == (2, True), found.stderr


@pytest.mark.parametrize(
    ("table", "words"), [(None, "expected positions of consumer groups, found none"), ("{", "but none can be read: ")]
)
def test_a_store_or_a_backup_without_positions_is_refused(mqtool, store, tmp_path, table, words):
    other = shutil.copytree(store, tmp_path / "other")
    for path in (other / "config").glob("*onsumerOffset.json*"):
        path.unlink() if table is None else path.write_text(table)
    assert mqtool("backup", other, "-o", tmp_path / "backup").code == 0
    expected = {"other": words, "backup": "has none of" if table is None else "expected consumerOffset.json"}
    for name, reason in expected.items():
        source = ("--positions", tmp_path / name)
        found = mqtool("plan", "offsets", store, "--group", "*", *source, "-o", tmp_path / "plan.json")
        assert (found.code, reason in found.stderr) == (2, True), found.stderr


@pytest.mark.parametrize(
    "line",
    ["[1, 2]", '{"topic": "A", "old": 3, "new": {}}', "[" * 100_000, "\0\1"],
    ids=["list", "number", "deep", "bytes"],
)
def test_a_file_that_no_replay_wrote_is_refused_with_the_line(mqtool, store, tmp_path, line):
    valid = '{"topic": "A", "old": {"queue_id": 0, "queue_offset": 1}, "new": null}'
    (tmp_path / "ids").write_text(f"{valid}\n{line}\n")
    source = ("--positions", store, "--through", tmp_path / "ids")
    found = mqtool("plan", "offsets", store, "--group", "*", *source, "-o", tmp_path / "plan.json")
    assert (found.code, f"{tmp_path / 'ids'}:2: expected topic, old and new" in found.stderr) == (2, True), found.stderr


def test_a_selection_without_positions_says_how_to_see_all(mqtool, store):
    found = mqtool("offsets", store, "--group", "nobody")
    assert (found.code, f"`mqtool offsets {store}` lists all" in found.stderr) == (1, True), found.stderr


def test_a_file_that_is_not_a_map_of_ids_is_refused_with_its_line(mqtool, store, tmp_path):
    ids = tmp_path / "ids.jsonl"
    ids.write_text('{"msgId": "7F"}\n')
    found = mqtool("plan", "offsets", store, "--group", "pull-group", "--through", ids, "-o", tmp_path / "plan.json")
    assert (found.code, f"{ids}:1: expected topic, old and new" in found.stderr) == (2, True), found.stderr
    assert """'{"msgId": "7F"}'""" in found.stderr


def test_other_verbs_take_no_group(mqtool, store, tmp_path):
    found = mqtool("plan", "rebuild", "index", store, "--group", "x", "-o", tmp_path / "plan.json")
    assert (found.code, "No such option: --group" in found.stderr) == (2, True)


def test_the_plan_says_what_switches_hide(mqtool, store, tmp_path):
    config = tmp_path / "broker.conf"
    config.write_text("enableLmq=false\nbrokerRole=SLAVE\n")
    plain = store / "config" / "consumerOffset.json"
    plain.write_bytes((store / "config" / "lmqConsumerOffset.json").read_bytes())
    words = ("--group", "pull-group", "--to", "earliest", "--config", config)
    plan = mqtool("plan", "offsets", store, *words, "-o", tmp_path / "plan.json", "--format", "json")
    notes = "\n".join(plan.document["notes"])
    assert "with enableLmq=false a broker reads config/consumerOffset.json" in notes
    assert "brokerRole=SLAVE" in notes
    assert [step["path"] for step in plan.document["steps"]] == ["config/consumerOffset.json"]


def test_a_broken_file_is_replaced_from_its_backup(mqtool, store, tmp_path):
    """The broker reads the .bak of a broken file; the plan writes the file with what the .bak says."""
    path = store / "config" / "lmqConsumerOffset.json"
    known = offsets_of(store)
    path.with_name(path.name + ".bak").write_bytes(path.read_bytes())
    path.write_bytes(b"{")
    words = ("--group", "pull-group", "--to", "earliest")
    assert mqtool("plan", "offsets", store, *words, "-o", tmp_path / "plan.json").code == 0
    assert mqtool("apply", tmp_path / "plan.json", "--yes").code == 0
    for offsets in known["pull-group"].values():
        offsets.update(dict.fromkeys(offsets, 0))
    assert offsets_of(store) == known


@pytest.mark.parametrize(("change", "after"), [(("--delete",), {}), (("--shift", "-2"), {"%LMQ%one@G": 0})])
def test_positions_in_light_queues_have_a_table_of_their_own(mqtool, store, tmp_path, change, after):
    path, config = store / "config" / "lmqConsumerOffset.json", tmp_path / "broker.conf"
    config.write_text("enableLmq=true\nenableMultiDispatch=true\n")
    path.write_text(json.dumps({"lmqOffsetTable": {"%LMQ%one@G": 5}, "offsetTable": {}}))
    before = path.read_bytes()
    words = ("--config", config, "--group", "G", "--topic", "%LMQ%*")
    assert mqtool("plan", "offsets", store, *words, *change, "-o", tmp_path / "plan.json").code == 0
    assert mqtool("apply", tmp_path / "plan.json", "--yes").code == 0
    assert json.loads(path.read_text()) == {"lmqOffsetTable": after, "offsetTable": {}}
    assert mqtool("undo", store, "--yes").code == 0
    assert path.read_bytes() == before


@pytest.fixture(scope="module")
def broker():
    """A broker with ten messages in T/0."""
    with MqServer() as server, Client(server.broker_address) as client:
        server.create_topic("T", queues=1)
        for number in range(10):
            assert client.put("T", b"%d" % number).code == 0
        yield server


@pytest.fixture
def position(broker, request):
    """A group named after the test, at first at position 8, and what reads its position."""
    group = request.node.name
    broker.create_group(group)
    with Client(broker.broker_address) as client:
        where = {"consumerGroup": group, "topic": "T", "queueId": 0}
        assert client.call(15, commitOffset=8, **where).code == 0
        yield group, lambda: int(client.call(14, **where).fields["offset"])


def test_a_plan_for_a_broker_is_applied_and_undone(mqtool, broker, position, tmp_path):
    group, now = position
    plan, undo, redo = (tmp_path / f"{name}.json" for name in ("plan", "plan.undo", "plan.redo"))
    ask = ("plan", "offsets", "--broker", broker.broker_address, "--group", group, "--topic", "T", "--format", "json")
    made = mqtool(*ask, "--shift", "-3", "--list", "-o", plan).document
    assert [(row["before"], row["after"]) for row in made["positions"]] == [(8, 5)]
    assert [row["queue_offset"] for row in made["messages"]] == [5, 6, 7]
    looked = mqtool("apply", plan, "--dry-run", "--format", "json").document
    assert (looked["moved"], looked["undo"], now()) == (1, None, 8)
    assert (mqtool("apply", plan).code, now()) == (4, 8), "nothing without --yes"
    assert mqtool("apply", plan, "--yes", "--format", "json").document["undo"] == str(undo)
    assert now() == 5
    assert mqtool("apply", undo, "--yes", "--format", "json").document["undo"] == str(redo)
    assert now() == 8


def test_a_plan_for_a_broker_that_is_cut_off_is_refused(mqtool, broker, position, tmp_path):
    group, now = position
    plan = tmp_path / "plan.json"
    words = ("--broker", broker.broker_address, "--group", group, "--topic", "T", "--shift", "-3", "-o", plan)
    assert mqtool("plan", "offsets", *words).code == 0
    plan.write_bytes(plan.read_bytes()[:-9])
    result = mqtool("apply", plan, "--yes")
    assert (result.code, now()) == (4, 8)
    assert f"{plan}: plan-unreadable: expected a plan in JSON" in result.stderr


def applied(mqtool, broker, position, tmp_path):
    """A plan that sets a position of a broker back by 3, its undo file, and what asks for the position; applied."""
    group, now = position
    plan, undo = tmp_path / "plan.json", tmp_path / "plan.undo.json"
    words = ("--broker", broker.broker_address, "--group", group, "--topic", "T", "--shift", "-3", "-o", plan)
    assert mqtool("plan", "offsets", *words).code == 0
    assert mqtool("apply", plan, "--yes").code == 0
    return plan, undo, now


def test_an_interrupted_plan_for_a_broker_goes_on_with_its_undo_file(mqtool, broker, position, tmp_path):
    plan, undo, now = applied(mqtool, broker, position, tmp_path)
    before = undo.read_bytes()
    again = mqtool("apply", plan, "--yes", "--format", "json")
    assert (again.code, again.document["moved"], again.document["already"]) == (0, 0, 1), again.stderr
    assert (now(), undo.read_bytes()) == (5, before)


def test_the_undo_file_of_another_plan_is_not_written_over(mqtool, broker, position, tmp_path):
    group, now = position
    plan, undo = tmp_path / "plan.json", tmp_path / "plan.undo.json"
    undo.write_text("another")
    words = ("--broker", broker.broker_address, "--group", group, "--topic", "T", "--shift", "-1", "-o", plan)
    assert mqtool("plan", "offsets", *words).code == 0
    refused = mqtool("apply", plan, "--yes")
    assert (refused.code, now(), undo.read_text()) == (4, 8, "another")
    assert "the undo file of another plan exists" in refused.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--delete"], "stop the broker and plan for its store"),
        (["--to", "8"], "already has the requested value"),
    ],
    ids=["delete", "nothing to do"],
)
def test_what_cannot_be_planned_for_a_broker_is_refused(mqtool, broker, tmp_path, words, said):
    broker.create_group("GNone")
    with Client(broker.broker_address) as client:
        client.call(15, consumerGroup="GNone", topic="T", queueId=0, commitOffset=8)
    plan = tmp_path / "plan.json"
    answer = mqtool(
        "plan", "offsets", "--broker", broker.broker_address, "--group", "GNone", "-t", "T", *words, "-o", plan
    )
    assert answer.code != 0
    assert said in answer.stderr
    assert not plan.exists()


@pytest.fixture(scope="module")
def telling():
    """A broker that tells consumers a time, as those of 4.9 do, with a message in each of two queues of a topic."""
    with MqServer(useServerSideResetOffset="false") as server, Client(server.broker_address) as client:
        server.create_topic("T", queues=2)
        server.create_group("G")
        client.heartbeat("c@1", consumers={"G": ["T"]})
        for queue in (0, 1):
            assert client.put("T", b"m", queue).code == 0
            assert client.call(15, consumerGroup="G", topic="T", queueId=queue, commitOffset=1).code == 0
        for group in ("Ghost", "ghost"):
            server.call(lambda name=group: server.broker.offsets.commit(name, "T", 0, 1))
        yield server


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--to", "earliest", "--queue", "0"], "this broker moves all queues of a topic at once; leave out --queue"),
        (
            ["--shift", "-1"],
            "This broker can notify running consumers of a time only: plan --to earliest, latest or @TIME",
        ),
    ],
)
def test_running_consumers_of_a_broker_that_tells_a_time_move_to_one_in_all_queues(
    mqtool, telling, tmp_path, words, said
):
    ask = ("plan", "offsets", "--broker", telling.broker_address, "--group", "G", "--topic", "T", "--online")
    refused = mqtool(*ask, *words, "-o", tmp_path / "plan.json")
    assert (refused.code, said in refused.stderr) == (4, True), refused.stderr
    assert not (tmp_path / "plan.json").exists()


def test_a_plan_from_a_pipe_tells_running_consumers_and_its_undo_is_in_this_directory(
    mqtool, telling, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    ask = ("plan", "offsets", "--broker", telling.broker_address, "--group", "G", "--topic", "T", "--online")
    planned = mqtool(*ask, "--to", "earliest", "-o", "made.json", "--format", "json")
    assert (planned.code, [row["after"] for row in planned.document["positions"]]) == (0, [0, 0]), planned.stderr
    plan = (tmp_path / "made.json").read_bytes()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(plan)))
    done = mqtool("apply", "-", "--yes", "--format", "json")
    assert (done.code, done.document["notified"], done.document["undo"]) == (0, ["G"], "plan.undo.json")
    assert (tmp_path / "plan.undo.json").is_file()


def test_groups_that_the_broker_does_not_know_or_that_differ_by_case_are_named(mqtool, telling, tmp_path):
    ask = ("plan", "offsets", "--broker", telling.broker_address, "--group", "Ghost", "--topic", "T")
    notes = mqtool(*ask, "--to", "earliest", "-o", tmp_path / "plan.json", "--format", "json").document["notes"]
    assert "group Ghost has no configuration: brokers since 5.0 refuse its position" in notes
    assert "group Ghost: ghost differs only by case and is another group for the broker" in notes


def test_positions_in_rocksdb_are_planned_as_a_file_that_the_next_start_takes_over(mqtool, tmp_path):
    """RocksDBOffsetSerializeWrapper: a file with a higher counter of its data version is the newer one."""
    pytest.importorskip("rocksdict")
    store, plan = copy_store("rocksdb-cq-5.5.0", tmp_path), tmp_path / "plan.json"
    words = ("--group", "g", "--topic", "Rocks", "--to", 5)
    planned = mqtool("plan", "offsets", store, *words, "-o", plan, "--format", "json")
    assert planned.code == 0
    assert any("`mqtool undo` is then no longer possible" in note for note in planned.document["notes"])
    assert mqtool("apply", plan, "--yes").code == 0
    assert offsets_of(store) == {"g": {"Rocks": {0: 5, 1: 5}}}
    text = (store / "config" / "consumerOffset.json").read_text()
    assert '"counter":1,' in text
    assert mqtool("undo", store, "--yes").code == 0
    assert offsets_of(store) == {}


@pytest.mark.parametrize(("name", "words"), [("commitlog", "Is a directory"), ("nothing", "No such file or directory")])
def test_a_file_of_places_that_cannot_be_read_is_named(mqtool, tmp_path, name, words):
    store = copy_store("rollover-5.5.0", tmp_path)
    result = mqtool("plan", "offsets", store, "--group", "g", "--through", store / name, "-o", tmp_path / "plan.json")
    assert result.code == 74
    assert f"{store / name}: cannot be read: {words}" in result.stderr


def test_an_undo_file_that_an_interrupted_run_has_written_is_kept(mqtool, broker, position, tmp_path):
    plan, undo, now = applied(mqtool, broker, position, tmp_path)
    before = undo.read_bytes()
    assert mqtool("apply", undo, "--yes").code == 0
    assert (now(), undo.read_bytes()) == (8, before)
    again = mqtool("apply", plan, "--yes")
    assert (again.code, now(), undo.read_bytes()) == (0, 5, before), again.stderr


def test_no_position_changes_if_its_undo_file_cannot_be_written(mqtool, broker, position, tmp_path, monkeypatch):
    group, now = position
    plan = tmp_path / "plan.json"
    words = ("--broker", broker.broker_address, "--group", group, "--topic", "T", "--shift", "-3", "-o", plan)
    assert mqtool("plan", "offsets", *words).code == 0

    def create_file(path, _data):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr("mqtool.jobs.atomic.create_file", create_file)
    result = mqtool("apply", plan, "--yes")
    assert (result.code, now()) == (74, 8)
    assert "plan.undo.json: cannot be written: Read-only file system" in result.stderr


@pytest.mark.parametrize("command", ["offsets", "info", "pending"])
def test_broker_conf_is_found_and_decides_which_positions_a_broker_reads(mqtool, tmp_path, command):
    root, conf = copy_store("orders-5.5.0", tmp_path), tmp_path / "conf" / "broker.conf"
    (root / "config" / "consumerOffset.json").write_text('{"offsetTable": {"Payments@reports": {"0": 11}}}')
    without = mqtool(command, root, "--json").stdout
    conf.parent.mkdir()
    conf.write_text(fixture("orders-5.5.0/broker.conf").read_text())
    found, given = (mqtool(command, root, *more, "--json").stdout for more in ((), ("--config", conf)))
    assert found == given != without
