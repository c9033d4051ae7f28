"""Users and permissions over remoting: every answer is the one that a real broker 5.5.0 gave."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from mqtool.server.net.connections import Connection
from mqtool.server.testing import MqServer
from mqtool.store.config.rocksdb import rows
from tests.support.auth import KEYS, requests, seen

pytest.importorskip("rocksdict")

ANSWERS = Path(__file__).parents[1] / "answers"
RECORDED = [json.loads(line) for line in (ANSWERS / "auth-5.5.0.jsonl").read_text("utf-8").splitlines()]


async def answers(address: str) -> dict[str, dict[str, Any]]:
    """What a broker answers to the requests, by label."""
    connection = await Connection.open(address)
    found = {label: seen(command, await connection.call(command, 20)) for label, command in requests()}
    connection.close()
    return found


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("users")


@pytest.fixture(scope="module")
def found(store: Path) -> dict[str, dict[str, Any]]:
    with MqServer(store, **KEYS) as server:
        return asyncio.run(answers(server.broker_address))


def test_all_requests_were_recorded(found):
    assert list(found) == [row["label"] for row in RECORDED]


@pytest.mark.parametrize("row", RECORDED, ids=[row["label"] for row in RECORDED])
def test_a_request_is_answered_as_by_a_real_broker(found, row):
    assert {"label": row["label"], **found[row["label"]]} == row


def test_the_requests_leave_the_bytes_that_a_real_broker_left(found, store):
    assert found
    stored = (rows(store / "config" / name) for name in ("users", "acls"))
    left = [{key.decode(): value.decode() for key, value in one.items()} for one in stored]
    assert left == json.loads((ANSWERS / "auth-tables-5.5.0.json").read_text("utf-8"))
