"""Sends and receives by the official gRPC client for Python: ENDPOINTS [USER PASSWORD]. One JSON object per message.

Topics must be there: Normal with two queues, Fifo with two, Delay; the group Ordered consumes in order.
"""

import json
import os
import sys
import time

from rocketmq import ClientConfiguration, Credentials, FilterExpression, Message, Producer, SimpleConsumer

CONFIGURATION = ClientConfiguration(sys.argv[1], Credentials(*sys.argv[2:4]), request_timeout=15)


def say(**fields):
    print(json.dumps(fields), flush=True)


def send(topic, count, **more):
    producer = Producer(CONFIGURATION, (topic,))
    producer.startup()
    for number in range(count):
        message = Message()
        message.topic, message.body = topic, f"{topic} {number}".encode()
        message.tag, message.keys = "t", f"k{number}"
        message.add_property("p", "ü")
        for name, value in more.items():
            setattr(message, name, value)
        say(what="sent", topic=topic, body=f"{topic} {number}", id=producer.send(message).message_id)


def receive(topic, group, count):
    consumer = SimpleConsumer(CONFIGURATION, group, {topic: FilterExpression()}, await_duration=10)
    consumer.startup()
    time.sleep(1)  # the client does not wait for the answer to its settings
    got = 0
    while got < count:
        for one in consumer.receive(16, 30):
            consumer.ack(one)
            say(
                what="got",
                topic=topic,
                body=one.body.decode(),
                id=one.message_id,
                tag=one.tag,
                keys=sorted(one.keys),
                p=one.properties["p"],
            )
            got += 1


send("Normal", 10)
send("Fifo", 10, message_group="g")
send("Delay", 1, delivery_timestamp=int(time.time()) + 2)
receive("Normal", "Any", 10)
receive("Fifo", "Ordered", 10)
receive("Delay", "Any2", 1)
os._exit(0)  # its threads would go on
