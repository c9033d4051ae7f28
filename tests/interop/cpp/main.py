"""Sends and consumes by the C++ client, through the wheel that brings it: NAMESRV. One JSON object per message.

Topics must be there: Tags with four queues, Ordered with four, Delay and Pull with one. The library does not always end
in order, so the process leaves without it.
"""

import json
import os
import sys
import threading
import time

from rocketmq.client import Message, Producer, PullConsumer, PushConsumer

EXPECTED = {"Tags": 10, "Ordered": 30, "Delay": 1}
got = dict.fromkeys(EXPECTED, 0)
lock = threading.Lock()


def say(**fields: object) -> None:
    with lock:
        os.write(1, json.dumps({**fields, "at": time.time_ns() // 1_000_000}).encode() + b"\n")


def came(topic: str, message: Message) -> None:
    say(
        what="got",
        topic=topic,
        body=message.body.decode(),
        tag=message.tags.decode(),
        keys=message.keys.decode().strip(),
        queue=message.queue_id,
        offset=message.queue_offset,
    )
    if topic in got:
        got[topic] += 1


def make(topic: str, number: int, tag: str) -> Message:
    message = Message(topic)
    message.set_body(f"{topic} {number}")
    message.set_tags(tag)
    message.set_keys(f"k{number}")
    return message


def main(name_server: str) -> None:
    producer = Producer("CppP")
    producer.set_namesrv_addr(name_server)
    producer.set_timeout(20_000)
    producer.start()
    for number in range(20):
        result = producer.send_sync(make("Tags", number, ("even", "odd")[number % 2]))
        say(
            what="sent",
            topic="Tags",
            body=f"Tags {number}",
            tag=("even", "odd")[number % 2],
            keys=f"k{number}",
            offset=result.offset,
        )
    for number in range(30):
        result = producer.send_orderly(make("Ordered", number, "t"), number % 3)
        say(what="sent", topic="Ordered", body=f"Ordered {number}", tag="t", keys=f"k{number}", offset=result.offset)
    for number in range(40):
        producer.send_sync(make("Pull", number, "t"))
    late = make("Delay", 0, "t")
    late.set_delay_time_level(2)
    producer.send_sync(late)
    say(what="sent", topic="Delay", body="Delay 0", tag="t", keys="k0", offset=0)
    consumers = []
    for topic, tags in (("Tags", "even"), ("Ordered", "*"), ("Delay", "*")):
        consumer = PushConsumer("Cpp" + topic, orderly=topic == "Ordered")
        consumer.set_namesrv_addr(name_server)
        consumer.set_instance_name("Cpp" + topic)
        consumer.subscribe(topic, lambda message, topic=topic: came(topic, message), tags)
        consumer.start()
        consumers.append(consumer)
    puller = PullConsumer("CppPull")
    puller.set_namesrv_addr(name_server)
    puller.start()
    for message in puller.pull("Pull"):
        came("Pull", message)
    while any(got[topic] < count for topic, count in EXPECTED.items()):
        time.sleep(0.01)


main(sys.argv[1])
os._exit(0)
