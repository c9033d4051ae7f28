"""Users and permissions over gRPC: every answer is the one that a real proxy 5.5.0 gave."""

import asyncio
import json
from pathlib import Path

import pytest

from mqtool.server.net.client import Connection
from mqtool.server.testing import MqServer
from tests.support.auth import KEYS
from tests.support.grpc_auth import answers, users

pytest.importorskip("rocksdict")

RECORDED = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "answers" / "auth-proxy-5.5.0.jsonl").read_text("utf-8").splitlines()
]


async def prepare(address: str) -> None:
    """Creates topics, users and permissions."""
    connection = await Connection.open(address)
    for command in users():
        answer = await connection.call(command, 20)
        assert answer.code == 0, answer.remark
    connection.close()


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, str]]:
    with MqServer(**{key: value for key, value in KEYS.items() if "hitelist" not in key}) as server:
        asyncio.run(prepare(server.broker_address))
        return dict(answers(server.endpoints))


def test_all_calls_were_recorded(found):
    assert list(found) == [row["label"] for row in RECORDED]


@pytest.mark.parametrize("row", RECORDED, ids=[row["label"] for row in RECORDED])
def test_a_call_is_answered_as_by_a_real_proxy(found, row):
    assert {"label": row["label"], **found[row["label"]]} == row
