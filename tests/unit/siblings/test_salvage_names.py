"""Topics of EQueue messages that cannot name a directory: salvage leaves them out, says so, and writes all others."""

import pytest
from msgspec.structs import replace

from mqtool.errors import MessageRejectedError
from mqtool.siblings.equeue import salvage, writer
from mqtool.siblings.equeue.listing import EQueueSettings
from mqtool.siblings.equeue.store import EQueueStore

SETTINGS = EQueueSettings(message_chunk_size=1 << 16, queue_chunk_entries=100)


@pytest.mark.parametrize("topic", [b"..", b"../../evil", b"a/b", b"x\0y"])
def test_a_topic_that_can_be_no_folder_costs_its_message_only(tmp_path, monkeypatch, topic):
    with writer.EQueueWriter(tmp_path / "store", SETTINGS) as made:
        for number in range(3):
            made.put("Good", 0, b"body %d" % number)
    read = EQueueStore.decode

    def poisoned(self, chunk, frame):
        found = read(self, chunk, frame)
        return replace(found, record=replace(found.record, topic=topic)) if found.record.queue_offset == 1 else found

    monkeypatch.setattr(EQueueStore, "decode", poisoned)
    reports = salvage.salvage(tmp_path / "store", tmp_path / "new", SETTINGS)
    monkeypatch.undo()
    assert [message.record.queue_offset for message in reports[0].records] == [0, 2]
    assert "folder's name" in reports[0].damage[-1].detail
    with EQueueStore(tmp_path / "new") as store:
        assert [message.record.body for message in store.messages()] == [b"body 0", b"body 2"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "store"]


def test_a_topic_that_leads_elsewhere_is_rejected_before_anything_is_written(tmp_path):
    with writer.EQueueWriter(tmp_path / "store", SETTINGS) as made:
        with pytest.raises(MessageRejectedError):
            made.put("../evil", 0, b"body")
        assert made.put("Good", 0, b"body").position == 0


@pytest.mark.parametrize("message_id", [b"\x80", b"7F00000100001388000000000000\xff02A", b""])
def test_a_message_id_that_is_no_text_is_kept_as_it_is(tmp_path, message_id):
    with writer.EQueueWriter(tmp_path / "store", SETTINGS) as made:
        made.put("Good", 0, b"body")
    with EQueueStore(tmp_path / "store") as store, writer.EQueueWriter(tmp_path / "new", SETTINGS) as made:
        (message,) = store.messages()
        assert made.append(replace(message.record, message_id=message_id)).queue_offset == 0
    with EQueueStore(tmp_path / "new") as store:
        assert [message.record.message_id for message in store.messages()] == [message_id]


def test_a_record_above_the_limit_is_rejected_and_the_next_one_gets_its_place(tmp_path):
    settings = EQueueSettings(message_chunk_size=1 << 16, queue_chunk_entries=100, max_record_size=300)
    with writer.EQueueWriter(tmp_path / "store", settings) as made:
        with pytest.raises(MessageRejectedError, match="the limit is 300"):
            made.put("Good", 0, bytes(300))
        assert (made.put("Good", 0, b"body").position, made.put("Good", 0, b"body").queue_offset) == (0, 1)
