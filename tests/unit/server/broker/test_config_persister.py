"""Tables are written behind the loop; who waits for one waits for a write that began after its change."""

import asyncio

import pytest

from mqtool.engine.config_files import ConfigFiles
from mqtool.engine.disk.files import Files
from mqtool.formats.release import V5_5
from mqtool.server.broker.config import ConfigPersister


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
