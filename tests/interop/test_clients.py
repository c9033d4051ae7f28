"""Real clients in Go, JavaScript and C++ at `mqtool serve`: what they sent is what they get, in its order, at its time."""

import contextlib
import json
import os
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqtool.server.testing import MqServer
from tests.support.clients import CLIENTS
from tests.support.remoting import Client
from tests.support.rocketmq import Unavailable
from tests.support.served import KEYS, Served

pytestmark = pytest.mark.interop

QUEUES = {"Tags": 4, "Ordered": 4, "Batch": 1, "Delay": 1, "Pull": 1}
FACTS = ("body", "tag", "keys", "queue", "offset")
DELAY_MS = 5_000  # level 2


EACH = [
    pytest.param(
        (name, fast),
        marks=[pytest.mark.xdist_group(f"client {name}"), *([] if fast or name == "go" else [pytest.mark.night])],
        id=name if fast else f"{name}-ordinary",
    )
    for name in CLIENTS
    for fast in (True, False)
]
"""A client, and whether sends may take the fast path, or all go the ordinary way: each client of one language does both."""


@contextlib.contextmanager
def serving(directory: Path, *, fast_sends: bool) -> Iterator[tuple[str, str]]:
    """Addresses of broker and name server; the ordinary way is no option of the command."""
    if fast_sends:
        served = Served(directory / "store", directory)
        try:
            yield served.address, served.name_server
        finally:
            served.stop(kill=True)
    else:
        keys = {name: str(value) for name, value in KEYS.items()}
        with MqServer(directory / "store", fast_sends=False, **keys) as server:
            yield server.broker_address, server.namesrv


@pytest.fixture(params=EACH, scope="module")
def heard(request, tmp_path_factory):
    """What a client says that it sent and got: events by "sent" or "got" and topic. Each client has a server of its own."""
    name, fast_sends = request.param
    try:
        command = CLIENTS[name]()
    except Unavailable as reason:
        if os.environ.get("MQTOOL_REQUIRE_INTEROP"):
            raise
        pytest.skip(str(reason))
    directory = tmp_path_factory.mktemp("served")
    with serving(directory, fast_sends=fast_sends) as (address, name_server):
        with Client(address) as client:
            for topic, number in QUEUES.items():
                queues = 1 if (name, topic) == ("javascript", "Ordered") else number
                assert client.create_topic(topic, queues).code == 0
        result = subprocess.run(
            [*command, name_server],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env=os.environ | {"HOME": str(directory)},
        )
    assert result.returncode == 0, result.stderr[-3000:] + result.stdout[-1000:]
    events: dict[tuple[str, str], list[dict]] = defaultdict(list)
    for line in result.stdout.splitlines():
        if line.startswith("{"):
            one = json.loads(line)
            events[one["what"], one["topic"]].append(one)
    return events


def facts(events, names=FACTS):
    return [tuple(one.get(name) for name in names) for one in events]


def test_a_consumer_gets_the_tags_that_it_wants(heard):
    names = [name for name in FACTS if name in heard["sent", "Tags"][0]]  # the C++ client is not told the queue
    wanted = [one for one in facts(heard["sent", "Tags"], names) if one[1] == "even"]
    assert len(wanted) == 10
    assert sorted(facts(heard["got", "Tags"], names)) == sorted(wanted)


def test_an_orderly_consumer_gets_each_queue_in_its_order(heard):
    queues = defaultdict(list)
    for one in heard["got", "Ordered"]:
        queues[one["queue"]].append(one)
    for events in queues.values():
        assert [one["offset"] for one in events] == list(range(len(events)))
        numbers = [int(one["body"].split()[1]) for one in events]
        assert numbers == sorted(numbers)
    assert sorted(one["body"] for one in heard["got", "Ordered"]) == sorted(f"Ordered {number}" for number in range(30))


def test_a_delayed_message_comes_at_its_time(heard):
    (sent,), (got,) = heard["sent", "Delay"], heard["got", "Delay"]
    assert (got["body"], got["tag"], got["keys"]) == ("Delay 0", "t", "k0")
    assert got["at"] - sent["at"] >= DELAY_MS - 100  # clocks of two calls


@pytest.mark.parametrize("heard", EACH[:2], indirect=True)  # the others have none, or send it as one message
def test_a_batch_lies_in_one_queue_in_its_order(heard):
    assert sorted(facts(heard["got", "Batch"])) == sorted(facts(heard["sent", "Batch"]))
    assert [one["offset"] for one in heard["sent", "Batch"]] == list(range(10))
    assert [one["body"] for one in sorted(heard["got", "Batch"], key=lambda one: one["offset"])] == [
        f"Batch {number}" for number in range(10)
    ]


@pytest.mark.parametrize("heard", EACH[:2] + EACH[4:], indirect=True)
def test_pulls_give_everything_in_its_order(heard):
    assert facts(heard["got", "Pull"], ("body", "keys", "offset")) == [
        (f"Pull {number}", f"k{number}", number) for number in range(40)
    ]
