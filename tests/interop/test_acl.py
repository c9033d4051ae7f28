"""The checks of accounts, beside those of a real broker."""

import asyncio
import json
from pathlib import Path

import pytest

from mqtool.server.net.client import Connection
from tests.support.acl import ACCOUNTS, refusal, requests
from tests.support.rocketmq import RocketMQ

pytestmark = pytest.mark.interop

RECORDED = Path(__file__).parents[1] / "unit" / "server" / "answers" / "acl-4.9.7.json"


def refusals_of_a_real_broker(release: RocketMQ, directory: Path) -> dict[str, str | None]:
    """What a broker with these accounts says to each request."""
    (directory / "conf").mkdir(parents=True)
    (directory / "conf" / "plain_acl.yml").write_text(ACCOUNTS, "utf-8")
    broker = release.start_broker(directory, aclEnable=True)

    async def main() -> dict[str, str | None]:
        connection = await Connection.open(broker.address)
        found = {label: refusal(await connection.call(command, 20)) for label, command in requests().items()}
        connection.close()
        return found

    return asyncio.run(main())


def test_the_recorded_refusals_are_those_of_a_real_broker(rocketmq, tmp_path):
    real = refusals_of_a_real_broker(rocketmq("4.9.7"), tmp_path / "real")
    assert real == json.loads(RECORDED.read_text("utf-8"))
