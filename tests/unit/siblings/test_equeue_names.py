"""Names of queue folders, consumed offsets and local times of EQueue, as its broker reads and writes them."""

import time
from pathlib import Path

import pytest

from mqtool.cli.app import run
from mqtool.formats import equeue
from mqtool.siblings.equeue import writer
from mqtool.siblings.equeue.explain import explain
from mqtool.siblings.equeue.listing import EQueueSettings
from mqtool.siblings.equeue.start import start
from mqtool.siblings.equeue.store import EQueueStore
from mqtool.siblings.equeue.verify import verify
from mqtool.siblings.equeue.writer import EQueueWriter

SETTINGS = EQueueSettings(message_chunk_size=1 << 16, queue_chunk_entries=10)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with EQueueWriter(tmp_path / "store", SETTINGS) as made:
        for number in range(5):
            made.put("Orders", 7, b"order %d" % number)
    return tmp_path / "store"


def loaded(root: Path) -> tuple[str | None, dict[tuple[str, int], int]]:
    """Returns the exception of the start, and the next offset of each queue."""
    found = start(root, SETTINGS, equeue.CURRENT)
    found.close()
    return found.refusal and found.refusal.exception, {key: queue.next_offset for key, queue in found.queues.items()}


@pytest.mark.parametrize(
    ("name", "exception"),
    [
        ("1_0", "FormatException"),
        ("٣", "FormatException"),
        ("1.0", "FormatException"),
        ("0x1", "FormatException"),
        ("- 1", "FormatException"),
        ("99999999999", "OverflowException"),
        ("2147483648", "OverflowException"),
        ("-2147483649", "OverflowException"),
    ],
)
def test_the_broker_refuses_a_folder_whose_name_is_no_32_bit_number(name, exception, root):
    (root / "queue-chunks/Orders" / name).mkdir()
    assert loaded(root)[0] == exception
    with EQueueStore(root) as store:
        assert exception in next(one.evidence for one in verify(store) if one.code == "equeue-start-refused")


@pytest.mark.parametrize(("name", "number"), [("2147483647", 2147483647), ("-2147483648", -2147483648), ("0", 0)])
def test_the_broker_reads_a_32_bit_number(name, number, root):
    (root / "queue-chunks/Orders" / name).mkdir()
    assert loaded(root) == (None, {("Orders", 7): 5, ("Orders", number): 0})


@pytest.mark.parametrize("name", ["007", "+7", " 7", "7 "])
def test_a_number_in_another_form_names_a_folder_that_the_broker_does_not_read(name, root):
    folder = root / "queue-chunks/Orders/7"
    folder.rename(folder.with_name(name))
    assert loaded(root) == (None, {("Orders", 7): 0})
    assert f"folder Orders/{name} is not read" in explain(root).silent[0]
    with EQueueStore(root) as store:
        assert [list(store.entries(queue)) for queue in store.queues] == [[]]
        assert {one.code: Path(one.file).name for one in verify(store)}["equeue-queue-folder"] == name
    folder.with_name(name).rename(folder)
    folder.with_name(name).mkdir()
    assert loaded(root) == (None, {("Orders", 7): 5})


@pytest.mark.parametrize("offset", ["1e999", "-1e999", "NaN", "[1]"])
def test_an_offset_that_is_no_number_is_a_finding(offset, root, capsys):
    (root / "consume-offsets.json").write_text('{"G": {"Orders": {"7": ' + offset + "}}}")
    assert run(["verify", str(root)]) == 1
    assert "equeue-consume-offsets" in capsys.readouterr().out
    for command in ("info", "explain-start"):
        assert run([command, str(root)]) == 0
        assert "the broker uses its backup" in capsys.readouterr().out


def test_the_local_time_includes_daylight_saving(monkeypatch):
    monkeypatch.setenv("TZ", "Australia/Sydney")
    time.tzset()
    try:
        for second, hours in ((1_704_067_200, 11), (1_719_792_000, 10)):  # 2024-01-01 and 2024-07-01, 00:00 UTC
            monkeypatch.setattr(writer.time, "time_ns", lambda second=second: second * 1_000_000_000)
            assert writer.now_ticks() == equeue.EPOCH_TICKS + (second + hours * 3600) * 10_000_000
    finally:
        monkeypatch.undo()
        time.tzset()
