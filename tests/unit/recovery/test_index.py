"""The model of the index beside the broker's own procedure, key by key."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtool.formats import index_file, java
from mqtool.records.dispatch import Dispatcher, DispatchRules
from mqtool.records.frame_scan import scan_frames
from mqtool.records.frames import Frames
from mqtool.recovery.action_log import ActionLog
from mqtool.recovery.dispatch import by_queue
from mqtool.recovery.index import SimulatedIndex
from tests.unit.recovery.stores import named, record, settings

SLOTS, ENTRIES = 10, 20


class PlainIndex:
    """IndexService.buildIndex and IndexFile.putKey, one key at a time."""

    def __init__(self) -> None:
        self.files: list[dict] = []

    def current(self) -> dict:
        if not self.files or self.files[-1]["count"] >= ENTRIES:
            made = {"begin": 0, "end": 0, "begin_ts": 0, "end_ts": 0, "used": 0, "count": 1, "slots": [0] * SLOTS}
            if self.files:
                last = self.files[-1]
                if last["end"] > 0:
                    made["begin"] = made["end"] = last["end"]
                if last["end_ts"] > 0:
                    made["begin_ts"] = made["end_ts"] = last["end_ts"]
            self.files.append(made)
        return self.files[-1]

    def build(self, topic: str, physical: int, stored: int, sys_flag: int, values: dict, release: str) -> None:
        if physical < self.current()["end"] or sys_flag & 12 == 12:
            return
        texts = [values["UNIQ_KEY"]] if values.get("UNIQ_KEY") else []
        texts += [word for word in java.split_drop_trailing(values.get("KEYS", ""), " ") if word]
        keys = [index_file.key_text(topic, text) for text in texts]
        if release == "5.5" and values.get("TAGS"):
            keys.append(index_file.tag_key_text(topic, values["TAGS"]))
        for key in keys:
            self.put(index_file.key_hash(key), physical, stored)

    def put(self, hashed: int, physical: int, stored: int) -> None:
        file = self.current()
        slot = hashed % SLOTS
        if not 0 < file["slots"][slot] <= file["count"]:
            file["used"] += 1
        file["slots"][slot] = file["count"]
        if file["count"] <= 1:
            file["begin"], file["begin_ts"] = physical, stored
        file["count"] += 1
        file["end"], file["end_ts"] = physical, stored


KEYS = st.sampled_from(["", "a", "k1 k2", " k1  k2 ", "ü x", "one two three four"])
RECORDS = st.fixed_dictionaries(
    {
        "topic": st.sampled_from(["T", "Orders", "Größe"]),
        "physical": st.integers(0, 3000),
        "stored": st.integers(1, 9),
        "sys_flag": st.sampled_from([0, 0, 0, 4, 8, 12]),
        "keys": KEYS,
        "unique": st.sampled_from(["", "U1", "U2"]),
        "tags": st.sampled_from(["", "A"]),
    }
)


def frames_of(chosen: list[dict]) -> Frames:
    parts = []
    for one in chosen:
        values = {"KEYS": one["keys"], "UNIQ_KEY": one["unique"], "TAGS": one["tags"]}
        stored = named(**{name: value for name, value in values.items() if value})
        parts.append(
            record(
                topic=one["topic"].encode(),
                stored=stored,
                physical_offset=one["physical"],
                store_timestamp=one["stored"],
                sys_flag=one["sys_flag"],
            )
        )
    view = memoryview(b"".join(parts))
    chain = scan_frames(view, 0)
    return Frames(view, 0, chain.positions, chain.sizes)


@given(st.lists(st.lists(RECORDS, max_size=8), max_size=4), st.sampled_from(["4.9", "5.5"]))
def test_columns_give_the_headers_that_single_keys_give(windows, release):
    model = SimulatedIndex(settings(Path("absent"), release), ActionLog())
    plain, dispatcher = PlainIndex(), Dispatcher(DispatchRules(index_tags=release == "5.5"))
    for window in windows:
        frames = frames_of(window)
        if window:
            model.put(dispatcher.dispatch(frames).keys, len(frames))
        for one in window:
            values = {"KEYS": one["keys"], "UNIQ_KEY": one["unique"], "TAGS": one["tags"]}
            plain.build(one["topic"], one["physical"], one["stored"], one["sys_flag"], values, release)
    assert [
        (one.begin_physical_offset, one.end_physical_offset, one.hash_slot_count, one.index_count)
        for one in (file.header for file in model.files)
    ] == [(f["begin"], f["end"], f["used"], f["count"]) for f in plain.files]


@given(st.lists(RECORDS, max_size=12))
def test_topics_and_queues_of_a_window_are_those_of_its_records(chosen):
    frames, dispatcher = frames_of(chosen), Dispatcher()
    numbers, names = dispatcher.dispatch(frames).topic, dispatcher.topics.names
    assert [names[number] for number in numbers] == [one["topic"] for one in chosen]
    grouped = {
        (topic, queue): rows.tolist() for topic, queue, rows in by_queue(numbers, frames.column("queue_id"), names)
    }
    assert grouped == {
        (topic, 0): [row for row, one in enumerate(chosen) if one["topic"] == topic]
        for topic in {one["topic"] for one in chosen}
    }


def write_index(directory: Path, name: str, end_timestamp: int) -> None:
    directory.mkdir(exist_ok=True)
    header = index_file.HEADER.build(index_file.IndexHeader(1, end_timestamp, 0, 10, 1, 2))
    (directory / name).write_bytes(header.ljust(index_file.file_size(SLOTS, ENTRIES), b"\0"))


@pytest.mark.parametrize(("clean_stop", "kept"), [(True, ["1", "2", "3"]), (False, ["1", "2"])])
def test_after_a_crash_files_newer_than_the_checkpoint_go(tmp_path, clean_stop, kept):
    for name, end in (("1", 100), ("2", 200), ("3", 201)):
        write_index(tmp_path / "index", name, end)
    model = SimulatedIndex(settings(tmp_path), ActionLog())
    model.load(clean_stop=clean_stop, index_timestamp=200)
    assert [file.path and file.path.name for file in model.files] == kept


@pytest.mark.parametrize(
    ("target", "problem"),
    [("2", "Too many levels of symbolic links"), ("/no/such/directory/2", "No such file or directory")],
)
def test_a_link_that_leads_nowhere_ends_the_loading(target, problem, tmp_path):
    write_index(tmp_path / "index", "1", 100)
    path = tmp_path / "index" / "2"
    path.symlink_to(target)
    model = SimulatedIndex(settings(tmp_path), ActionLog())
    model.load(clean_stop=True, index_timestamp=0)
    assert len(model.files) == 1
    assert model.refusal == f"load file {path} error java.io.FileNotFoundException: {path} ({problem})"


def test_a_link_to_a_file_that_can_be_created_is_an_empty_file(tmp_path):
    write_index(tmp_path / "index", "1", 100)
    (tmp_path / "index" / "2").symlink_to(tmp_path / "2")
    model = SimulatedIndex(settings(tmp_path), ActionLog())
    model.load(clean_stop=True, index_timestamp=0)
    assert ([file.stored_count for file in model.files], model.refusal) == ([2, 0], None)


def test_text_is_passed_over_and_a_directory_ends_the_loading(tmp_path):
    write_index(tmp_path / "index", "1", 100)
    (tmp_path / "index" / "2").mkdir()
    write_index(tmp_path / "index", "3", 100)
    (tmp_path / "index" / "0x").write_bytes(b"")
    actions = ActionLog()
    model = SimulatedIndex(settings(tmp_path), actions)
    model.load(clean_stop=True, index_timestamp=0)
    assert [file.path and file.path.name for file in model.files] == ["1"]
    assert model.refusal is not None
    assert "Is a directory" in model.refusal
    assert any("0x is not a number" in fault for fault in actions.accepted)
