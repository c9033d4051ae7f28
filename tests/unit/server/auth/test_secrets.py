"""Passwords appear nowhere but in the table of users: each test plants some and looks for them."""

import asyncio
import json
import logging
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from mqtool.errors import ConfigFileError, MqtoolError, UsageError
from mqtool.formats.auth_records import User, parse_user
from mqtool.protocol import Command
from mqtool.repair.backup import backup, restore
from mqtool.server.auth.tables import options_of
from mqtool.server.net.acl import Account, load
from mqtool.server.net.connections import Connection
from mqtool.server.serve import ServeOptions, Server
from mqtool.store.config.broker_config import BrokerConfig
from tests.support.acl import send
from tests.support.auth import PROVIDERS, R, ask, create_user, signed

pytest.importorskip("rocksdict")

SECRET = "Planted"
KEYS = {
    **PROVIDERS,
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": "admin", "password": "PlantedAdmin"}),
    "innerClientAuthenticationCredentials": json.dumps({"accessKey": "inner", "secretKey": "PlantedInner"}),
}
OLD = "accounts: [{accessKey: OldAccount, secretKey: PlantedOld, whiteRemoteAddress: 10.0.0.1}]\n"
REQUESTS = {
    "create": signed(create_user("reader", {"password": "PlantedReader"}), "admin", "PlantedAdmin"),
    "create again": signed(create_user("reader", {"password": "PlantedOther"}), "admin", "PlantedAdmin"),
    "no JSON": signed(
        Command(R.AUTH_CREATE_USER, fields={"username": "x"}, body=b'{"password":"PlantedCut'), "admin", "PlantedAdmin"
    ),
    "no object": signed(
        Command(R.AUTH_UPDATE_USER, fields={"username": "x"}, body=b'["PlantedCut"]'), "admin", "PlantedAdmin"
    ),
    "wrong password": signed(send("Open"), "reader", "PlantedWrong"),
    "configuration": signed(ask(R.GET_BROKER_CONFIG), "admin", "PlantedAdmin"),
    "new configuration": signed(
        Command(R.UPDATE_BROKER_CONFIG, body=b"initAuthenticationUser=Planted\n"), "admin", "PlantedAdmin"
    ),
    "misspelt configuration": signed(
        Command(R.UPDATE_BROKER_CONFIG, body=b"brokerPermission=6\ninnerClientAuthenticationCredentials=Planted\n"),
        "admin",
        "PlantedAdmin",
    ),
    "runtime": signed(ask(R.GET_BROKER_RUNTIME_INFO), "admin", "PlantedAdmin"),
    "topics": signed(ask(R.GET_ALL_TOPIC_CONFIG), "admin", "PlantedAdmin"),
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with users, which a server has closed; `said/` has all that came out of it meanwhile."""
    root = tmp_path_factory.mktemp("secrets")
    accounts, said = root / "plain_acl.yml", root / "said"
    accounts.write_text(OLD, "utf-8")
    said.mkdir()
    handler = logging.FileHandler(said / "log")
    logging.getLogger("mqtool").addHandler(handler)
    logging.getLogger("mqtool").setLevel(logging.DEBUG)

    def page(address: str, path: str) -> bytes:
        with urllib.request.urlopen(f"http://{address}{path}") as answer:
            return bytes(answer.read())

    async def main() -> None:
        config = BrokerConfig({**KEYS, "migrateAuthFromV1Enabled": "true"})
        async with Server(ServeOptions(root / "store", config=config, acl=accounts, admin_port=0)) as server:
            connection = await Connection.open(server.addresses["broker"])
            for label, command in REQUESTS.items():
                answer = await connection.call(command, 20)
                (said / label).write_bytes(
                    bytes(answer.body) + str(answer.remark).encode() + str(answer.fields).encode()
                )
            connection.close()
            for path in ("/", "/metrics", "/readyz", "/topics", "/groups"):
                try:
                    found = await asyncio.to_thread(page, server.addresses["admin"], path)
                except OSError:
                    continue
                (said / ("page" + path.replace("/", "-"))).write_bytes(found)

    asyncio.run(main())
    logging.getLogger("mqtool").removeHandler(handler)
    handler.close()
    return root / "store"


def holders(directory: Path) -> list[str]:
    return sorted(
        str(path.relative_to(directory))
        for path in directory.rglob("*")
        if path.is_file() and SECRET.encode() in path.read_bytes()
    )


def test_answers_logs_metrics_and_pages_contain_none(store):
    said = store.parent / "said"
    assert {*REQUESTS, "log", "page-", "page-metrics"} <= {path.name for path in said.iterdir()}
    assert holders(said) == []
    assert b"initAuthenticationUser=******" in (said / "configuration").read_bytes()
    assert b"cannot be changed" in (said / "new configuration").read_bytes()
    assert "account imported name=OldAccount" in (said / "log").read_text("utf-8")


def test_they_are_in_the_table_of_users_alone(store):
    found = holders(store)
    assert found
    assert {path.rpartition("/")[0] for path in found} == {"config/users"}


COMMANDS = ("info --deep", "dump", "verify", "report -o REPORT", "explain-start")


@pytest.mark.slow
@pytest.mark.parametrize("words", COMMANDS)
def test_a_command_that_reads_the_store_prints_none(store, words, tmp_path):
    config, report = tmp_path / "broker.conf", tmp_path / "report.html"
    config.write_text(
        "".join(f"{key}={value}\n" for key, value in KEYS.items()) + "timerWheelEnable=perhaps\n", "utf-8"
    )
    name, *more = words.replace("REPORT", str(report)).split(" ")
    command = [sys.executable, "-m", "mqtool", name, str(store), *more, "--config", str(config)]
    ran = subprocess.run(command, capture_output=True, check=False)
    assert ran.returncode in (0, 1), ran.stderr
    assert SECRET.encode() not in ran.stdout + ran.stderr
    assert not report.exists() or SECRET not in report.read_text("utf-8")


@pytest.mark.slow
def test_dump_refuses_the_files_of_the_tables(store):
    for file in sorted((store / "config" / "users").iterdir()):
        command = [sys.executable, "-m", "mqtool", "dump", str(file)]
        ran = subprocess.run(command, capture_output=True, check=False)
        assert ran.returncode == 4
        assert SECRET.encode() not in ran.stdout + ran.stderr


def test_a_redacted_backup_leaves_out_users_and_nothing_else(store, tmp_path):
    for redact in (False, True):
        kept, back = tmp_path / f"kept-{redact}", tmp_path / f"back-{redact}"
        made = backup(store, kept, redact=redact)
        restore(kept, back, made.snapshot.name)
        assert bool(holders(back)) is not redact
    whole, redacted = ({file.name for file in (tmp_path / f"back-{one}").rglob("*")} for one in (False, True))
    assert (tmp_path / "back-True" / "config" / "acls").is_dir()
    assert not (tmp_path / "back-True" / "config" / "users").exists()
    assert {"topics.json", "acls"} <= redacted < whole


@pytest.mark.parametrize(
    "value",
    [
        '{"username":"admin","password":"PlantedAdmin"',
        '{"password":"PlantedAdmin"}',
        '["PlantedAdmin"]',
        "PlantedAdmin",
    ],
)
@pytest.mark.parametrize("key", ["initAuthenticationUser", "innerClientAuthenticationCredentials"])
def test_a_wrong_value_of_a_key_is_not_quoted(key, value):
    with pytest.raises(UsageError, match=f"{key}: expected") as error:
        options_of(BrokerConfig({"authenticationEnabled": "true", key: value}))
    assert SECRET not in str(error.value)


@pytest.mark.parametrize(
    "text",
    [
        "accounts:\n- {accessKey: OldAccount, secretKey: PlantedOld",
        "accounts:\n- accessKey: OldAccount\n  secretKey: PlantedOld: x\n",
        "accounts:\n- {accessKey: Old, secretKey: PlantedOld}\n",
        "accounts: {accessKey: PlantedOld}\n",
        "accounts: [PlantedOld]\n",
        "accounts:\n- {accessKey: OldAccount, secretKey: PlantedOld, topicPerms: [A]}\n",
    ],
)
def test_a_wrong_file_of_accounts_is_not_quoted(text, tmp_path):
    (tmp_path / "plain_acl.yml").write_text(text, "utf-8")
    with pytest.raises(ConfigFileError) as error:
        load(tmp_path / "plain_acl.yml")
    assert SECRET not in str(error.value)


def test_values_show_none():
    assert SECRET not in repr(User("u", "PlantedUser")) + repr(Account("OldAccount", "PlantedOld"))
    for data in (b'{"password":"Planted","username":1}', b'{"password":"Planted', b'["Planted"]'):
        with pytest.raises(MqtoolError) as error:
            parse_user(data)
        assert SECRET not in str(error.value)
