"""Replayed messages are those that the real broker gave to consumers, in their order, with new places."""

import base64
import json
import shutil
import zlib
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import mqtool
from mqtool.cli.app import run as run_program
from mqtool.cli.exits import ExitCode
from mqtool.engine import StoreOptions
from mqtool.errors import ConfigFileError, FormatError, LayoutError, StoreError, UsageError
from mqtool.export.published import message_files
from mqtool.records.damage import Damage
from mqtool.replay import state as states
from mqtool.replay.originals import Kind, Resend, SkippedCounts, Source
from mqtool.replay.to_store import ReplayRequest, Report, replay
from mqtool.store import Message
from mqtool.store.log.selection import Selection
from mqtool.verify import State, verify
from tests.support import lake
from tests.support.builder import StoreBuilder
from tests.support.stores import copy_store, sizes_of, store_fixture, tree_digest

NAME = "orders-5.5.0"
STORE = store_fixture(NAME).directory
COMMITTED = lake.expected_rows(NAME, every_class=False, broker="b")
KEPT = ("topic", "queue_id", "flag", "body", "tags", "keys", "unique_key", "properties", "born_host")


def replayed(source: object, target: Path, wanted: Selection | None = None, **options: Any) -> Report:
    keep_times = bool(options.pop("keep_times", False))
    return replay(ReplayRequest(Source(Path(str(source)), wanted or Selection(), keep_times), target, **options))


def messages(root: Path) -> list[Message]:
    with mqtool.open(root) as store:
        found = list(store.messages())
    assert not any(isinstance(one, Damage) for one in found)
    return found


def as_row(message: Message) -> dict[str, Any]:
    row = {name: getattr(message, name) for name in KEPT}
    return row | {"keys": list(message.keys)}


def expected(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The broker's rows: those of an inner batch were sent as messages of their own."""
    found = []
    for row in rows:
        said = {
            name: value
            for name, value in row["properties"].items()
            if row["batch_index"] is None or name not in ("INNER_NUM", "INNER_BASE")
        }
        said = {name: value for name, value in said.items() if name not in ("__CRC32#", "INNER_MULTI_QUEUE_OFFSET")}
        found.append({**{name: row[name] for name in KEPT}, "properties": said})
    return found


@pytest.fixture(scope="module")
def as_lines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fixture as `dump` prints it."""
    path = tmp_path_factory.mktemp("lines") / "orders.jsonl"
    with mqtool.open(STORE) as store, path.open("w") as file:
        for message in store.messages():
            assert isinstance(message, Message)
            row = {name: getattr(message, name) for name in Message.__struct_fields__ if "body" not in name}
            row["body_base64"] = base64.b64encode(message.raw_body).decode()
            file.write(json.dumps(row) + "\n")
    return path


@pytest.fixture(scope="module")
def as_lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fixture as `export` writes it."""
    target = tmp_path_factory.mktemp("lake") / "lake"
    lake.run_export(f"b={STORE}", target)
    return target


@pytest.mark.slow
@pytest.mark.parametrize("name", ["orders-5.5.0", "orders-4.9.7", "crash-5.5.0", "propcrc-5.5.0", "ipv6"])
def test_a_store_is_replayed_in_its_order(tmp_path, name):
    report = replayed(copy_store(name, tmp_path), tmp_path / "target")
    rows = lake.expected_rows(name, every_class=False, broker="b")
    assert [as_row(one) for one in messages(tmp_path / "target")] == expected(rows)
    assert (report.replayed, report.refused) == (len(rows), 0)
    with mqtool.open(tmp_path / "target") as store:
        assert verify(store).state in (State.CLEAN, State.UNKNOWN)


def test_nothing_is_replayed_into_the_store_of_a_slave(tmp_path):
    with pytest.raises(LayoutError, match="brokerRole is SLAVE"):
        replayed(store_fixture("orders-5.5.0"), tmp_path / "target", config={"brokerRole": "SLAVE"})
    assert not (tmp_path / "target").exists()


def test_messages_of_a_batch_are_replayed_one_by_one(tmp_path):
    replayed(copy_store("bcq-5.5.0", tmp_path), tmp_path / "target")
    found = Counter((one.topic, one.queue_id, one.body) for one in messages(tmp_path / "target"))
    assert found == Counter((*key[:2], key[4]) for key in lake.served("bcq-5.5.0").elements())


def test_lines_are_replayed_without_what_consumers_could_not_see(tmp_path, as_lines):
    replayed(as_lines, tmp_path / "target")
    plain = [row for row in COMMITTED if row["batch_index"] is None]
    found = [as_row(one) for one in messages(tmp_path / "target")]
    assert [row for row in found if row["topic"] != "InnerBatched"] == [
        row for row in expected(plain) if row["topic"] != "InnerBatched"
    ]


def test_an_export_is_replayed(tmp_path, as_lake):
    replayed(as_lake, tmp_path / "target")
    by_queue = sorted(COMMITTED, key=lambda row: (row["topic"], row["queue_id"], row["queue_offset"]))
    found = sorted(messages(tmp_path / "target"), key=lambda one: (one.topic, one.queue_id, one.queue_offset))
    assert [as_row(one) for one in found] == expected(by_queue)


def test_the_files_of_an_export_are_those_whose_state_is_saved(tmp_path, as_lake, monkeypatch):
    asked: list[Path] = []

    def files(path: Path) -> list[Path]:
        asked.append(path)
        return message_files(path)

    monkeypatch.setattr("mqtool.replay.originals.message_files", files)
    for _ in range(2):
        replayed(as_lake, tmp_path / "target", state=tmp_path / "state")
    assert asked == [as_lake, as_lake]
    assert len(messages(tmp_path / "target")) == len(COMMITTED)


WANTED = [
    (Selection(topics=("Ord*",)), lambda row: row["topic"].startswith("Ord")),
    (Selection(queue_id=1), lambda row: row["queue_id"] == 1),
    (Selection(tags=("TagA",)), lambda row: row["tags"] == "TagA"),
    (Selection(keys=("k0",)), lambda row: "k0" in row["keys"]),
    (Selection(properties=(("WAIT", "true"),)), lambda row: row["properties"].get("WAIT") == "true"),
    (Selection(grep=rb"1\d"), lambda row: any(b"1%d" % digit in row["body"] for digit in range(10))),
    (
        Selection(begin_time=int(COMMITTED[300]["store_timestamp"].timestamp() * 1000)),
        lambda row: row["store_timestamp"] >= COMMITTED[300]["store_timestamp"],
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("wanted", "keep"), WANTED, ids=["topic", "queue", "tag", "key", "property", "regex", "time"])
@pytest.mark.parametrize("kind", ["store", "lines", "lake"])
def test_what_is_asked_for_is_replayed(tmp_path, request, wanted, keep, kind):
    source = STORE if kind == "store" else request.getfixturevalue(f"as_{kind}")
    replayed(source, tmp_path / "target", wanted)
    found = Counter((one.topic, one.unique_key, one.body) for one in messages(tmp_path / "target"))
    rows = [row for row in COMMITTED if keep(row)]
    if kind == "lines":  # as records: an inner batch is one line, which says so and cannot be taken apart
        rows = [row for row in rows if row["topic"] != "InnerBatched"]
        found = Counter({key: count for key, count in found.items() if key[0] != "InnerBatched"})
    assert found == Counter((row["topic"], row["unique_key"], row["body"]) for row in rows)
    assert rows


def test_born_times_are_new_unless_they_are_to_be_kept(tmp_path):
    replayed(STORE, tmp_path / "new")
    replayed(STORE, tmp_path / "old", keep_times=True)
    born = [int(row["born_timestamp"].timestamp() * 1000) for row in COMMITTED]
    assert [one.born_timestamp for one in messages(tmp_path / "old")] == born
    assert min(one.born_timestamp for one in messages(tmp_path / "new")) > max(born)


def test_old_and_new_places_are_written_side_by_side(tmp_path):
    replayed(STORE, tmp_path / "target", ids=tmp_path / "ids")
    lines = [json.loads(line) for line in (tmp_path / "ids").read_text().splitlines()]
    assert [line["old"]["physical_offset"] for line in lines] == [row["physical_offset"] for row in COMMITTED]
    assert [line["old"]["queue_offset"] for line in lines] == [row["queue_offset"] for row in COMMITTED]
    for line, message in zip(lines, messages(tmp_path / "target"), strict=True):
        assert line["new"] == {
            "topic": message.topic,
            "queue_id": message.queue_id,
            "queue_offset": message.queue_offset,
            "physical_offset": message.physical_offset,
            "offset_message_id": message.offset_message_id,
        }
        assert line["unique_key"] == message.unique_key


def test_a_source_that_grew_is_replayed_from_where_it_had_ended(tmp_path):
    name = "rollover-5.5.0"
    store, ends = copy_store(name, tmp_path), lake.record_ends(name)
    rows = lake.expected_rows(name, every_class=False, broker="b")
    for records in (40, 41, len(ends)):
        lake.grow(name, store, ends[records - 1])
        replayed(store, tmp_path / "target", state=tmp_path / "state", ids=tmp_path / "ids")
        assert [as_row(one) for one in messages(tmp_path / "target")] == expected(
            [row for row in rows if row["physical_offset"] < ends[records - 1]]
        )


def test_a_rate_is_kept(tmp_path, monkeypatch):
    now = [0.0]
    slept = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(
        states, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep)
    )  # others go by the real one
    report = replayed(STORE, tmp_path / "target", rate=100)
    assert now[0] == pytest.approx(report.replayed / 100)
    assert max(slept) <= 0.25


def test_a_message_that_the_target_does_not_take_is_named_and_the_others_are_stored(tmp_path):
    (tmp_path / "broker.conf").write_text("maxMessageSize=600\n")
    report = replayed(STORE, tmp_path / "target", ids=tmp_path / "ids", config=tmp_path / "broker.conf")
    lines = [json.loads(line) for line in (tmp_path / "ids").read_text().splitlines()]
    refused = [line for line in lines if line["new"] is None]
    assert (report.refused, report.replayed) == (len(refused), len(COMMITTED) - len(refused))
    assert refused
    assert all(line["reason"] for line in refused)
    assert len(messages(tmp_path / "target")) == report.replayed


def damaged(tmp_path: Path) -> Path:
    store = copy_store(NAME, tmp_path)
    segment = min((store / "commitlog").iterdir())
    data = bytearray(segment.read_bytes())
    data[COMMITTED[5]["physical_offset"] + 88] ^= 1
    segment.write_bytes(data)
    return store


def test_damage_is_passed_over_and_reported(tmp_path, capsys):
    store = damaged(tmp_path)
    code = run_program(["replay", str(store), "--into", str(tmp_path / "target"), "--format", "json"])
    printed = capsys.readouterr()
    document = json.loads(printed.out)
    assert (code, document["damage"], document["replayed"]) == (1, 1, len(COMMITTED) - 1)
    assert "bad-crc" in printed.err


def test_what_an_earlier_run_passed_is_reported_by_the_run_that_ends_the_replay(tmp_path, capsys):
    store, state = damaged(tmp_path), tmp_path / "state"
    (tmp_path / "broker.conf").write_text("maxMessageSize=600\n")
    words = ["replay", str(store), "--into", str(tmp_path / "target"), "--state", str(state), "--format", "json"]
    words += ["--config", str(tmp_path / "broker.conf")]
    found = []
    for limit in (["--limit", "8"], ["--limit", "8"], [], []):
        code = run_program([*words, *limit])
        one = json.loads(capsys.readouterr().out)
        found.append((code, one["damage"], one["damage_earlier"], one["refused"], one["refused_earlier"]))
    (_, _, _, first, _), (_, _, _, second, _), (_, _, _, third, _), _ = found
    assert second + third
    assert found == [
        (1, 1, 0, first, 0),
        (1, 0, 1, second, first),
        (1, 0, 1, third, first + second),
        (1, 0, 1, 0, first + second + third),
    ]


def test_damage_after_the_last_message_is_reported_once_by_each_run(tmp_path):
    store, state = copy_store(NAME, tmp_path), tmp_path / "state"
    offset = COMMITTED[-1]["physical_offset"]
    segment = max(path for path in (store / "commitlog").iterdir() if int(path.name) <= offset)
    data = bytearray(segment.read_bytes())
    data[offset - int(segment.name) + 88] ^= 1
    segment.write_bytes(data)
    counts = []
    for _ in range(3):
        report = replayed(store, tmp_path / "target", state=state)
        counts.append((len(report.skipped.damage), report.earlier.damage if report.earlier else 0, report.is_complete))
    assert counts == [(1, 0, False)] * 3


def test_a_dry_run_counts_and_writes_nothing(tmp_path):
    report = replayed(STORE, tmp_path / "target", dry_run=True)
    assert (report.replayed, report.topics["Orders"]) == (
        len(COMMITTED),
        len([row for row in COMMITTED if row["topic"] == "Orders"]),
    )
    assert list(tmp_path.iterdir()) == []


def test_topics_of_a_new_target_have_the_queues_of_their_messages(tmp_path):
    replayed(STORE, tmp_path / "target")
    with mqtool.open(tmp_path / "target") as store:
        known = {name: topic.read_queue_nums for name, topic in store.metadata.topics.items()}
    wanted: dict[str, int] = {}
    for row in COMMITTED:
        wanted[row["topic"]] = max(wanted.get(row["topic"], 0), row["queue_id"] + 1)
    assert known == wanted


@pytest.mark.slow
def test_neither_source_nor_what_is_refused_changes_a_byte(tmp_path):
    store = copy_store(NAME, tmp_path)
    before = tree_digest(store)
    replayed(store, tmp_path / "target", ids=tmp_path / "ids", state=tmp_path / "state")
    assert tree_digest(store) == before
    target = tree_digest(tmp_path / "target")
    refusals: list[dict[str, Any]] = [
        {"target": store},
        {"target": store / "inside"},
        {"ids": store / "ids"},
        {"state": tmp_path / "target" / "x"},
        {"rate": 0},
        {"ids": tmp_path / "ids", "state": None},
        {"wanted": Selection(topics=("Orders",))},
    ]
    for changes in refusals:
        options = {"target": tmp_path / "target", "ids": None, "state": tmp_path / "state"} | changes
        with pytest.raises(UsageError):
            replayed(store, **options)
    assert (tree_digest(store), tree_digest(tmp_path / "target")) == (before, target)


def test_a_state_does_not_go_on_with_another_source_or_target(tmp_path):
    store = copy_store(NAME, tmp_path / "one")
    other = copy_store("orders-4.9.7", tmp_path / "other")
    replayed(store, tmp_path / "target", state=tmp_path / "state")
    with pytest.raises(UsageError, match="has changed"):
        replayed(other, tmp_path / "target", state=tmp_path / "state")
    shutil.rmtree(tmp_path / "target")
    with pytest.raises(UsageError, match="is not the one that was written"):
        replayed(store, tmp_path / "target", state=tmp_path / "state")


@pytest.mark.parametrize(
    "change",
    [{"after": [1]}, {"after": "ab"}, {"source": {"x": 1}}, {"source": 5}, {"end": None, "more": 1}],
    ids=["half a position", "no position", "another print", "no print", "another field"],
)
def test_a_state_with_other_fields_is_refused_and_stays(tmp_path, as_lines, change):
    replayed(as_lines, tmp_path / "target", state=tmp_path / "state")
    document = json.loads((tmp_path / "state").read_text()) | change
    (tmp_path / "state").write_text(json.dumps(document))
    with pytest.raises(ConfigFileError, match="is not the state of a replay"):
        replayed(as_lines, tmp_path / "target", state=tmp_path / "state")
    assert json.loads((tmp_path / "state").read_text()) == document


def test_lines_are_gone_on_with_as_long_as_their_beginning_is_the_same(tmp_path):
    source, lines = tmp_path / "lines", ['{"topic": "A", "body": "x"}\n', '{"topic": "A", "body": "y"}\n']
    source.write_text(lines[0])
    assert replayed(source, tmp_path / "target", state=tmp_path / "state").replayed == 1
    source.write_text("".join(lines))
    assert replayed(source, tmp_path / "target", state=tmp_path / "state").replayed == 1
    source.write_text(lines[1] + lines[0])
    with pytest.raises(UsageError, match="has changed"):
        replayed(source, tmp_path / "target", state=tmp_path / "state")


def test_a_source_whose_first_segments_expired_is_gone_on_with(tmp_path):
    name = "rollover-5.5.0"
    store, ends = copy_store(name, tmp_path), lake.record_ends(name)
    lake.grow(name, store, ends[40])
    replayed(store, tmp_path / "target", Selection(topics=("Roll",)), state=tmp_path / "state")
    lake.grow(name, store, ends[-1])
    min((store / "commitlog").iterdir()).unlink()
    report = replayed(store, tmp_path / "target", Selection(topics=("Roll",)), state=tmp_path / "state")
    assert (report.replayed > 0, messages(tmp_path / "target") != []) == (True, True)
    for segment in sorted((store / "commitlog").iterdir())[:-1]:
        segment.unlink()  # all of them were read, although few of their messages were selected
    report = replayed(store, tmp_path / "target", Selection(topics=("Roll",)), state=tmp_path / "state")
    assert (report.replayed, report.is_complete) == (0, True)


def test_what_expired_before_it_was_replayed_is_damage(tmp_path):
    store, state = copy_store("rollover-5.5.0", tmp_path), tmp_path / "state"
    replayed(store, tmp_path / "target", Selection(limit=3), state=state)
    after = lake.expected_rows("rollover-5.5.0", every_class=False, broker="b")[2]["physical_offset"]
    for segment in sorted((store / "commitlog").iterdir())[:4]:
        segment.unlink()
    found = []
    for _ in range(2):
        report = replayed(store, tmp_path / "target", state=state)
        found.append(([(one.start, one.end) for one in report.skipped.damage], report.is_complete))
    assert found == [([(after, 16384)], False), ([], False)]
    assert report.earlier is not None
    assert report.earlier.damage == 1


def elsewhere(tmp_path, name):
    """A store whose log is in another directory, and its broker.conf."""
    store = copy_store(name, tmp_path / name)
    (store / "commitlog").rename(tmp_path / f"{name} log")
    config = tmp_path / f"{name}.conf"
    config.write_text(f"storePathCommitLog={tmp_path / f'{name} log'}\n{sizes_of(name)}")
    return store, config


def test_a_source_whose_log_is_elsewhere_is_not_taken_for_an_empty_one(tmp_path, capsys):
    store, config = elsewhere(tmp_path, NAME)
    command = ["replay", str(store), "--into", str(tmp_path / "target"), "--state", str(tmp_path / "state")]
    assert run_program(command) == ExitCode.REFUSED
    assert "expected a CommitLog, found no segment" in capsys.readouterr().err
    assert not (tmp_path / "target").exists()
    assert run_program([*command, "--topic", "Orders", "--source-config", str(config)]) == 0
    assert {message.topic for message in messages(tmp_path / "target")} == {"Orders"}


def test_a_state_of_a_source_whose_log_is_elsewhere_does_not_go_on_with_another_one(tmp_path):
    store, config = elsewhere(tmp_path, NAME)
    other, other_config = elsewhere(tmp_path, "orders-4.9.7")
    options = {"state": tmp_path / "state"}
    replay(ReplayRequest(Source(store, Selection(), config=config), tmp_path / "target", **options))
    with pytest.raises(UsageError, match="has changed"):
        replay(ReplayRequest(Source(other, Selection(), config=other_config), tmp_path / "target", **options))


def test_a_file_that_cannot_be_opened_is_named(tmp_path):
    with pytest.raises(StoreError, match="nowhere: "):
        replayed(tmp_path / "nowhere", tmp_path / "target")


def test_a_file_that_is_gone_when_it_is_read_is_named(tmp_path):
    source = Source(tmp_path / "lines", Selection())
    with pytest.raises(StoreError, match="lines: cannot be read: No such file or directory"):
        list(source.originals(StoreOptions(), None, SkippedCounts(0, 0, [])))


@pytest.mark.parametrize(
    "place", [{}, {"REAL_TOPIC": "T", "REAL_QID": "one"}], ids=["no topic", "a queue that is none"]
)
def test_a_half_message_that_does_not_say_where_it_was_sent_needs_a_topic(place, tmp_path):
    builder = StoreBuilder()
    given = "".join(f"{name}\1{value}\2" for name, value in place.items()).encode()
    builder.put(b"one", topic="TRANS_CHECK_MAX_TIME_TOPIC", properties=given)
    with mqtool.open(builder.write(tmp_path / "store")) as store:
        (message,) = store.messages()
    with pytest.raises(
        FormatError, match="expected the topic that it was sent to, found none; name one with --to-topic"
    ):
        Resend(Kind.HALF).changed(message)
    found = Resend(Kind.HALF, to_topic="Mine").changed(message)
    assert (found.topic, found.queue_id, found.body) == ("Mine", 0, b"one")


def test_of_lines_that_are_no_messages_each_is_named(tmp_path):
    (tmp_path / "lines").write_text('{"topic": "A", "body": "x"}\nnot json\n{"body": "no topic"}\n')
    report = replayed(tmp_path / "lines", tmp_path / "target")
    assert (report.replayed, [position for position, _ in report.reasons]) == (1, [2, 3])


def test_a_dledger_log_is_replayed_and_gone_on_with(tmp_path):
    store = copy_store("dledger-5.5.0", tmp_path)
    report = replayed(store, tmp_path / "target", state=tmp_path / "state")
    with mqtool.open(store) as opened:
        known = [one for one in opened.messages() if not isinstance(one, Damage)]
    assert len(messages(tmp_path / "target")) == report.replayed
    assert report.replayed + report.skipped.not_committed == len(known)
    assert replayed(store, tmp_path / "target", state=tmp_path / "state").replayed == 0


def test_a_body_that_cannot_be_decoded_is_searched_as_it_is_stored(tmp_path):
    """The row of a damaged message, as `dump` prints it: its body is what is stored, as its CRC says."""
    row = {"topic": "A", "body": "two", "sys_flag": 1, "body_crc": zlib.crc32(b"two")}
    (tmp_path / "lines").write_text(json.dumps(row) + "\n")
    for pattern, count in ((b"t.o", 1), (b"one", 0)):
        report = replayed(tmp_path / "lines", tmp_path / pattern.hex(), Selection(grep=pattern), dry_run=True)
        assert report.replayed == count


def test_a_dry_run_names_what_the_target_would_not_take(tmp_path):
    (tmp_path / "lines").write_text('{"topic": "A", "body": "x"}\n{"topic": "A/b", "body": "x"}\n')
    report = replayed(tmp_path / "lines", tmp_path / "target", dry_run=True)
    assert (report.replayed, report.refused, [position for position, _ in report.reasons]) == (1, 1, [2])
