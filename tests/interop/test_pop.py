"""POP by the real 5.5.0 client: what it leaves unacknowledged comes again, whoever is killed and whoever goes on."""

import subprocess
import threading

import pytest

import mqtool
from mqtool.errors import MqtoolError
from mqtool.formats import config_files
from mqtool.formats.service_records import ACK_TAG, BATCH_ACK_TAG, revive_record
from mqtool.store import Message
from tests.support.remoting import Client
from tests.support.served import KEYS, until
from tests.support.tiers import night

pytestmark = pytest.mark.interop

TOPIC, GROUP, COUNT = "Popped", "GPopped", 40


class Consumer:
    """The real client in a JVM of its own; `said` has the words of each line that it printed."""

    def __init__(self, release, name_server, address, home, count):
        home.mkdir()
        command = release._java("Pop", name_server, address, TOPIC, GROUP, str(count), home=home)
        self.log = (home / "errors").open("wb")
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.log, text=True
        )
        self.said: list[tuple[str, ...]] = []
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.said.append(tuple(line.split()))

    def bodies(self, word):
        return [words[1] for words in list(self.said) if words[:1] == (word,)]

    def kill(self):
        self.process.kill()
        self.process.wait(60)
        self.process.stdout.close()
        self.log.close()


@pytest.fixture
def consume(rocketmq, tmp_path):
    started = []

    def start(broker, count=0):
        started.append(
            Consumer(rocketmq("5.5.0"), broker.name_server, broker.address, tmp_path / f"jvm{len(started)}", count)
        )
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.kill()


def offsets(address):
    """The group's offsets in the topic, by queue."""
    with Client(address) as client:
        return [
            int(
                client.call(14, consumerGroup=GROUP, topic=TOPIC, queueId=queue, setZeroIfNotFound=False).fields[
                    "offset"
                ]
            )
            for queue in range(4)
        ]


def persisted(path):
    """The same, from the file."""
    if not path.exists():
        return []
    try:
        found = config_files.parse_consumer_offsets(path.read_bytes()).offset_table.get(f"{TOPIC}@{GROUP}", {})
    except MqtoolError:  # it is being written
        return []
    return [found.get(queue) for queue in range(4)]


def acknowledged(store):
    """How many messages the acknowledgements in a store name, whether delivered or in the timer; one can name several."""
    found = set()
    with mqtool.open(store) as opened:
        for message in opened.messages():
            if isinstance(message, Message) and message.tags in (ACK_TAG, BATCH_ACK_TAG):
                ack = revive_record(message.tags, message.body)
                found |= {(ack._replace(offsets=()), offset) for offset in ack.offsets}
    return len(found)


@pytest.mark.parametrize("turns", [night("ours to ours"), "ours to real", night("real to ours")])
def test_what_was_popped_and_not_acknowledged_comes_again_after_kill_9(rocketmq, serve, consume, tmp_path, turns):
    first, second = turns.split(" to ")
    directory = tmp_path / "broker"
    (directory / "store").mkdir(parents=True)

    def start(who):
        return serve(directory / "store") if who == "ours" else rocketmq("5.5.0").start_broker(directory, **KEYS)

    broker = start(first)
    with Client(broker.address) as client:
        assert client.create_topic(TOPIC, 4).code == 0
    sender = consume(broker, COUNT)
    odd = sorted(f"body{number}" for number in range(1, COUNT, 2))
    even = sorted(f"body{number}" for number in range(0, COUNT, 2))
    until(lambda: sorted(sender.bodies("got")) == sorted(odd + even) and sorted(sender.bodies("done")) == even)
    until(lambda: sum(offsets(broker.address)) == COUNT)
    until(lambda: acknowledged(directory / "store") >= len(even))
    until(lambda: persisted(directory / "store/config/consumerOffset.json") == offsets(broker.address))
    sender.kill()
    broker.stop(kill=True)
    broker = start(second)
    follower = consume(broker)
    until(lambda: set(odd) <= set(follower.bodies("done")))
    assert sorted(follower.bodies("done")) == odd
    assert {words[2] for words in follower.said if words[0] == "done"} == {"1"}
