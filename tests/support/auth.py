"""Users, permissions and requests that are checked against them, in the order in which they are sent."""

import json
from collections.abc import Iterator
from typing import Any

from mqtool.protocol import Command, RequestCode, ResponseCode
from mqtool.server.net.acl import ACCESS_KEY, SIGNATURE, sign
from tests.support.acl import heartbeat, pull, send

R = RequestCode

ADMIN, ADMIN_PASSWORD = "rocketmq", "12345678"
INNER, INNER_PASSWORD = "inner", "innerSecret"
PROVIDERS = {
    "authenticationProvider": "org.apache.rocketmq.auth.authentication.provider.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": (
        "org.apache.rocketmq.auth.authentication.provider.LocalAuthenticationMetadataProvider"
    ),
    "authorizationProvider": "org.apache.rocketmq.auth.authorization.provider.DefaultAuthorizationProvider",
    "authorizationMetadataProvider": (
        "org.apache.rocketmq.auth.authorization.provider.LocalAuthorizationMetadataProvider"
    ),
}
KEYS = {
    **PROVIDERS,
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": ADMIN, "password": ADMIN_PASSWORD}),
    "innerClientAuthenticationCredentials": json.dumps({"accessKey": INNER, "secretKey": INNER_PASSWORD}),
    "authenticationWhitelist": "28, 202",
    "authorizationWhitelist": "351 ,28",
}
"""Keys of a broker.conf: request 28 needs nothing, 202 no signature, 351 no permission."""
PASSWORDS = {ADMIN: ADMIN_PASSWORD, INNER: INNER_PASSWORD, "reader": "readerPass", "idle": "idlePass"}


def signed(command: Command, user: str, password: str | None = None) -> Command:
    """A request with a user's signature, or one made with another password."""
    command.fields[ACCESS_KEY] = user
    command.fields[SIGNATURE] = sign(command, password or PASSWORDS[user])
    return command


def create_user(name: str, body: dict[str, Any], *, code: RequestCode = R.AUTH_CREATE_USER) -> Command:
    """A request that creates or changes a user."""
    return Command(code, fields={"username": name}, body=json.dumps(body).encode())


def entry(resource: str, actions: list[str], decision: str = "Allow", ips: list[str] | None = None) -> dict[str, Any]:
    """One entry of a policy."""
    return {"resource": resource, "actions": actions, "decision": decision, "sourceIps": ips}


def put_acl(
    subject: str, *entries: dict[str, Any], kind: str | None = "Custom", code: RequestCode = R.AUTH_CREATE_ACL
) -> Command:
    """A request that creates or changes the permissions of a user."""
    document = {"subject": subject, "policies": [{"policyType": kind, "entries": list(entries)}]}
    return Command(code, fields={"subject": subject}, body=json.dumps(document).encode())


def ask(code: RequestCode, **fields: str) -> Command:
    """A request without a body."""
    return Command(code, fields=fields)


def _users() -> Iterator[tuple[str, Command]]:
    yield "create a user", signed(create_user("reader", {"password": "readerPass"}), ADMIN)
    yield "create an existing user", signed(create_user("reader", {"password": "other"}), ADMIN)
    yield "create a user without a name", signed(create_user("", {"password": "x"}), ADMIN)
    yield "create a user without a password", signed(create_user("nobody", {"password": ""}), ADMIN)
    yield (
        "create a disabled super user",
        signed(create_user("idle", {"password": "idlePass", "userType": "super", "userStatus": "Disable"}), ADMIN),
    )
    yield "get a user", signed(ask(R.AUTH_GET_USER, username="reader"), ADMIN)
    yield "get a missing user", signed(ask(R.AUTH_GET_USER, username="nobody"), ADMIN)
    yield "get no user", signed(ask(R.AUTH_GET_USER, username=""), ADMIN)
    yield "list users", signed(ask(R.AUTH_LIST_USER), ADMIN)
    yield "list some users", signed(ask(R.AUTH_LIST_USER, filter="ea"), ADMIN)
    yield "list no users", signed(ask(R.AUTH_LIST_USER, filter="zz"), ADMIN)
    yield "update a missing user", signed(create_user("nobody", {"password": "x"}, code=R.AUTH_UPDATE_USER), ADMIN)
    yield "update a status", signed(create_user("reader", {"userStatus": "disable"}, code=R.AUTH_UPDATE_USER), ADMIN)
    yield "get the disabled user", signed(ask(R.AUTH_GET_USER, username="reader"), ADMIN)
    yield "a disabled user", signed(send("Open"), "reader")
    yield "update it again", signed(create_user("reader", {"userStatus": "enable"}, code=R.AUTH_UPDATE_USER), ADMIN)
    yield "delete a missing user", signed(ask(R.AUTH_DELETE_USER, username="nobody"), ADMIN)


def _credentials() -> Iterator[tuple[str, Command]]:
    yield "no credentials", send("Open")
    yield "no fields", ask(R.GET_BROKER_CONFIG)
    yield "empty user name", signed(send("Open"), "", "x")
    yield "unknown user", signed(send("Open"), "nobody", "x")
    yield "disabled super user", signed(send("Open"), "idle")
    yield "wrong password", signed(send("Open"), "reader", "wrong")
    changed = signed(send("Open"), "reader")
    changed.fields["e"] = "1"
    yield "changed after signing", changed
    unsigned = send("Open")
    unsigned.fields[ACCESS_KEY] = "reader"
    yield "no signature", unsigned
    yield "inner credentials", signed(send("Open"), INNER)
    yield "whitelisted without credentials", ask(R.GET_BROKER_RUNTIME_INFO)
    yield "not authenticated but authorized", ask(R.GET_TOPIC_STATS_INFO, topic="Open")
    yield "forged super user", signed(ask(R.GET_TOPIC_STATS_INFO, topic="Open"), ADMIN, "wrong")
    yield "authenticated without permission", signed(ask(R.GET_TOPIC_CONFIG, topic="Open"), "reader")


def _permissions() -> Iterator[tuple[str, Command]]:
    user = "User:reader"
    yield "user without policies", signed(send("Open"), "reader")
    yield "get missing permissions", signed(ask(R.AUTH_GET_ACL, subject=user), ADMIN)
    yield "get permissions of nobody", signed(ask(R.AUTH_GET_ACL, subject="User:nobody"), ADMIN)
    yield "list no permissions", signed(ask(R.AUTH_LIST_ACL), ADMIN)
    yield "delete missing permissions", signed(ask(R.AUTH_DELETE_ACL, subject=user), ADMIN)
    yield "permissions of nobody", signed(put_acl("User:nobody", entry("Topic:a", ["Pub"])), ADMIN)
    yield "no policies", signed(Command(R.AUTH_CREATE_ACL, fields={"subject": user}, body=b'{"policies":[]}'), ADMIN)
    for label, one in {
        "illegal resource": entry("Tropic:a", ["Pub"]),
        "no action": entry("Topic:a", []),
        "unknown action": entry("Topic:a", ["Fly"]),
        "action any": entry("Topic:a", ["Any"]),
        "illegal address": entry("Topic:a", ["Pub"], ips=["300.1.1.1"]),
        "empty address": entry("Topic:a", ["Pub"], ips=[" "]),
        "illegal decision": entry("Topic:a", ["Pub"], "Perhaps"),
    }.items():
        yield label, signed(put_acl(user, one), ADMIN)
    yield (
        "create permissions",
        signed(
            put_acl(
                user,
                entry("Topic:Open", ["Pub", "sub"]),
                entry("Topic:Pre*", ["All"], "Deny"),
                entry("Topic:Prefix*", ["Pub"]),
                entry("Topic:PrefixLong", ["Pub"], "Deny"),
                entry("Topic:Near", ["Pub"], ips=["127.0.0.0/8", "10.0.0.1"]),
                entry("Topic:Here", ["Pub"], ips=["127.0.0.1"]),
                entry("Topic:Far", ["Pub"], ips=["10.0.0.0/8"]),
                entry("Group:OpenGroup", ["Sub"]),
            ),
            ADMIN,
        ),
    )
    yield "get permissions", signed(ask(R.AUTH_GET_ACL, subject=user), ADMIN)
    for topic in ("Open", "Pre", "PreX", "PrefixX", "PrefixLong", "PrefixLonger", "Near", "Here", "Far", "Else"):
        yield f"send to {topic}", signed(send(topic), "reader")
    yield "old send", signed(send("Open", v2=False), "reader")
    yield "old send to a retry topic", signed(send("%RETRY%OpenGroup", v2=False), "reader")
    yield "send to a retry topic", signed(send("%RETRY%OpenGroup"), "reader")
    yield "send to a closed retry topic", signed(send("%RETRY%Else"), "reader")
    yield "pull", signed(pull("Open", "OpenGroup"), "reader")
    yield "pull of a retry topic", signed(pull("%RETRY%OpenGroup", "OpenGroup"), "reader")
    yield "pull by a closed group", signed(pull("Open", "Else"), "reader")
    yield "pull of a topic to write", signed(pull("Near", "OpenGroup"), "reader")
    yield "heartbeat", signed(heartbeat("OpenGroup", "Open"), "reader")
    yield "heartbeat of a closed group", signed(heartbeat("Else", "Open"), "reader")
    yield "heartbeat with a closed topic", signed(heartbeat("OpenGroup", "Else"), "reader")
    yield (
        "default policy",
        signed(put_acl(user, entry("*", ["Pub"]), entry("Topic:*", ["Pub"], "Deny"), kind="default"), ADMIN),
    )
    yield "topic of the default policy", signed(send("Else"), "reader")
    yield "custom before default", signed(send("Open"), "reader")
    yield (
        "replace an entry",
        signed(put_acl(user, entry("Topic:Open", ["Sub"], "Deny"), kind=None, code=R.AUTH_UPDATE_ACL), ADMIN),
    )
    yield "replaced entry", signed(pull("Open", "OpenGroup"), "reader")
    yield "all topics", signed(put_acl(user, entry("*", ["Get"]), entry("Topic:*", ["Update"])), ADMIN)
    yield "get all permissions", signed(ask(R.AUTH_GET_ACL, subject=user), ADMIN)
    yield "list permissions", signed(ask(R.AUTH_LIST_ACL), ADMIN)
    yield "list some permissions", signed(ask(R.AUTH_LIST_ACL, subjectFilter="read", resourceFilter="Pre"), ADMIN)
    yield "list other permissions", signed(ask(R.AUTH_LIST_ACL, subjectFilter="zz"), ADMIN)


def _administration() -> Iterator[tuple[str, Command]]:
    user = "User:reader"
    yield "reader gets statistics", signed(ask(R.GET_TOPIC_STATS_INFO, topic="Open"), "reader")
    yield "reader gets offsets", signed(ask(R.GET_MAX_OFFSET, topic="Open", queueId="0"), "reader")
    yield "a field is missing", signed(ask(R.GET_MAX_OFFSET, topic="Open"), "reader")
    yield "a number is not one", signed(ask(R.GET_MAX_OFFSET, topic="Open", queueId="x"), "reader")
    yield "reader lists users", signed(ask(R.AUTH_LIST_USER), "reader")
    yield "reader creates a user", signed(create_user("own", {"password": "x"}), "reader")
    yield "reader deletes a group", signed(ask(R.DELETE_SUBSCRIPTIONGROUP, groupName="OpenGroup"), "reader")
    yield "reader deletes a topic", signed(ask(R.DELETE_TOPIC_IN_BROKER, topic="Else"), "reader")
    yield "reader deletes another topic", signed(ask(R.DELETE_TOPIC_IN_BROKER, topic="PrefixLong"), "reader")
    yield "reader reads the configuration", signed(ask(R.GET_BROKER_CONFIG), "reader")
    yield "reader reads the topics", signed(ask(R.GET_ALL_TOPIC_CONFIG), "reader")
    yield "reader lists producers", signed(ask(R.GET_ALL_PRODUCER_INFO), "reader")
    offsets = {"topic": "Open", "consumerGroup": "OpenGroup", "queueId": "0"}
    yield "reader reads an offset", signed(ask(R.QUERY_CONSUMER_OFFSET, **offsets), "reader")
    yield "reader moves an offset", signed(ask(R.UPDATE_CONSUMER_OFFSET, **offsets, commitOffset="0"), "reader")
    yield "reader's members", signed(ask(R.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="OpenGroup"), "reader")
    yield "members of another", signed(ask(R.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="Else"), "reader")
    yield "reader leaves", signed(ask(R.UNREGISTER_CLIENT, clientID="c", consumerGroup="OpenGroup"), "reader")
    yield "reader leaves another", signed(ask(R.UNREGISTER_CLIENT, clientID="c", consumerGroup="Else"), "reader")
    yield "a producer leaves", signed(ask(R.UNREGISTER_CLIENT, clientID="c", producerGroup="Else"), "reader")
    yield (
        "several topics",
        signed(ask(R.GET_CONSUME_STATS, consumerGroup="OpenGroup", topicList="Open;PreX;Else"), "reader"),
    )
    lock = {
        "consumerGroup": "OpenGroup",
        "clientId": "c",
        "mqSet": [{"brokerName": "b", "queueId": 0, "topic": "Else"}],
    }
    yield "lock a queue", signed(Command(R.LOCK_BATCH_MQ, body=json.dumps(lock).encode()), "reader")
    lock |= {"mqSet": [], "consumerGroup": "Else"}
    yield "lock for a closed group", signed(Command(R.LOCK_BATCH_MQ, body=json.dumps(lock).encode()), "reader")
    yield "allow the cluster", signed(put_acl(user, entry("Cluster:DefaultCluster", ["Get", "Update"])), ADMIN)
    yield "reader lists users now", signed(ask(R.AUTH_LIST_USER, filter="idle"), "reader")
    yield "reader creates a super user", signed(create_user("own", {"password": "x", "userType": "Super"}), "reader")
    yield (
        "reader changes a super user",
        signed(create_user("idle", {"password": "x"}, code=R.AUTH_UPDATE_USER), "reader"),
    )
    yield "reader deletes a super user", signed(ask(R.AUTH_DELETE_USER, username="idle"), "reader")
    yield "reader creates a normal user", signed(create_user("own", {"password": "ownPass"}), "reader")
    yield (
        "reader makes a user super",
        signed(create_user("own", {"userType": "Super"}, code=R.AUTH_UPDATE_USER), "reader"),
    )
    yield "delete an entry", signed(ask(R.AUTH_DELETE_ACL, subject=user, resource="Topic:Far"), ADMIN)
    yield (
        "delete a default entry",
        signed(ask(R.AUTH_DELETE_ACL, subject=user, policyType="Default", resource="*"), ADMIN),
    )
    yield (
        "delete the last default entry",
        signed(ask(R.AUTH_DELETE_ACL, subject=user, policyType="Default", resource="Topic:*"), ADMIN),
    )
    yield "get what is left", signed(ask(R.AUTH_GET_ACL, subject=user), ADMIN)
    yield "permissions of the new user", signed(put_acl("User:own", entry("Topic:a", ["Pub"])), ADMIN)
    yield "delete all permissions", signed(ask(R.AUTH_DELETE_ACL, subject="User:own"), ADMIN)
    yield "permissions again", signed(put_acl("User:own", entry("Topic:a", ["Pub"])), ADMIN)
    yield "delete the user", signed(ask(R.AUTH_DELETE_USER, username="own"), ADMIN)
    yield "list what is left", signed(ask(R.AUTH_LIST_USER), ADMIN)
    yield "list permissions that are left", signed(ask(R.AUTH_LIST_ACL), ADMIN)


def requests() -> Iterator[tuple[str, Command]]:
    """Label and request, in order: answers depend on what was changed before."""
    yield from _users()
    yield from _credentials()
    yield from _permissions()
    yield from _administration()


def is_admin(command: Command) -> bool:
    """Whether a request is about users or permissions."""
    return R.AUTH_CREATE_USER <= command.code <= R.AUTH_LIST_ACL


def seen(command: Command, answer: Command | None) -> dict[str, Any]:
    """What is compared of an answer: all of it if it is about users, else only whether the request was allowed."""
    assert answer is not None
    refused = answer.code == ResponseCode.NO_PERMISSION
    if not refused and not is_admin(command):
        return {"allowed": True}
    found: dict[str, Any] = {"code": int(answer.code), "remark": (answer.remark or "").partition(", org.")[0]}
    if answer.body:
        found["body"] = json.loads(bytes(answer.body))
    return found
