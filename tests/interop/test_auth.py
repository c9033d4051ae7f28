"""Users and permissions: with real clients, with mqadmin, and as stored bytes that the real broker and `serve` share."""

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from mqtool.server.net.connections import Connection
from mqtool.server.testing import MqServer
from mqtool.store.config.rocksdb import rows
from tests.support.acl import ACCOUNTS
from tests.support.auth import (
    ADMIN,
    ADMIN_PASSWORD,
    KEYS,
    PROVIDERS,
    R,
    ask,
    create_user,
    entry,
    put_acl,
    requests,
    seen,
    signed,
)
from tests.support.rocketmq import RocketMQ
from tests.support.served import KEYS as SMALL

pytest.importorskip("rocksdict")
pytestmark = pytest.mark.interop

ANSWERS = Path(__file__).parents[1] / "unit" / "server" / "answers"
LISTS = ("list users", signed(ask(R.AUTH_LIST_USER), ADMIN)), ("list permissions", signed(ask(R.AUTH_LIST_ACL), ADMIN))
ADDED = (
    ("create", signed(create_user("added", {"password": "addedPäss"}), ADMIN)),
    (
        "permit",
        signed(put_acl("User:added", entry("Topic:Ü*", ["Pub"]), entry("*", ["Get"], ips=["127.0.0.1"])), ADMIN),
    ),
    ("change", signed(create_user("idle", {"userStatus": "enable"}, code=R.AUTH_UPDATE_USER), ADMIN)),
    ("shrink", signed(ask(R.AUTH_DELETE_ACL, subject="User:reader", resource="Topic:Open"), ADMIN)),
)


def answers(address: str, asked: Any) -> list[dict[str, Any]]:
    """What a broker answers to labelled requests."""

    async def main() -> list[dict[str, Any]]:
        connection = await Connection.open(address)
        found = [{"label": label, **seen(one, await connection.call(one, 20))} for label, one in asked]
        connection.close()
        return found

    return asyncio.run(main())


def tables(store: Path) -> list[dict[bytes, bytes]]:
    """The stored users and permissions."""
    return [rows(store / "config" / name) for name in ("users", "acls")]


def test_the_recorded_answers_and_tables_are_those_of_a_real_broker(rocketmq, tmp_path):
    broker = rocketmq("5.5.0").start_broker(tmp_path / "real", **KEYS)
    real = answers(broker.address, requests())
    assert real == [json.loads(line) for line in (ANSWERS / "auth-5.5.0.jsonl").read_text("utf-8").splitlines()]
    broker.stop()
    recorded = json.loads((ANSWERS / "auth-tables-5.5.0.json").read_text("utf-8"))
    assert [{key.decode(): value.decode() for key, value in one.items()} for one in tables(broker.store)] == recorded


@pytest.mark.parametrize("kill", [pytest.param(False, marks=pytest.mark.night), True], ids=["stopped", "killed"])
def test_a_real_broker_and_serve_take_over_each_other_s_users(rocketmq, serve, tmp_path, kill):
    release, keys = rocketmq("5.5.0"), {**SMALL, **KEYS}
    broker = release.start_broker(tmp_path / "real", **keys)
    answers(broker.address, requests())
    expected = answers(broker.address, LISTS)
    broker.stop(kill=kill)

    ours = serve(broker.store, keys)
    assert answers(ours.address, LISTS) == expected
    assert {one["code"] for one in answers(ours.address, ADDED)} == {0}
    expected = answers(ours.address, LISTS)
    assert "addedPäss" in json.dumps(expected, ensure_ascii=False)
    ours.stop(kill=kill)

    again = release.start_broker(tmp_path / "real", **keys)
    assert answers(again.address, LISTS) == expected
    probe = signed(ask(R.GET_TOPIC_STATS_INFO, topic="Open"), "added", "addedPäss")
    assert answers(again.address, [("probe", probe)]) == [{"label": "probe", "allowed": True}]


def test_the_same_requests_leave_the_same_bytes(serve, tmp_path):
    ours = serve(tmp_path / "store", {**SMALL, **KEYS})
    answers(ours.address, requests())
    ours.stop(kill=True)
    recorded = json.loads((ANSWERS / "auth-tables-5.5.0.json").read_text("utf-8"))
    found = [{key.decode(): value.decode() for key, value in one.items()} for one in tables(tmp_path / "store")]
    assert found == recorded


def admin_home(directory: Path, user: str = ADMIN, password: str = ADMIN_PASSWORD) -> Path:
    """A home of mqadmin whose requests a user signs."""
    (directory / "conf").mkdir(parents=True)
    (directory / "conf" / "tools.yml").write_text(f"accessKey: {user}\nsecretKey: {password}\n", "utf-8")
    return directory


@pytest.mark.night
def test_mqadmin_lists_and_changes_users_and_permissions(rocketmq, tmp_path):
    release = rocketmq("5.5.0")
    home = admin_home(tmp_path / "home")
    with MqServer(**KEYS) as server:

        def run(*words: str, home: Path = home) -> str:
            return release.admin(*words, "-b", server.broker_address, name_server=server.namesrv, home=home)

        assert "create user to" in run("createUser", "-u", "orders", "-p", "ordersPass", "-t", "Normal")
        words = ("-s", "User:orders", "-r", "Topic:Orders*,Group:Service", "-a", "Pub,Sub", "-i", "127.0.0.0/8")
        assert "create acl to" in run("createAcl", *words, "-d", "Allow")
        assert "update acl to" in run("updateAcl", *words[:2], "-r", "Topic:Other", "-a", "Pub", "-d", "Deny")
        shown = run("getAcl", "-s", "User:orders")
        assert [
            one for one in ("Topic:Orders*", "Group:Service", "[127.0.0.0/8]", "Topic:Other", "Deny") if one in shown
        ]
        assert "Topic:Orders*" in run("listAcl", "-s", "orders")
        assert "orders" in run("listUser")
        assert "update user to" in run("updateUser", "-u", "orders", "-s", "disable")
        assert "disable" in run("getUser", "-u", "orders")
        assert "delete acl to" in run("deleteAcl", "-s", "User:orders", "-r", "Topic:Other")
        assert "delete user to" in run("deleteUser", "-u", "orders")
        assert "orders" not in run("listUser")
        refused = run("listUser", home=admin_home(tmp_path / "other", ADMIN, "wrong"))
        assert "CODE: 16  DESC: check signature failed." in refused


def prepare(server: MqServer, topic: str, group: str) -> None:
    """Creates a topic, and a user who may use it."""
    server.create_topic(topic, queues=2)
    asked = [
        ("user", signed(create_user("client", {"password": "clientPass"}), ADMIN)),
        (
            "acl",
            signed(
                put_acl("User:client", entry(f"Topic:{topic}", ["Pub", "Sub"]), entry(f"Group:{group}", ["Sub"])), ADMIN
            ),
        ),
    ]
    assert {one["code"] for one in answers(server.broker_address, asked)} == {0}


def secured(release: RocketMQ, server: MqServer, home: Path, *words: str) -> list[str]:
    """What the Java client that signs its requests prints."""
    home.mkdir()
    command = release._java("Secured", server.namesrv, *words, home=home)
    ran = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False)
    return ran.stdout.splitlines()


def test_a_java_client_signs_its_remoting_requests(rocketmq, tmp_path):
    release = rocketmq("5.5.0")
    with MqServer(**KEYS) as server:
        prepare(server, "Orders", "Service")
        said = secured(release, server, tmp_path / "a", "Orders", "Service", "client", "clientPass", "5")
        assert sorted(said) == sorted([f"{what} body{n}" for what in ("sent", "got") for n in range(5)])
        for label, words in {
            "check signature failed.": ("Orders", "Service", "client", "wrong", "1"),
            "User:nobody is not found.": ("Orders", "Service", "nobody", "clientPass", "1"),
        }.items():
            said = secured(release, server, tmp_path / words[2], *words)
            assert len(said) == 1
            assert said[0].startswith("refused")
            assert label in said[0]


@pytest.mark.night
def test_accounts_of_4_x_become_the_users_that_a_real_broker_makes_of_them(rocketmq, tmp_path):
    (tmp_path / "real" / "conf").mkdir(parents=True)
    (tmp_path / "real" / "conf" / "plain_acl.yml").write_text(ACCOUNTS, "utf-8")
    keys = {**PROVIDERS, "migrateAuthFromV1Enabled": "true"}
    broker = rocketmq("5.5.0").start_broker(tmp_path / "real", **keys)
    broker.stop()
    recorded = json.loads((ANSWERS / "auth-imported-5.5.0.json").read_text("utf-8"))
    assert [{key.decode(): value.decode() for key, value in one.items()} for one in tables(broker.store)] == recorded
