"""The checks of accounts, beside those of a real broker."""

import asyncio
import json
from pathlib import Path

import pytest

from mqtool.server.net.connections import Connection
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


@pytest.mark.night
def test_commands_sign_with_the_account_of_mqadmin(rocketmq, mqtool, monkeypatch, tmp_path):
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "plain_acl.yml").write_text(ACCOUNTS, "utf-8")
    broker = rocketmq("4.9.7").start_broker(tmp_path, aclEnable=True)
    plan = ("plan", "offsets", "--broker", broker.address, "--group", "G", "--topic", "RMQ_SYS_TRACE_TOPIC", "--to")
    refused = mqtool(*plan, "latest", "-o", tmp_path / "no.json")
    assert (refused.code != 0, "accessKey" in refused.stderr) == (True, True), refused.stderr
    assert mqtool("mirror", broker.address, "-o", tmp_path / "none", "--once").code != 0
    home = tmp_path / "home"
    (home / "conf").mkdir(parents=True)
    (home / "conf" / "tools.yml").write_text("accessKey: AdminKey\nsecretKey: AdminSecret\n")
    monkeypatch.setenv("ROCKETMQ_HOME", str(home))
    planned = mqtool(*plan, "0", "-o", tmp_path / "plan.json")
    assert "nothing to move: no position of G" in planned.stderr, "it has answered, for the administrator"
    mirrored = mqtool("mirror", broker.address, "-o", tmp_path / "copy", "--once")
    assert mirrored.code == 0, mirrored.stderr
    broker.stop()
