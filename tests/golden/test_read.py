"""Reading real stores gives what the real broker answered about them, line by line."""

import base64
import ipaddress
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import mqtool
from mqtool.engine import open_store as open_for_writing
from mqtool.engine.start.detect import options_for
from mqtool.records.damage import Damage
from mqtool.recovery import predict
from mqtool.store import Message, Store
from tests.support.stores import StoreFixture, answered, answers, copy_store, store_fixture, summary, tree_digest

ANSWERED = answered("gets", "queries", "times", "messages", "queues")
INDEX_FIELDS = ("beginTimestamp", "endTimestamp", "beginPhyOffset", "endPhyOffset", "hashSlotCount", "indexCount")


@pytest.fixture(scope="module", params=ANSWERED, ids=str)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Store]]:
    """A store that the broker was asked about, opened."""
    fixture: StoreFixture = request.param
    # 4.x chooses queue files by modification time; a fresh copy is newer than every message, as in the broker's run
    root = copy_store(fixture.name, tmp_path_factory.mktemp("store"))
    before = tree_digest(root)
    with mqtool.open(root) as store:
        yield fixture.name, store
    assert tree_digest(root) == before


def host_of(text: str) -> tuple[str, str]:
    """Address and port of mqtool's text."""
    address, _, port = text.rpartition(":")
    return address.strip("[]"), port


def expected_message(answer: dict[str, Any]) -> dict[str, Any]:
    """The broker's answer in mqtool's terms."""

    def host(text: str) -> tuple[str, str]:
        address, port = text.split("|")
        return str(ipaddress.ip_address(address)), port

    stored = base64.b64decode(answer["body"] or "")
    decoded = answer["decodedBody"]
    return {
        "physical_offset": answer["physicalOffset"],
        "store_size": answer["storeSize"],
        "topic": answer["topic"],
        "magic_code": int(answer["magic"], 16) - (1 << 32),
        "queue_id": answer["queueId"],
        "queue_offset": answer["queueOffset"],
        "flag": answer["flag"],
        "sys_flag": answer["sysFlag"],
        "born_timestamp": answer["bornTimestamp"],
        "store_timestamp": answer["storeTimestamp"],
        "born_host": host(answer["bornHost"]),
        "store_host": host(answer["storeHost"]),
        "reconsume_times": answer["reconsumeTimes"],
        "properties": answer["properties"],
        "prepared_transaction_offset": answer["preparedTransactionOffset"],
        "body_crc": answer["bodyCRC"],
        "raw_body": stored,
        "body": stored if decoded is None else base64.b64decode(decoded),
        "offset_message_id": answer["offsetMsgId"],
    }


def found_message(message: Message) -> dict[str, Any]:
    """A message in the same terms."""
    return {
        name: host_of(value) if name.endswith("_host") else value
        for name in Message.__struct_fields__
        if (value := getattr(message, name)) is not None and name not in ("batch_index", "body_problem")
    }


def test_every_message_is_the_brokers(case: tuple[str, Store]) -> None:
    name, store = case
    found = list(store.messages())
    assert [item for item in found if isinstance(item, Damage)] == []
    expected = [expected_message(answer) for answer in answers(name, "messages")]
    assert [found_message(message) for message in found] == expected


def test_arrow_columns_are_the_messages(case: tuple[str, Store]) -> None:
    _, store = case
    rows = store.to_arrow().to_pylist()
    messages = list(store.messages())
    assert len(rows) == len(messages)
    for row, message in zip(rows, messages, strict=True):
        row.update(properties=dict(row["properties"]), keys=tuple(row["keys"]))
        assert row == {column: getattr(message, column) for column in row}


def test_bounds_of_the_log_are_the_brokers(case: tuple[str, Store]) -> None:
    name, store = case
    expected = summary(name)
    log = store.commit_log
    assert (log.min_offset, log.max_offset) == (expected["minPhyOffset"], expected["maxPhyOffset"])


def test_every_queue_is_the_brokers(case: tuple[str, Store]) -> None:
    name, store = case
    for answer in answers(name, "queues"):
        queue = store.queue(answer["topic"], answer["queueId"])
        if queue is None:
            assert answer["units"] == []
            continue
        expected = (answer["type"], answer["minOffset"], answer["maxOffset"])
        assert (queue.kind, queue.min_offset, queue.max_offset) == expected
        if answer["units"]:
            assert queue.max_physical_offset == answer["maxPhysicOffset"]


def test_every_pull_gets_the_brokers_answer(case: tuple[str, Store]) -> None:
    name, store = case
    for answer in answers(name, "gets"):
        result = store.get_message(answer["topic"], answer["queueId"], answer["offset"], answer["max"], answer["tags"])
        found = (result.status.value, result.next_begin_offset, result.min_offset, result.max_offset)
        assert found == (answer["status"], answer["nextBeginOffset"], answer["minOffset"], answer["maxOffset"]), answer
        assert [message.physical_offset for message in result.messages] == answer["physicalOffsets"], answer
        assert sum(message.store_size for message in result.messages) == answer["bytes"]
        assert result.damage == []


def test_every_query_gets_the_brokers_answer(case: tuple[str, Store]) -> None:
    name, store = case
    for answer in answers(name, "queries"):
        found = store.query_message(answer["topic"], answer["key"], answer["max"], answer["begin"], answer["end"])
        assert [message.physical_offset for message in found] == answer["physicalOffsets"], answer


def test_every_time_gets_the_brokers_offset(case: tuple[str, Store]) -> None:
    name, store = case
    for answer in answers(name, "times"):
        where = (answer["topic"], answer["queueId"], answer["timestamp"])
        assert store.offset_in_queue_by_time(*where) == answer["offset"], answer
        for boundary in answer.keys() & {"lower", "upper"}:
            assert store.offset_in_queue_by_time(*where, boundary.upper()) == answer[boundary], answer


def test_every_index_file_is_the_brokers(case: tuple[str, Store]) -> None:
    name, store = case
    files, expected = store.index_files(), answers(name, "index")
    assert len(files) == len(expected)
    for file, answer in zip(files, expected, strict=True):
        header = file.header
        found = [
            header.begin_timestamp,
            header.end_timestamp,
            header.begin_physical_offset,
            header.end_physical_offset,
            header.hash_slot_count,
            header.index_count,
        ]
        assert found == [answer[field] for field in INDEX_FIELDS]
        entries = [[number, *entry] for number, entry in enumerate(file.entries.tolist(), 1)]
        assert entries == answer["entries"]
        chains = [[slot, *chain_of(file.entries, int(head))] for slot, head in enumerate(file.slots.tolist()) if head]
        assert chains == answer["slots"]


def chain_of(entries: Any, head: int) -> list[int]:
    """Entry numbers from a slot's head on."""
    chain = []
    while head > 0:
        chain.append(head)
        head = int(entries[head - 1]["previous"])
    return chain


def test_slots_and_entries_are_worked_out_from_the_files(case: tuple[str, Store]) -> None:
    name, store = case
    keys = dict(line.split("=", 1) for line in store_fixture(name).config.read_text().splitlines() if "=" in line)
    slots, entries = int(keys.get("maxHashSlotNum", 5_000_000)), int(keys.get("maxIndexNum", 20_000_000))
    for file in store.index_files():
        assert (file.slot_count, file.max_entries) == (slots, entries)


def test_the_release_is_recognised(case: tuple[str, Store]) -> None:
    name, store = case
    assert store.version.line == store_fixture(name).version[:3]


def test_several_commit_log_directories_are_one_log_with_and_without_a_config(tmp_path: Path) -> None:
    root = copy_store("multipath-5.5.0", tmp_path)
    config = {"storePathCommitLog": f"{root}/clA,{root}/clB,{root}/clC"}
    with mqtool.open(root, config) as configured, mqtool.open(root) as found:
        assert configured.commit_log.segments == found.commit_log.segments
        assert [segment.base for segment in found.commit_log.segments] == list(range(0, 8 * 65536, 65536))


def test_directories_of_one_name_on_several_disks_keep_their_parts(tmp_path: Path) -> None:
    """As in `storePathCommitLog=/disk1/commitlog,/disk2/commitlog`, with the first disk full and only read."""
    root = copy_store("multipath-5.5.0", tmp_path)
    expected = predict(root, "5.5")
    disks = [tmp_path / name / "commitlog" for name in ("a", "b", "c")]
    for name, disk in zip(("clA", "clB", "clC"), disks, strict=True):
        disk.parent.mkdir()
        (root / name).rename(disk)
    full = sorted(disks[0].iterdir())
    config = {"storePathCommitLog": f"{disks[1]},{disks[2]}", "readOnlyCommitLogStorePaths": disks[0]}
    found = predict(root, "5.5", config)
    assert (found.verdict, found.after_start, found.lost) == (expected.verdict, expected.after_start, expected.lost)
    with open_for_writing(root, options_for(root, config)) as writer:
        placed = [writer.put("New", 0, bytes(1000)).physical_offset for _ in range(200)]
    assert not (root / "commitlog").exists(), "no broker with this configuration would read it"
    assert sorted(disks[0].iterdir()) == full
    with mqtool.open(root, config) as store:
        new = [one.physical_offset for one in store.messages() if isinstance(one, Message) and one.topic == "New"]
        assert new == placed
        assert {segment.path.parent for segment in store.commit_log.segments[-3:]} == {disks[1], disks[2]}
