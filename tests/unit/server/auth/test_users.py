"""Users of a server: from its configuration and from accounts of 4.x, kept over a restart, read-only, and refused by name."""

import asyncio
import hashlib
import itertools
import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mqtool.errors import FormatError, StoreError, UnavailableError, UsageError
from mqtool.formats.auth_records import (
    Acl,
    Action,
    Decision,
    Policy,
    PolicyEntry,
    PolicyType,
    Resource,
    User,
    UserStatus,
    UserType,
    build_acl,
    build_user,
    parse_acl,
    parse_user,
)
from mqtool.protocol import Command
from mqtool.server.auth.guard import Auth, Need, needs_of
from mqtool.server.auth.tables import (
    AuthError,
    AuthOptions,
    AuthTables,
    matches_address,
    network_of,
    open_tables,
    options_of,
)
from mqtool.server.net.acl import ROUTE_CHANGES
from mqtool.server.net.connections import Connection
from mqtool.server.serve import ServeOptions, Server
from mqtool.store.config.broker_config import BrokerConfig
from mqtool.store.config.rocksdb import Table, rows
from tests.support.acl import ACCOUNTS
from tests.support.auth import ADMIN, KEYS, PROVIDERS, R, ask, create_user, entry, put_acl, seen, signed

pytest.importorskip("rocksdict")

ANSWERS = Path(__file__).parents[1] / "answers"
INNER = "innerClientAuthenticationCredentials"
PUB_A = Need(Resource.topic("Alpha"), (Action.PUB,))


def tables_of(store: Path) -> list[dict[str, str]]:
    """The stored users and permissions."""
    stored = (rows(store / "config" / name) for name in ("users", "acls"))
    return [{key.decode(): value.decode() for key, value in one.items()} for one in stored]


def ask_server(options: ServeOptions, *commands: Command, port: str = "broker") -> list[Command]:
    """Starts a server, asks it, and stops it."""

    async def main() -> list[Command]:
        async with Server(options) as server:
            connection = await Connection.open(server.addresses[port])
            answers = [await connection.call(command, 20) for command in commands]
            connection.close()
            return answers

    return asyncio.run(main())


def config(**keys: str) -> BrokerConfig:
    return BrokerConfig({**KEYS, **keys}, source="test")


def digest(root: Path) -> dict[str, str]:
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        for path in root.rglob("*")
    }


# -- stored bytes ------------------------------------------------------------------------------------------------------


def test_stored_documents_are_built_as_the_real_broker_builds_them():
    for name in ("auth-tables-5.5.0.json", "auth-imported-5.5.0.json"):
        users, acls = json.loads((ANSWERS / name).read_text("utf-8"))
        for value in users.values():
            assert build_user(parse_user(value.encode())).decode() == value
        for key, value in acls.items():
            assert build_acl(parse_acl(key.encode(), value.encode())).decode() == value


NAMED = {"resourceType": "Topic", "resourcePattern": "Literal", "resourceName": "t"}


@pytest.mark.parametrize(
    "policies",
    [
        5,
        [1],
        [{"policyType": "Other"}],
        [{"entries": [1]}],
        [{"entries": [{"decision": "Allow"}]}],
        [{"entries": [{"decision": "Allow", "resource": None}]}],
        [{"entries": [{"decision": "Allow", "resource": {}}]}],
        [{"entries": [{"decision": "Maybe", "resource": NAMED}]}],
        [{"entries": [{"decision": 77, "resource": NAMED}]}],
        [{"entries": [{"resource": NAMED}]}],
    ],
    ids=str,
)
def test_stored_permissions_that_are_none_are_an_error(policies):
    with pytest.raises(FormatError):
        parse_acl(b"User:u", json.dumps({"policies": policies}).encode())
    with pytest.raises(FormatError, match="expected User:NAME"):
        parse_acl(b"Group:u", b"{}")


def test_accounts_of_4_x_become_the_users_that_a_real_broker_makes_of_them(tmp_path):
    pytest.importorskip("yaml")
    accounts = tmp_path / "plain_acl.yml"
    accounts.write_text(ACCOUNTS, "utf-8")
    options = options_of(BrokerConfig({"migrateAuthFromV1Enabled": "true"}), accounts)
    assert options is not None
    for _ in range(2):  # the second time, all of them exist
        open_tables(options, tmp_path / "store", writable=True).close()
    assert tables_of(tmp_path / "store") == json.loads((ANSWERS / "auth-imported-5.5.0.json").read_text("utf-8"))


@pytest.mark.parametrize("name", ["users", "acls"])
def test_a_table_with_something_else_in_it_is_refused(name, tmp_path):
    tables = AuthTables(tmp_path, writable=True)
    tables.create_user(User("a", "b"))
    tables.put_acl("a", [Policy(PolicyType.CUSTOM, (PolicyEntry(Resource.topic("t"), (Action.PUB,), Decision.ALLOW),))])
    table = tables._user_table if name == "users" else tables._acl_table
    assert table is not None
    table.put(b"broken", b"{")
    tables.close()
    with pytest.raises(StoreError, match="cannot be read"):
        AuthTables(tmp_path, writable=False)


def test_a_table_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="file: cannot be opened as a RocksDB"):
        Table(tmp_path / "file")
    table = Table(tmp_path / "users")
    table.put(b"a", b"b")
    table.close()
    for work, words in ((lambda: table.put(b"a", b"c"), "written"), (lambda: table.delete(b"a"), "deleted")):
        with pytest.raises(StoreError, match=f"users: a .* cannot be {words}"):
            work()
    assert rows(tmp_path / "users") == {b"a": b"b"}


def test_a_table_that_another_process_has_open_is_named_and_the_other_one_is_released(tmp_path):
    (tmp_path / "config").mkdir()
    taken = Table(tmp_path / "config" / "acls")
    with pytest.raises(StoreError, match="acls: cannot be opened as a RocksDB"):
        AuthTables(tmp_path, writable=True)
    taken.close()
    AuthTables(tmp_path, writable=True).close()


def test_tables_of_a_store_that_is_only_read_change_in_memory(tmp_path):
    AuthTables(tmp_path, writable=True).close()
    before = digest(tmp_path)
    tables = AuthTables(tmp_path, writable=False)
    tables.create_user(User("u", "p"))
    policies = [
        Policy(PolicyType.CUSTOM, (PolicyEntry(Resource.topic(one), (Action.PUB,), Decision.ALLOW),)) for one in "ab"
    ]
    for policy in policies:
        tables.put_acl("u", [policy])
    tables.delete_acl("u", PolicyType.CUSTOM, Resource.topic("a"))
    assert tables.acl("u") == Acl("u", (policies[1],))
    tables.delete_user("u")
    assert (tables.users, tables.acls) == ({}, {})
    tables.close()
    assert digest(tmp_path) == before


def test_a_table_that_is_no_database_is_refused(tmp_path):
    (tmp_path / "config" / "users").mkdir(parents=True)
    (tmp_path / "config" / "users" / "CURRENT").write_text("MANIFEST-000001\n")
    with pytest.raises(StoreError, match="cannot be opened as a RocksDB"):
        AuthTables(tmp_path, writable=True)


# -- a server ----------------------------------------------------------------------------------------------------------


def test_users_are_kept_over_a_restart_and_not_created_again(tmp_path):
    options = ServeOptions(tmp_path, config=config())
    changed = signed(create_user(ADMIN, {"password": "changed"}, code=R.AUTH_UPDATE_USER), ADMIN)
    assert ask_server(options, changed)[0].code == 0
    old, new = ask_server(
        options, signed(ask(R.AUTH_LIST_USER), ADMIN), signed(ask(R.AUTH_LIST_USER), ADMIN, "changed")
    )
    assert (old.code, old.remark) == (16, "check signature failed.")
    assert [one["username"] for one in json.loads(bytes(new.body))] == ["inner", ADMIN]


def test_a_read_only_server_checks_users_and_changes_no_byte(tmp_path):
    ask_server(ServeOptions(tmp_path, config=config()), signed(create_user("reader", {"password": "p"}), ADMIN))
    before = digest(tmp_path)
    options = ServeOptions(tmp_path, config=config(), read_only=True)
    listed, created, unsigned = ask_server(
        options,
        signed(ask(R.AUTH_LIST_USER), ADMIN),
        signed(create_user("x", {"password": "p"}), ADMIN),
        ask(R.AUTH_LIST_USER),
    )
    assert len(json.loads(bytes(listed.body))) == 3
    assert (created.code, created.remark) == (16, "the store is served read-only")
    assert unsigned.code == 16
    assert digest(tmp_path) == before


def test_a_server_without_users_refuses_to_list_them_and_says_how(tmp_path):
    (answer,) = ask_server(ServeOptions(tmp_path), ask(R.AUTH_LIST_USER))
    assert answer.code == 1
    assert "authenticationEnabled=true" in (answer.remark or "")
    assert not (tmp_path / "config" / "users").exists()


def test_without_authentication_everyone_may_create_superusers(tmp_path):
    keys = config(authenticationEnabled="false", authorizationEnabled="true", authorizationWhitelist="3001,3005,3010")
    created = create_user("root", {"password": "p", "userType": "super"})
    answers = ask_server(ServeOptions(tmp_path, config=keys), created, ask(R.AUTH_LIST_USER, filter="root"))
    assert [one.code for one in answers] == [0, 0]
    assert json.loads(bytes(answers[1].body))[0]["userType"] == "Super"


def test_permissions_are_listed_for_the_resources_that_match(tmp_path):
    options = ServeOptions(tmp_path, config=config())
    commands = [
        create_user("u", {"password": "p"}),
        create_user("v", {"password": "p"}),
        put_acl("User:u", entry("Topic:Orders", ["Pub"])),
        put_acl("User:v", entry("Topic:Bills", ["Pub"])),
        ask(R.AUTH_LIST_ACL, resourceFilter="Orders"),
        ask(R.AUTH_LIST_ACL, resourceFilter="Nothing"),
    ]
    answers = ask_server(options, *(signed(command, ADMIN) for command in commands))
    assert [one["subject"] for one in json.loads(bytes(answers[4].body))] == ["User:u"]
    assert (answers[5].code, bytes(answers[5].body)) == (0, b"")


@pytest.mark.slow
def test_a_stored_user_without_type_and_status_is_shown_without_them(tmp_path):
    ask_server(ServeOptions(tmp_path, config=config()))
    table = Table(tmp_path / "config" / "users")
    table.put(b"old", b'{"username":"old","password":"p"}')
    table.close()
    (answer,) = ask_server(ServeOptions(tmp_path, config=config()), signed(ask(R.AUTH_GET_USER, username="old"), ADMIN))
    assert json.loads(bytes(answer.body)) == {"username": "old", "password": "p"}


def permissions_of(subject: str | None, policies: Any) -> Command:
    """A request that creates permissions, whatever they are."""
    document = {"subject": subject, "policies": policies}
    return Command(R.AUTH_CREATE_ACL, fields={"any": "thing"}, body=json.dumps(document).encode())


def test_permissions_that_belong_to_no_user_or_allow_nothing_are_refused(tmp_path):
    commands = [
        permissions_of("Group:g", [{"entries": [entry("Topic:t", ["Pub"])]}]),
        permissions_of(None, [{"entries": [entry("Topic:t", ["Pub"])]}]),
        permissions_of("User:u", ["all"]),
        permissions_of("User:u", [{"policyType": "Custom", "entries": []}]),
        ask(R.AUTH_DELETE_ACL, subject="Group:g"),
        ask(R.AUTH_GET_ACL, subject="Group:g"),
    ]
    options = ServeOptions(tmp_path, port=0, name_server_port=0, config=config())
    answers = ask_server(options, *(signed(command, ADMIN) for command in commands))
    failed = answers[0].remark
    assert [(one.code, one.remark) for one in answers] == [
        (1, failed),
        (1, failed),
        (1, failed),
        (16, "The policies is empty."),
        (16, "The subject is null."),
        (1, failed),
    ]


def test_a_blank_name_is_no_user(tmp_path):
    tables = AuthTables(tmp_path, writable=False)
    for work in (lambda: tables.user(" "), lambda: tables.create_user(User(" ", "p"))):
        with pytest.raises(AuthError, match="username can not be blank"):
            work()
    with pytest.raises(AuthError, match="The user is not exist"):
        tables.update_user(User("nobody", "p"))
    tables.close()


def test_a_start_that_fails_leaves_the_tables_free_for_the_next_one(tmp_path, caplog):
    pytest.importorskip("yaml")
    accounts = tmp_path / "plain_acl.yml"
    accounts.write_text("accounts: 5", "utf-8")
    keys = {"migrateAuthFromV1Enabled": "true", "authenticationEnabled": "true"}
    options = options_of(BrokerConfig({**PROVIDERS, **keys}), accounts)
    assert options is not None
    with pytest.raises(StoreError):
        open_tables(options, tmp_path / "store", writable=True)
    accounts.write_text("globalWhiteRemoteAddresses: [10.0.0.*]\naccounts: []\n", "utf-8")
    open_tables(options, tmp_path / "store", writable=True).close()
    said = [record.getMessage() for record in caplog.records]
    assert any("globalWhiteRemoteAddresses are not imported" in line for line in said)
    assert any("there is no superuser" in line for line in said)


def test_changes_of_routes_need_permission_and_questions_do_not(tmp_path):
    options = ServeOptions(tmp_path, config=config())
    wipe, register = (
        ask(R.WIPE_WRITE_PERM_OF_BROKER, brokerName="b"),
        ask(R.PUT_KV_CONFIG, namespace="n", key="k", value="v"),
    )
    free = (ask(R.GET_BROKER_CLUSTER_INFO), ask(R.GET_ROUTEINFO_BY_TOPIC, topic="SELF_TEST_TOPIC"))
    asked = (wipe, register, *free, signed(ask(R.PUT_KV_CONFIG, namespace="n", key="k", value="v"), ADMIN))
    assert [answer.code == 16 for answer in ask_server(options, *asked, port="namesrv")] == [
        True,
        True,
        False,
        False,
        False,
    ]
    user = signed(create_user("reader", {"password": "readerPass"}), ADMIN)
    ask_server(options, user)
    (answer,) = ask_server(
        options, signed(ask(R.PUT_KV_CONFIG, namespace="n", key="k", value="v"), "reader"), port="namesrv"
    )
    assert seen(wipe, answer)["remark"].startswith("User:reader has no permission to access Cluster:DefaultCluster")


@pytest.mark.parametrize("code", sorted(ROUTE_CHANGES))
def test_every_change_of_routes_is_about_the_cluster(code):
    (need,) = needs_of(Command(code, fields={"AccessKey": "a"}), "C")
    assert (need.resource.key, need.actions) == ("Cluster:C", (Action.UPDATE,))


@pytest.mark.parametrize(
    ("code", "body"),
    [
        (R.UPDATE_BROKER_CONFIG, b"brokerPermission=4\n"),
        (R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, b'{"groupName":"g"}'),
        (R.UPDATE_AND_CREATE_TOPIC_LIST, b"{}"),
    ],
)
def test_a_change_that_names_no_resource_needs_the_cluster(tmp_path, code, body):
    create = signed(create_user("reader", {"password": "readerPass"}), ADMIN)
    change = signed(Command(code, body=body), "reader")
    answer = ask_server(ServeOptions(tmp_path, config=config()), create, change)[1]
    assert seen(change, answer)["remark"].endswith("no matched policies.")


def test_a_lite_pull_needs_what_a_pull_needs(tmp_path):
    create = signed(create_user("reader", {"password": "readerPass"}), ADMIN)
    permit = signed(put_acl("User:reader", entry("Group:G", ["Sub"])), ADMIN)
    pull = signed(ask(R.LITE_PULL_MESSAGE, topic="Closed", consumerGroup="G", queueId="0"), "reader")
    answer = ask_server(ServeOptions(tmp_path, config=config()), create, permit, pull)[2]
    assert "Topic:Closed" in seen(pull, answer)["remark"]


def test_a_broker_signs_its_registration_with_another_name_server(tmp_path):
    async def clusters(inner: str) -> bytes:
        async with Server(ServeOptions(tmp_path / "a", config=config(brokerName="first"))) as first:
            keys = {
                "namesrvAddr": first.addresses["namesrv"],
                "brokerName": "second",
                **({INNER: inner} if inner else {}),
            }
            second = ServeOptions(tmp_path / "b", config=BrokerConfig(keys), name_server_port=None)
            async with Server(second) as server:
                server._registration.trigger()
                await server._registration.wait_done()
                connection = await Connection.open(first.addresses["namesrv"])
                answer = await connection.call(ask(R.GET_BROKER_CLUSTER_INFO), 20)
                connection.close()
                return bytes(answer.body)

    assert b"second" not in asyncio.run(clusters(""))
    assert b"second" not in asyncio.run(clusters(KEYS[INNER].replace("innerSecret", "wrong")))
    assert b"second" in asyncio.run(clusters(KEYS[INNER]))


# -- configuration -----------------------------------------------------------------------------------------------------


def test_nothing_is_checked_by_default():
    assert options_of(BrokerConfig({"authenticationWhitelist": "1", "authenticationEnabled": "false"})) is None


def test_the_keys_become_options():
    found = options_of(config(brokerClusterName="Mine"))
    assert found is not None
    assert (found.authentication, found.authorization, found.cluster) == (True, True, "Mine")
    assert [(one.username, one.user_type) for one in found.first_users] == [
        (ADMIN, UserType.SUPER),
        ("inner", UserType.SUPER),
    ]
    assert (found.unsigned, found.unlimited) == ({"28", "202"}, {"351", "28"})


@pytest.mark.parametrize(
    "key", [key for key in KEYS if key.endswith(("Provider", "Strategy"))] + ["authorizationStrategy"]
)
def test_a_class_that_is_not_supported_is_refused_by_name(key, tmp_path):
    with pytest.raises(UsageError, match=rf"{key}: expected .* found 'com\.example\.Mine'"):
        Server(ServeOptions(tmp_path, config=config(**{key: "com.example.Mine"})))


def test_accounts_of_4_x_beside_users_are_refused_unless_they_are_imported(tmp_path):
    with pytest.raises(UsageError, match="migrateAuthFromV1Enabled=true"):
        Server(ServeOptions(tmp_path, config=config(), acl=tmp_path / "plain_acl.yml"))
    with pytest.raises(UsageError, match=r"name the plain_acl\.yml with --acl"):
        Server(ServeOptions(tmp_path, config=config(migrateAuthFromV1Enabled="true")))


def test_without_the_library_the_start_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    with pytest.raises(UnavailableError, match="rocksdict: "):
        ask_server(ServeOptions(tmp_path, config=config()))


# -- decisions ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def auth(tmp_path: Path) -> Iterator[Auth]:
    tables = AuthTables(tmp_path, writable=False)
    tables.users["u"] = User("u", "p", UserType.NORMAL)
    yield Auth(AuthOptions(authentication=True, authorization=True, cluster="C"), tables)
    tables.close()


def test_a_user_who_is_unknown_or_disabled_may_do_nothing_even_where_no_signature_is_asked_for(auth):
    auth.tables.users["off"] = User("off", "p", UserType.SUPER, UserStatus.DISABLE)
    for name, words in (("nobody", "User:nobody not found."), ("off", "User:off is disabled.")):
        with pytest.raises(AuthError, match=words):
            auth.authorize(name, [PUB_A], "127.0.0.1", "310")
        auth.authorize(name, [], "127.0.0.1", "310")


def one(key: str, decision: Decision, *ips: str, action: Action = Action.PUB) -> PolicyEntry:
    resource = Resource.parse(key)
    assert resource is not None
    return PolicyEntry(resource, (action,), decision, ips)


DENY, ALLOW = Decision.DENY, Decision.ALLOW
RANKED = ("Topic:Alpha", "Topic:Alph*", "Topic:A*", "Topic:*", "*")
"""Resources that cover Alpha, the one that counts first."""


@pytest.mark.parametrize("first", range(len(RANKED) - 1))
def test_the_more_exact_entry_counts_in_whatever_order_they_are(auth, first):
    for decision, other in ((ALLOW, DENY), (DENY, ALLOW)):
        entries = [one(RANKED[first], decision), *(one(key, other) for key in RANKED[first + 1 :])]
        for order in itertools.permutations(entries):
            auth.tables.acls["u"] = Acl("u", (Policy(PolicyType.CUSTOM, order),))
            if decision is ALLOW:
                auth.authorize("u", [PUB_A], "1.2.3.4", "10")
            else:
                with pytest.raises(AuthError, match="the decision is deny"):
                    auth.authorize("u", [PUB_A], "1.2.3.4", "10")


@pytest.mark.parametrize("key", RANKED)
def test_a_denial_beats_a_permission_of_the_same_rank(auth, key):
    for order in itertools.permutations([one(key, ALLOW), one(key, DENY)]):
        auth.tables.acls["u"] = Acl("u", (Policy(PolicyType.CUSTOM, order),))
        with pytest.raises(AuthError, match="the decision is deny"):
            auth.authorize("u", [PUB_A], "1.2.3.4", "10")


@pytest.mark.parametrize(
    "entries",
    [
        [one("Topic:Alpha", ALLOW, action=Action.SUB)],
        [one("Topic:Alpha2", ALLOW)],
        [one("Group:Alpha", ALLOW)],
        [one("Group:*", ALLOW)],
        [one("Topic:alpha", ALLOW)],
        [one("Topic:Alpha", ALLOW, "10.0.0.0/8")],
        [],
    ],
)
def test_an_entry_about_something_else_does_not_count(auth, entries):
    auth.tables.acls["u"] = Acl("u", (Policy(PolicyType.CUSTOM, tuple(entries)),))
    with pytest.raises(AuthError, match="no matched policies"):
        auth.authorize("u", [PUB_A], "1.2.3.4", "10")


@pytest.mark.parametrize(
    ("ips", "host", "counts"),
    [
        ((), "9.9.9.9", True),
        (("10.0.0.1",), "10.0.0.1", True),
        (("10.0.0.1",), "10.0.0.10", False),
        (("10.1.2.3/8",), "10.255.0.1", True),
        (("10.0.0.0/8",), "11.0.0.1", False),
        (("1.1.1.1", "::1"), "::1", True),
        (("2001:db8::/32",), "2001:db8:1::5", True),
        (("2001:db8::/32",), "2001:db9::5", False),
        (("127.0.0.0/8",), "::ffff:127.0.0.1", True),
        (("0.0.0.0/0",), "::1", False),
        (("10.0.0.1",), "", False),
    ],
)
def test_an_entry_counts_for_its_addresses(ips, host, counts):
    assert matches_address(one("*", ALLOW, *ips), host) is counts


@pytest.mark.parametrize("text", ["300.1.1.1", "10.0.0.0/33", "10.0.0.*", "localhost", "10.0.0.1/8/8", "", "/8"])
def test_what_is_no_address_is_not_taken_for_one(text):
    assert network_of(text) is None


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        ("*", "*"),
        ("topic:a", "Topic:a"),
        ("TOPIC:*", "Topic:*"),
        ("Group:a*", "Group:a*"),
        ("Topic:a*b", "Topic:a*b"),
        ("Topic:a*b*", "Topic:a*"),
        ("Cluster:c", "Cluster:c"),
        ("Tropic:a", None),
        ("", None),
        (None, None),
        (7, None),
    ],
)
def test_a_resource_is_read_from_its_key(key: Any, shown):
    found = Resource.parse(key)
    assert (found.key if found is not None else None) == shown


def test_others_are_served_while_a_change_waits_for_the_disk(tmp_path, monkeypatch):
    waiting, put, order = threading.Event(), Table.put, []

    def slow(table, key, value):
        if key == b"slow":
            order.append(("disk", waiting.wait(20)))
        put(table, key, value)

    monkeypatch.setattr(Table, "put", slow)

    async def main() -> None:
        async with Server(ServeOptions(tmp_path / "store", config=config())) as server:
            changing = await Connection.open(server.addresses["broker"])
            other = await Connection.open(server.addresses["broker"])
            create = signed(create_user("slow", {"password": "x"}), ADMIN)
            change = asyncio.ensure_future(changing.call(create, 20))
            found = await other.call(signed(ask(R.AUTH_GET_USER, username=ADMIN), ADMIN), 5)
            missing = await other.call(signed(ask(R.AUTH_LIST_USER), ADMIN), 5)
            assert (found.code, b"slow" in missing.body, change.done()) == (0, False, False)
            order.append(("answered", True))
            waiting.set()
            assert (await change).code == 0
            changing.close()
            other.close()

    asyncio.run(main())
    assert order == [("answered", True), ("disk", True)]
    assert b"slow" in rows(tmp_path / "store" / "config" / "users")
