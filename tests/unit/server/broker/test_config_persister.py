"""Tables are written behind the loop; who waits for one waits for a write that began after its change."""

import asyncio
import json

import pytest

from mqtool.engine.config_files import ConfigFiles
from mqtool.engine.disk.files import Files
from mqtool.formats.release import V4_9, V5_3, V5_4, V5_5, V5_5_1
from mqtool.server.broker.config import ConfigPersister
from mqtool.server.broker.offsets import OffsetTable


@pytest.mark.parametrize("durable", [True, False], ids=["durable", "written"])
def test_who_asks_while_a_write_is_under_way_is_answered_without_another_change(tmp_path, durable):
    async def main() -> bytes:
        persister = ConfigPersister(ConfigFiles(tmp_path, Files(), release=V5_5), durable=durable)
        persister.register("one.json", lambda: b"{}")
        persister.mark("one.json")
        await asyncio.sleep(0)  # the write has begun
        await asyncio.wait_for(persister.saved(), 30)
        written = (tmp_path / "config" / "one.json").read_bytes()
        await persister.close()
        return written

    assert asyncio.run(main()) == b"{}"


def test_who_stops_waiting_for_a_table_does_not_keep_others_from_their_answer(tmp_path):
    async def main() -> bool:
        persister = ConfigPersister(ConfigFiles(tmp_path, Files(), release=V5_5), durable=True)
        persister.register("one.json", lambda: b"{}")
        persister.mark("one.json")
        gone, waiting = (asyncio.ensure_future(persister.saved()) for _ in range(2))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.wait_for(waiting, 30)
        await persister.close()
        return gone.cancelled()

    assert asyncio.run(main())


@pytest.mark.parametrize(
    ("release", "members"),
    [
        (V4_9, ["offsetTable"]),
        *((release, ["dataVersion", "offsetTable"]) for release in (V5_3, V5_4, V5_5_1)),
        (V5_5, ["dataVersion", "offsetTable", "pullOffsetTable"]),
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "before",
    [None, '{"offsetTable":{},"pullOffsetTable":{"T@G":{0:7}}}', '{"offsetTable":{}}'],
    ids=["no file", "with pulls", "without pulls"],
)
def test_only_5_5_0_writes_a_table_of_pulls(tmp_path, release, members, before):
    """Seen in the files of real brokers, 4.9.7 to 5.5.1. A store of 5.5.0 or 5.5.1 whose file has none gets none."""
    if before is not None:
        (tmp_path / "config").mkdir()
        (tmp_path / "config" / "consumerOffset.json").write_text(before)
    persister = ConfigPersister(ConfigFiles(tmp_path, Files(), release=release), durable=False)

    async def written() -> bytes:
        table = OffsetTable(persister)
        table.commit("G", "T", 0, 5)
        table.persist()
        encoded = table.encoded()
        await persister.close()
        return encoded

    if before and "pullOffsetTable" not in before:
        members = [name for name in members if name != "pullOffsetTable"]
    assert sorted(json.loads(asyncio.run(written()).replace(b"0:", b'"0":'))) == members
