"""What requests need is what the annotations of the real broker's request headers say."""

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from mqtool.formats.auth_records import Action, Resource
from mqtool.protocol import Command, RequestCode
from mqtool.server.auth.guard import _SPECIAL, BY_FIELDS, OF_CLUSTER, STRICTER, Need, needs_of
from mqtool.server.auth.tables import AuthError
from tests.house.modules import ROOT

RECORDED: list[dict[str, Any]] = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "answers" / "auth-annotations-5.5.0.jsonl").read_text("utf-8").splitlines()
]
"""What RequestHeaderRegistry of 5.5.0 contains: request code, and the annotations of its header."""
ANNOTATED = [row for row in RECORDED if row["code"] not in _SPECIAL]
"""The others have rules of their own in DefaultAuthorizationContextBuilder; recorded answers judge those."""
OWN = {RequestCode.LITE_PULL_MESSAGE, RequestCode.POP_LITE_MESSAGE} | STRICTER
"""Requests for which 5.5.0 has no rule."""
CLUSTER = "MyCluster"
OPEN = [
    "BATCH_ACK_MESSAGE",
    "CHECK_CLIENT_CONFIG",
    "CLEAN_EXPIRED_CONSUMEQUEUE",
    "CLEAN_UNUSED_TOPIC",
    "DELETE_EXPIRED_COMMITLOG",
    "GET_ALL_CONSUMER_OFFSET",
    "GET_ALL_DELAY_OFFSET",
    "GET_ALL_MESSAGE_REQUEST_MODE",
    "GET_ALL_SUBSCRIPTIONGROUP_CONFIG",
    "GET_ALL_TOPIC_CONFIG",
    "GET_BROKER_CONFIG",
    "GET_BROKER_HA_STATUS",
    "GET_BROKER_LITE_INFO",
    "GET_BROKER_RUNTIME_INFO",
    "GET_LITE_CLIENT_INFO",
    "GET_LITE_GROUP_INFO",
    "GET_LITE_TOPIC_INFO",
    "GET_PARENT_TOPIC_INFO",
    "GET_SYSTEM_TOPIC_LIST_FROM_BROKER",
    "GET_TIMER_CHECK_POINT",
    "LITE_SUBSCRIPTION_CTL",
    "QUERY_ASSIGNMENT",
    "SEND_REPLY_MESSAGE",
    "SEND_REPLY_MESSAGE_V2",
    "SET_MESSAGE_REQUEST_MODE",
    "TRIGGER_LITE_DISPATCH",
]
"""Requests that `serve` answers and 5.5.0 allows to every user, because their headers name no resource."""


def needs(code: int, **fields: str) -> list[tuple[str, list[str]]]:
    found = needs_of(Command(code, fields={"AccessKey": "a", **fields}), CLUSTER)
    return [(need.resource.key, [action.name for action in need.actions]) for need in found]


def key(kind: str, name: str) -> str:
    return f"{kind.capitalize()}:{name}"


def test_every_request_that_is_answered_needs_something_or_is_open_as_in_the_broker():
    answered = {
        node.attr
        for path in (ROOT / "mqtool" / "server" / "broker").rglob("*.py")
        for marked in ast.walk(ast.parse(path.read_text("utf-8")))
        if getattr(marked, "name", None) == "handlers"
        or (isinstance(marked, ast.Call) and getattr(marked.func, "id", None) == "handles")
        for node in ast.walk(marked)
        if isinstance(node, ast.Attribute) and node.attr in RequestCode.__members__
    }
    assert len(answered) >= 80
    ruled = {code.name for code in (*_SPECIAL, *BY_FIELDS, *STRICTER, *frozenset().union(*OF_CLUSTER.values()))}
    assert sorted(answered - ruled) == sorted(OPEN)


@pytest.mark.parametrize("row", ANNOTATED, ids=[row["header"] for row in ANNOTATED])
def test_a_request_needs_what_its_header_says(row):
    expected = [(key(one["type"], one["name"]), row["actions"]) for one in row["fields"]]
    if row["code"] in STRICTER:
        expected = [(key("CLUSTER", CLUSTER), ["UPDATE"])]
    elif not expected and row["resource"] == "CLUSTER":
        expected = [(key("CLUSTER", CLUSTER), row["actions"])]
    assert needs(row["code"], **{one["name"]: one["name"] for one in row["fields"]}) == expected


@pytest.mark.parametrize("row", ANNOTATED, ids=[row["header"] for row in ANNOTATED])
def test_a_request_that_names_nothing_is_about_the_cluster_or_free(row):
    expected = [(key("CLUSTER", CLUSTER), row["actions"])] if row["resource"] == "CLUSTER" else []
    if row["code"] in STRICTER:
        expected = [(key("CLUSTER", CLUSTER), ["UPDATE"])]
    assert needs(row["code"]) == expected


def test_a_field_that_lists_names_is_split_as_by_the_broker():
    separators = {one["name"]: one["separator"] for row in RECORDED for one in row["fields"] if one["separator"]}
    assert separators == {"topicList": ";", "filterGroups": ","}
    assert needs(RequestCode.GET_CONSUME_STATS, topicList="A;;B") == [("Topic:A", ["GET"]), ("Topic:B", ["GET"])]


def test_no_other_request_has_a_rule():
    ours = {*BY_FIELDS, *_SPECIAL, *STRICTER, *OF_CLUSTER[Action.GET], *OF_CLUSTER[Action.UPDATE]}
    recorded = {row["code"] for row in RECORDED}
    assert ours - recorded == (OWN | {RequestCode.SEND_BATCH_MESSAGE}) - recorded


@pytest.mark.parametrize(
    ("code", "fields", "expected"),
    [
        (RequestCode.RECALL_MESSAGE, {"topic": "T"}, [("Topic:T", ["PUB"])]),
        (RequestCode.END_TRANSACTION, {"producerGroup": "P"}, []),
        (RequestCode.END_TRANSACTION, {"topic": "T"}, [("Topic:T", ["PUB"])]),
        (RequestCode.CONSUMER_SEND_MSG_BACK, {"group": "G"}, [("Group:G", ["SUB"])]),
        (RequestCode.QUERY_MESSAGE, {"topic": "T"}, [("Topic:T", ["SUB", "GET"])]),
    ],
)
def test_a_request_with_a_rule_of_its_own_needs_what_the_broker_asks_for(code, fields, expected):
    """Source: DefaultAuthorizationContextBuilder (5.5.0)."""
    assert needs(code, **fields) == expected


def test_a_retry_topic_is_its_group():
    assert needs(RequestCode.GET_MAX_OFFSET, topic="%RETRY%G") == [("Group:G", ["GET"])]
    assert needs_of(Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields={"topic": "%RETRY%G"}), CLUSTER) == [
        Need(Resource.group("G"), (Action.SUB, Action.GET))
    ]


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"consumerDataSet":[1]}', b'{"consumerDataSet":[{}]}'])
def test_a_heartbeat_that_cannot_be_read_is_refused(body):
    with pytest.raises(AuthError, match="parse authorization context error"):
        needs_of(Command(RequestCode.HEART_BEAT, fields={"AccessKey": "a"}, body=body), CLUSTER)
