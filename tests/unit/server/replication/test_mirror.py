"""The mirror, beside a master that is played by the files of a real one."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import pytest

from mqtool.engine.statuses import AppendFailedError, PutResult, PutStatus
from mqtool.errors import RemoteProtocolError, StoreError
from mqtool.formats import config_files
from mqtool.server import mirror as mirror_module
from mqtool.server.mirror import Mirror
from tests.support.engine import findings_of
from tests.support.ha_master import CODES, SEGMENT, Master, playing
from tests.support.stores import fixture


def run(main: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(main, 100))


@contextlib.asynccontextmanager
async def mirroring(address: str, path: Path) -> AsyncIterator[Mirror]:
    mirror = Mirror(address, path, retry_seconds=0.05, tables_seconds=0.05)
    await mirror.start()
    running = asyncio.ensure_future(mirror.run())
    try:
        yield mirror
        await until((path / "config" / "subscriptionGroup.json").exists)
    finally:
        mirror.stop()
        await running


async def until(condition: Any) -> None:
    while not condition():
        await asyncio.sleep(0.005)


def copied(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted((path / "commitlog").iterdir()))


def options_of(mirror: Mirror) -> Any:
    return mirror.store.options


@pytest.mark.parametrize("step", [32768, 999])
@pytest.mark.parametrize("name", ["ha-4.9.7", "ha-5.5.0"])
def test_the_copy_is_the_masters_log_and_verifies_clean(tmp_path, name, step):
    async def main() -> tuple[Master, Any]:
        master = Master(name, step=step)
        async with playing(master) as address, mirroring(address, tmp_path / "copy") as mirror:
            await mirror.caught_up.wait()
            await until(lambda: master.reports[0][-1] == master.end)
            return master, options_of(mirror)

    master, options = run(main())
    assert copied(tmp_path / "copy")[: master.end] == master.log[: master.end]
    assert findings_of(tmp_path / "copy", options) == []


def test_queues_of_the_copy_hold_what_those_of_the_master_hold(tmp_path):
    async def main() -> None:
        async with playing(Master("ha-5.5.0")) as address, mirroring(address, tmp_path / "copy") as mirror:
            await mirror.caught_up.wait()

    run(main())
    ours, theirs = (
        sorted((path / "consumequeue" / "Replica").rglob("0000*"))
        for path in (tmp_path / "copy", fixture("ha-5.5.0/store-master"))
    )
    assert [file.read_bytes() for file in ours] == [file.read_bytes() for file in theirs]


def test_a_copy_goes_on_where_it_ended(tmp_path):
    async def main() -> Master:
        master = Master("ha-5.5.0")
        whole, master.visible = master.visible, 40_000
        async with playing(master) as address:
            async with mirroring(address, tmp_path / "copy") as mirror:
                await until(lambda: mirror.store.end > 38_000)
            master.visible = whole
            async with mirroring(address, tmp_path / "copy") as mirror:
                await until(lambda: mirror.store.end == whole)
        return master

    master = run(main())
    assert copied(tmp_path / "copy")[: master.end] == master.log[: master.end]
    assert master.reports[0][0] == 0
    assert 0 < master.reports[-1][0] < 38_000  # from there on, the copy is compared


def test_a_connection_that_ends_is_made_again(tmp_path):
    async def main() -> Master:
        master = Master("ha-5.5.0")
        whole, master.visible = master.visible, 40_000
        async with playing(master) as address, mirroring(address, tmp_path / "copy") as mirror:
            await until(lambda: mirror.store.end > 38_000)
            master.hang_up()
            master.visible = whole
            await until(lambda: mirror.store.end == whole)
        return master

    master = run(main())
    assert len(master.reports) > 1
    assert copied(tmp_path / "copy")[: master.end] == master.log[: master.end]


def test_a_copy_begins_where_the_masters_log_does(tmp_path):
    async def main() -> Master:
        master = Master("ha-5.5.0", first=SEGMENT)
        async with playing(master) as address, mirroring(address, tmp_path / "copy") as mirror:
            await until(lambda: mirror.store.end == master.end)
        return master

    master = run(main())
    assert [path.name for path in (tmp_path / "copy" / "commitlog").iterdir()] == [f"{SEGMENT:020d}"]
    assert copied(tmp_path / "copy")[: master.end - SEGMENT] == master.log[SEGMENT : master.end]


def test_topics_groups_and_offsets_are_taken_over(tmp_path):
    async def main() -> None:
        async with playing(Master("ha-5.5.0")) as address, mirroring(address, tmp_path / "copy"):
            await until(lambda: all((tmp_path / "copy" / "config" / name).exists() for name in CODES.values()))

    run(main())
    for name, parse in (
        ("topics.json", config_files.parse_topics),
        ("consumerOffset.json", config_files.parse_consumer_offsets),
        ("subscriptionGroup.json", config_files.parse_groups),
        ("delayOffset.json", config_files.parse_delay_offsets),
    ):
        ours, theirs = (
            (path / "config" / name).read_bytes() for path in (tmp_path / "copy", fixture("ha-5.5.0/store-master"))
        )
        assert parse(ours) == parse(theirs)


def test_a_log_that_is_not_the_copys_is_refused(tmp_path):
    async def main() -> None:
        master = Master("ha-5.5.0")
        async with playing(master) as address:
            async with mirroring(address, tmp_path / "copy") as mirror:
                await mirror.caught_up.wait()
            master.visible = 1000
            with pytest.raises(StoreError, match="another log"):
                await Mirror(address, tmp_path / "copy").start()

    run(main())


def test_a_log_with_other_bytes_at_the_end_of_the_copy_is_refused(tmp_path):
    async def main() -> None:
        master = Master("ha-5.5.0")
        whole, master.visible = master.visible, 40_000
        async with playing(master) as address:
            async with mirroring(address, tmp_path / "copy") as mirror:
                await until(lambda: mirror.store.end > 38_000)
                end = mirror.store.end
            before = copied(tmp_path / "copy")[:end]
            master.visible = whole
            master.log = master.log[: end - 1] + bytes([master.log[end - 1] ^ 1]) + master.log[end:]
            mirror = Mirror(address, tmp_path / "copy")
            await mirror.start()
            with pytest.raises(StoreError, match="the copy is of another log"):
                await mirror.run()
            assert not mirror.caught_up.is_set()
            assert copied(tmp_path / "copy")[: end + 1] == before + b"\0"

    run(main())


@pytest.mark.parametrize("change", ["the name of the broker", "the end of the log"])
def test_a_master_that_is_another_one_after_a_lost_connection_ends_the_mirror(tmp_path, change):
    async def main() -> None:
        master = Master("ha-5.5.0")
        async with playing(master) as address:
            mirror = Mirror(address, tmp_path / "copy", retry_seconds=0.05, tables_seconds=0.05)
            await mirror.start()
            running = asyncio.ensure_future(mirror.run())
            await mirror.caught_up.wait()
            if change == "the end of the log":
                master.visible -= 1000
            else:
                master.changes["brokerName"] = "broker-b"
            master.hang_up()
            with pytest.raises(StoreError, match="is now broker-b" if master.changes else "another log"):
                await running

    run(main())


@pytest.mark.parametrize("is_known", [True, False])
def test_how_groups_get_messages_is_taken_over_if_the_master_knows(tmp_path, is_known):
    modes = {"messageRequestModeMap": {"T": {"G": {"mode": "POP", "popShareQueueNum": 0}}}}

    async def main() -> None:
        master = Master("ha-5.5.0")
        if is_known:
            master.request_modes = json.dumps(modes).encode()
        async with playing(master) as address, mirroring(address, tmp_path / "copy") as mirror:
            await mirror.until_complete()

    run(main())
    path = tmp_path / "copy/config/messageRequestMode.json"
    assert (json.loads(path.read_text("utf-8")) if is_known else path.exists()) == (modes if is_known else False)


def test_a_master_whose_log_is_broken_ends_the_mirror(tmp_path):
    async def main() -> None:
        master = Master("ha-5.5.0")
        master.log = master.log[:954] + bytes(2000) + master.log[2954:]
        async with playing(master) as address:
            mirror = Mirror(address, tmp_path / "copy")
            await mirror.start()
            with pytest.raises(RemoteProtocolError, match="holds no record at physical offset 954"):
                await mirror.run()

    run(main())


def test_a_slave_is_no_master(tmp_path):
    async def main() -> None:
        master = Master("ha-5.5.0")
        master.config = master.config.replace("SYNC_MASTER", "SLAVE")
        async with playing(master) as address:
            with pytest.raises(RemoteProtocolError, match="is a slave itself"):
                await Mirror(address, tmp_path / "copy").start()

    run(main())


def test_a_master_that_falls_silent_is_asked_again(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(mirror_module, "SILENCE_SECONDS", 0.05)

    async def main() -> Master:
        master = Master("ha-5.5.0")
        whole, master.visible = master.visible, 40_000
        async with playing(master) as address, mirroring(address, tmp_path / "copy") as mirror:
            await until(lambda: len(master.reports) > 1)
            master.visible = whole
            await until(lambda: mirror.store.end == whole)
        return master

    master = run(main())
    assert copied(tmp_path / "copy")[: master.end] == master.log[: master.end]
    assert "error=nothing received for 0.05 s" in caplog.text


def test_a_slave_reports_again_where_its_log_ends_and_nothing_while_it_is_empty(tmp_path, monkeypatch):
    monkeypatch.setattr(mirror_module, "REPORT_SECONDS", 0.01)

    async def main() -> tuple[list[int], list[int]]:
        master = Master("ha-5.5.0")
        whole, master.visible = master.visible, 0
        async with playing(master) as address, mirroring(address, tmp_path / "copy") as mirror:
            await until(lambda: bool(master.reports and master.reports[0]))
            await asyncio.sleep(0.05)
            empty = list(master.reports[0])
            master.visible = whole
            master.moved.set()
            await until(lambda: mirror.store.end == whole)
            seen = len(master.reports[0])
            await until(lambda: len(master.reports[0]) > seen + 2)
            return empty, master.reports[0][-2:]

    empty, last = run(main())
    assert empty == [0]
    assert last == [Master("ha-5.5.0").end] * 2


def test_tables_that_cannot_be_taken_over_are_asked_for_again(tmp_path, monkeypatch, caplog):
    refused, take = [], mirror_module.sync_tables

    async def refusing(*arguments: Any, **options: Any) -> None:
        if not refused:
            refused.append(True)
            raise ConnectionResetError("cut off")
        await take(*arguments, **options)

    monkeypatch.setattr(mirror_module, "sync_tables", refusing)

    async def main() -> None:
        async with playing(Master("ha-5.5.0")) as address, mirroring(address, tmp_path / "copy") as mirror:
            await mirror.until_complete()

    run(main())
    assert "topics, groups and offsets not copied" in caplog.text
    assert (tmp_path / "copy" / "config" / "topics.json").exists()


def test_a_mirror_that_is_stopped_as_it_connects_takes_nothing(tmp_path):
    async def main() -> int:
        async with playing(Master("ha-5.5.0")) as address:
            mirror = Mirror(address, tmp_path / "copy")
            await mirror.start()
            mirror.stop()
            await mirror._follow(mirror._facts)
            end = mirror.store.end
            mirror.store.close()
            return end

    assert run(main()) == 0


def test_a_record_that_cannot_be_written_ends_the_mirror_with_advice(tmp_path, monkeypatch):
    async def main() -> None:
        async with playing(Master("ha-5.5.0")) as address:
            mirror = Mirror(address, tmp_path / "copy")
            await mirror.start()

            def full(*_: object) -> None:
                raise AppendFailedError(PutResult(PutStatus.CREATE_MAPPED_FILE_FAILED))

            monkeypatch.setattr(mirror.store._log, "write", full)
            with pytest.raises(StoreError, match="the record cannot be written; check whether the disk is full"):
                await mirror.run()

    run(main())
