"""The broker's answers in the terms of mqtool's rows."""

import base64
import ipaddress
import json
from typing import Any

from jsonschema import Draft202012Validator

from mqtool.cli.reference import schemas
from tests.support.stores import answers


def host(text: str) -> str:
    """`address|port` of an answer as `address:port` of a row."""
    address, port = text.split("|")
    parsed = ipaddress.ip_address(address)
    return f"[{parsed}]:{port}" if parsed.version == 6 else f"{parsed}:{port}"


def encoded(body: bytes) -> tuple[str, str]:
    """A body as `--body text` prints it."""
    try:
        return body.decode(), "text"
    except UnicodeDecodeError:
        return base64.b64encode(body).decode(), "base64"


def body_of(answer: dict[str, Any], *, raw: bool = False) -> bytes:
    """A body as the producer gave it, or as stored."""
    decoded = answer["decodedBody"]
    return base64.b64decode((answer["body"] or "") if raw or decoded is None else decoded)


def row_of(answer: dict[str, Any]) -> dict[str, Any]:
    """A line of messages.jsonl as a row of `dump --format jsonl`."""
    body, encoding = encoded(body_of(answer))
    return {
        "physical_offset": answer["physicalOffset"],
        "store_size": answer["storeSize"],
        "topic": answer["topic"],
        "queue_id": answer["queueId"],
        "queue_offset": answer["queueOffset"],
        "flag": answer["flag"],
        "sys_flag": answer["sysFlag"],
        "born_timestamp": answer["bornTimestamp"],
        "store_timestamp": answer["storeTimestamp"],
        "born_host": host(answer["bornHost"]),
        "store_host": host(answer["storeHost"]),
        "reconsume_times": answer["reconsumeTimes"],
        "prepared_transaction_offset": answer["preparedTransactionOffset"],
        "properties": answer["properties"],
        "body_crc": answer["bodyCRC"],
        "body": body,
        "body_encoding": encoding,
        "offset_message_id": answer["offsetMsgId"],
    }


def rows(name: str) -> list[dict[str, Any]]:
    """All messages of a store as rows."""
    return [row_of(answer) for answer in answers(name, "messages")]


def problems(command: str, document: Any) -> list[str]:
    """What the schema of a command finds wrong with a document; no field may be undocumented."""
    schema = json.loads(schemas()[command])
    return [error.message for error in Draft202012Validator(_closed(schema)).iter_errors(document)]


def _closed(schema: Any) -> Any:
    """The schema without room for fields that it does not name."""
    if isinstance(schema, dict):
        closed = {"additionalProperties": False} if "properties" in schema else {}
        return {**closed, **{key: _closed(value) for key, value in schema.items()}}
    return [_closed(item) for item in schema] if isinstance(schema, list) else schema
