"""Accounts: what a real broker of 4.9.7 refused is refused in its words, and nothing else is."""

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Any

import grpc
import pytest

from mqtool.commands import with_extra
from mqtool.errors import ConfigFileError, RemoteProtocolError, UnavailableError, UsageError
from mqtool.protocol import Command
from mqtool.protocol import RequestCode as R
from mqtool.server.net.acl import ROUTE_CHANGES, Acl, AclConfig, Right, address_matches, load, sign
from mqtool.server.net.connections import Connection
from mqtool.server.serve import ServeOptions, Server
from mqtool.store.config.broker_config import BrokerConfig
from tests.support.acl import ACCOUNTS, pull, refusal, requests, send, signed
from tests.support.grpc_client import GrpcClient
from tests.support.stores import copy_store, tree_digest

pytest.importorskip("yaml")

RECORDED: dict[str, str | None] = json.loads(
    (Path(__file__).parents[1] / "answers" / "acl-4.9.7.json").read_text("utf-8")
)
STRICTER = {"send to a closed group": "No default permission for group:ClosedGroup"}
"""4.9.7 means to refuse this too, but never finds the group."""


class At:
    """A peer, as far as the checks look."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self.host = host


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> AclConfig:
    path = tmp_path_factory.mktemp("acl") / "plain_acl.yml"
    path.write_text(ACCOUNTS, "utf-8")
    return load(path)


def check(acl: Acl, command: Command, host: str = "127.0.0.1") -> Command | None:
    peer: Any = At(host)
    return acl.check(command, peer)


@pytest.mark.parametrize("label", list(RECORDED))
def test_a_request_is_refused_as_by_a_real_broker(config, label):
    assert refusal(check(Acl(config, since_5=False), requests()[label])) == STRICTER.get(label, RECORDED[label])


ADMIN_WITH_LIMITS = """
accounts:
- {accessKey: LimitedKey, secretKey: LimitedSecret, admin: true, defaultTopicPerm: PUB, topicPerms: [Secret=DENY]}
- {accessKey: GroupsKey, secretKey: GroupsSecret, admin: true, groupPerms: [G=SUB]}
"""


def limited(tmp_path: Path, command: Command, key: str) -> str | None:
    path = tmp_path / "plain_acl.yml"
    path.write_text(ADMIN_WITH_LIMITS, "utf-8")
    return refusal(check(Acl(load(path), since_5=False), signed(command, key, key.replace("Key", "Secret"))))


def test_listed_permissions_limit_an_administrator_too(tmp_path):
    """PlainPermissionManager.checkPerm (4.9.7) exempts only an administrator without listed permissions."""
    assert limited(tmp_path, send("Secret"), "LimitedKey") == "No default permission for topic:Secret"
    assert limited(tmp_path, send("Other"), "LimitedKey") is None
    assert limited(tmp_path, pull("Other", "G"), "GroupsKey") == "No default permission for topic:Other"


def test_an_administrator_with_listed_permissions_may_still_administrate(tmp_path):
    for code in (R.UPDATE_AND_CREATE_TOPIC, R.UPDATE_BROKER_CONFIG, R.DELETE_TOPIC_IN_BROKER):
        assert limited(tmp_path, Command(code, fields={"topic": "Secret"}), "LimitedKey") is None


def by_reader(code: int, fields: dict[str, str], body: bytes = b"") -> Command:
    return signed(Command(code, fields=fields, body=body), "ReaderKey")


def batch_ack(*entries: tuple[str, str]) -> Command:
    acks = [{"c": group, "t": topic, "r": "0", "so": 0, "q": 0, "rq": 0, "pt": 1, "it": 1} for group, topic in entries]
    return by_reader(R.BATCH_ACK_MESSAGE, {}, json.dumps({"acks": acks}).encode())


@pytest.mark.parametrize("code", [R.ACK_MESSAGE, R.CHANGE_MESSAGE_INVISIBLETIME])
@pytest.mark.parametrize(
    ("topic", "group", "refused"),
    [
        ("Open", "OpenGroup", None),
        ("Closed", "OpenGroup", "topic:Closed"),
        ("Open", "ClosedGroup", "group:ClosedGroup"),
        ("%RETRY%OpenGroup", "OpenGroup", None),
        ("%RETRY%OpenGroup_Open", "OpenGroup", None),
        ("%RETRY%OpenGroup+Open", "OpenGroup", None),
        ("%RETRY%OpenGroup_Closed", "OpenGroup", "topic:Closed"),
    ],
)
def test_an_acknowledgement_needs_the_rights_of_a_pop(config, code, topic, group, refused):
    command = by_reader(code, {"topic": topic, "consumerGroup": group})
    expected = None if refused is None else f"No default permission for {refused}"
    assert refusal(check(Acl(config, since_5=False), command)) == expected


def test_each_entry_of_a_list_of_acknowledgements_needs_the_rights_of_a_pop(config):
    acl = Acl(config, since_5=False)
    assert check(acl, batch_ack(("OpenGroup", "Open"))) is None
    assert check(acl, batch_ack()) is None
    assert check(acl, by_reader(R.BATCH_ACK_MESSAGE, {"a": "b"})) is None  # the handler answers it
    closed = batch_ack(("OpenGroup", "Open"), ("OpenGroup", "Closed"))
    assert refusal(check(acl, closed)) == "No default permission for topic:Closed"
    with pytest.raises(RemoteProtocolError, match="list of acknowledgements: "):
        check(acl, by_reader(R.BATCH_ACK_MESSAGE, {}, b'{"acks":[{}]}'))


@pytest.mark.parametrize("code", [R.RECALL_MESSAGE, R.END_TRANSACTION])
def test_a_recall_or_the_end_of_a_transaction_needs_the_right_to_publish(config, code):
    acl = Acl(config, since_5=False)
    assert check(acl, by_reader(code, {"topic": "WriteOnly"})) is None
    assert refusal(check(acl, by_reader(code, {"topic": "ReadOnly"}))) == "No default permission for topic:ReadOnly"


def test_the_end_of_a_transaction_without_a_topic_comes_from_an_old_client(config):
    assert check(Acl(config), by_reader(R.END_TRANSACTION, {"producerGroup": "P"})) is None


@pytest.mark.parametrize("label", list(RECORDED))
def test_both_forms_of_answers_refuse_the_same(config, label):
    old, new = (check(Acl(config, since_5=since_5), requests()[label]) for since_5 in (False, True))
    assert (old and old.code, new and new.code) in {(None, None), (1, 16)}


def test_every_request_was_recorded():
    assert list(requests()) == list(RECORDED)


def test_a_signature_is_that_of_the_real_client():
    """Computed by AclUtils of 4.9.7 over the values in the order of their names, and the body."""
    command = Command(
        310, fields={"b": "T", "AccessKey": "ReaderKey", "_x": "ü", "Signature": "old", "a": "P"}, body="bödy".encode()
    )
    assert sign(command, "ReaderSecret") == "Oso2Cs51u7XRh9bk/6Qh441bG10="


def test_addresses_of_all_need_no_account(tmp_path):
    path = tmp_path / "plain_acl.yml"
    path.write_text("globalWhiteRemoteAddresses: [10.1.*.*, 192.168.0.1]", "utf-8")
    acl = Acl(load(path))
    assert check(acl, Command(10), "10.1.2.3") is None
    refused = check(acl, Command(10), "10.2.2.3")
    assert refused is not None
    assert refused.code == 16


@pytest.mark.parametrize(
    ("pattern", "host", "matches"),
    [
        ("", "1.2.3.4", False),
        ("*", "1.2.3.4", True),
        ("*.*.*.*", "::1", True),
        ("1.2.3.4", "1.2.3.4", True),
        ("1.2.3.4", "1.2.3.5", False),
        ("1.2.3.*", "1.2.3.77", True),
        ("1.2.3.1-10", "1.2.3.10", True),
        ("1.2.3.1-10", "1.2.3.11", False),
        ("1.2.3.{4,5}", "1.2.3.5", True),
        ("1.2.3.{4,5}", "1.2.3.6", False),
        ("9.9.9.9,1.2.3.4", "1.2.3.4", True),
        ("9.9.9.9,1.2.3.{4,5}", "1.2.3.5", True),
        ("1.2.*.*", "1.3.3.4", False),
        ("::1", "::1", True),
        ("::1", "::2", False),
        ("1.2.3", "1.2.3.4", False),
    ],
    ids=lambda value: str(value).replace(" ", "") or "none",
)
def test_patterns_of_addresses(pattern, host, matches):
    assert address_matches(pattern, host) is matches


def test_rights_are_words_and_others_deny(tmp_path):
    path = tmp_path / "plain_acl.yml"
    path.write_text(
        "accounts: [{accessKey: LongKey, secretKey: LongSecret, topicPerms: [A=SUB|PUB, B=ANY, C=SUB],"
        " groupPerms: [G=SUB], defaultTopicPerm: PUB}]",
        "utf-8",
    )
    account = load(path).accounts["LongKey"]
    assert account.rights == {
        "A": Right.PUBLISH | Right.SUBSCRIBE,
        "B": Right.DENY,
        "C": Right.SUBSCRIBE,
        "%RETRY%G": Right.SUBSCRIBE,
    }
    assert (account.default_topic, account.default_group) == (Right.PUBLISH, None)


@pytest.mark.parametrize(
    "text",
    [
        "accounts: [{accessKey: short, secretKey: LongSecret}]",
        "accounts: 5",
        "[",
        "- a",
        "accounts: [{accessKey: LongKey, secretKey: LongSecret, topicPerms: [T]}]",
    ],
    ids=["short", "number", "broken", "list", "no-right"],
)
def test_a_broken_file_is_named(tmp_path, text):
    path = tmp_path / "plain_acl.yml"
    path.write_text(text, "utf-8")
    with pytest.raises(ConfigFileError, match=r"plain_acl\.yml: "):
        load(path)


@pytest.mark.parametrize("code", sorted(ROUTE_CHANGES))
def test_a_name_server_with_accounts_takes_changes_of_routes_from_administrators_only(config, code):
    acl, peer = Acl(config), At()

    def answer(command: Command) -> Command | None:
        return acl.check_routes(command, peer)  # type: ignore[arg-type]

    def request() -> Command:
        return Command(code, fields={"brokerName": "evil", "topic": "Open"})

    assert [one and one.code for one in (answer(request()), answer(signed(request(), "ReaderKey")))] == [16, 16]
    assert answer(signed(request(), "AdminKey")) is None


def test_a_request_about_no_topic_or_group_needs_only_a_valid_signature(config):
    def request() -> Command:
        return Command(R.GET_MAX_OFFSET, fields={"topic": "Secret", "queueId": "0"})

    acl = Acl(config)
    assert check(acl, signed(request(), "ReaderKey")) is None
    refused = check(acl, request())
    assert refused is not None
    assert refused.code == 16


def test_accounts_without_the_package_for_yaml_are_refused_with_advice(tmp_path, monkeypatch):
    (tmp_path / "plain_acl.yml").write_text(ACCOUNTS, "utf-8")
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(UnavailableError, match=re.escape(f"accounts need PyYAML: {with_extra('serve')}")):
        load(tmp_path / "plain_acl.yml")


def test_everybody_may_ask_a_name_server_with_accounts_for_routes(config):
    command = Command(105, fields={"topic": "Open"})
    assert Acl(config).check_routes(command, At()) is None  # type: ignore[arg-type]


def test_the_port_of_the_vip_channel_asks_for_accounts_too(tmp_path):
    (tmp_path / "plain_acl.yml").write_text(ACCOUNTS, "utf-8")
    options = ServeOptions(tmp_path / "store", acl=tmp_path / "plain_acl.yml")

    async def main() -> list[int]:
        async with Server(options) as server:
            codes = []
            for name in ("broker", "vip"):
                connection = await Connection.open(server.addresses[name])
                codes.append((await connection.call(Command(21), 20)).code)
                connection.close()
            return codes

    assert asyncio.run(main()) == [16, 16]


@pytest.mark.parametrize(("name", "code"), [("orders-4.9.7", 1), ("orders-5.5.0", 16)])
def test_a_server_refuses_requests_as_a_broker_of_the_store_s_release(name, code, tmp_path):
    (tmp_path / "plain_acl.yml").write_text(ACCOUNTS, "utf-8")
    options = ServeOptions(copy_store(name, tmp_path), acl=tmp_path / "plain_acl.yml")

    async def main() -> int:
        async with Server(options) as server:
            connection = await Connection.open(server.addresses["broker"])
            answer = await connection.call(Command(21), 20)
            connection.close()
            return answer.code

    assert asyncio.run(main()) == code


@pytest.mark.parametrize("read_only", [False, True])
def test_a_store_whose_broker_checks_accounts_is_not_served_without_them(tmp_path, read_only):
    store = copy_store("orders-4.9.7", tmp_path)
    before = tree_digest(store)
    keys = BrokerConfig({"aclEnable": "true"}, source="test")
    with pytest.raises(UsageError, match=r"aclEnable=true: .* --acl"):
        asyncio.run(Server(ServeOptions(store, config=keys, read_only=read_only)).start())
    assert tree_digest(store) == before


@pytest.mark.parametrize(("name", "accounts", "warnings"), [("orders-4.9.7", True, 0), ("orders-5.5.0", False, 1)])
def test_a_store_is_served_with_accounts_or_if_its_broker_ignores_the_key(tmp_path, caplog, name, accounts, warnings):
    (tmp_path / "plain_acl.yml").write_text(ACCOUNTS, "utf-8")
    keys = BrokerConfig({"aclEnable": "true"}, source="test")
    acl = tmp_path / "plain_acl.yml" if accounts else None

    async def main() -> None:
        async with Server(ServeOptions(copy_store(name, tmp_path), config=keys, acl=acl)):
            pass

    asyncio.run(main())
    assert caplog.text.count("aclEnable=true has no effect") == warnings


def test_a_grpc_client_of_a_server_with_accounts_is_refused_and_the_log_says_how_to_serve_it(tmp_path, caplog):
    (tmp_path / "plain_acl.yml").write_text(ACCOUNTS, "utf-8")

    def produce(address: str) -> Any:
        with GrpcClient(address) as client:
            return client.produce("T")

    async def main() -> Any:
        async with Server(ServeOptions(tmp_path / "store", acl=tmp_path / "plain_acl.yml")) as server:
            return await asyncio.to_thread(produce, server.addresses["broker"])

    answer = asyncio.run(main())
    assert isinstance(answer, grpc.RpcError)
    assert answer.code() is grpc.StatusCode.UNAVAILABLE
    assert "set authenticationEnabled and migrateAuthFromV1Enabled to import them" in caplog.text


@pytest.mark.parametrize("body", [b'{"consumerDataSet":[5]}', b'{"consumerDataSet":[{}]}', b'{"consumerDataSet":7}'])
def test_a_heartbeat_that_cannot_be_read_is_not_let_through(config, body):
    command = signed(Command(34, body=body), "ReaderKey")
    with pytest.raises(RemoteProtocolError, match="heartbeat: "):
        check(Acl(config), command)
