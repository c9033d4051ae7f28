"""Uses features of the official gRPC client for Python: ENDPOINTS USER PASSWORD FEATURE...; a user of "-" is none.

Prints one JSON object per feature, with what was seen or the error. `tests/interop/test_grpc_clients.py` says which
topics and groups there must be, and what is to be seen.
"""

import json
import os
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from threading import Lock

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)
from rocketmq.grpc_protocol import FilterType

ENDPOINTS, USER, PASSWORD = sys.argv[1:4]
CREDENTIALS = Credentials() if USER == "-" else Credentials(USER, PASSWORD)
CONFIGURATION = ClientConfiguration(ENDPOINTS, CREDENTIALS, request_timeout=15)


def message(topic, body, **fields):
    made = Message()
    made.topic, made.body = topic, body.encode()
    for name, value in fields.items():
        if name == "properties":
            for key, text in value.items():
                made.add_property(key, text)
        else:
            setattr(made, name, value)
    return made


def producer(topic, checker=None):
    made = Producer(CONFIGURATION, (topic,), checker=checker)
    made.startup()
    return made


def simple(topic, group, expression=None):
    made = SimpleConsumer(CONFIGURATION, group, {topic: expression or FilterExpression()}, await_duration=5)
    made.startup()
    time.sleep(1)  # the client does not wait for the answer to its settings
    return made


def take(consumer, count, seconds=30):
    """Acknowledges messages until there are so many, or the time is over."""
    found, end = [], time.monotonic() + seconds
    while len(found) < count and time.monotonic() < end:
        for one in consumer.receive(16, 30):
            consumer.ack(one)
            found.append(one)
    return found


def bodies(messages):
    return [one.body.decode() for one in messages]


class Inbox(MessageListener):
    """Messages of a push consumer; the first delivery of each body in `failing` fails."""

    def __init__(self, failing=()):
        self.failing, self.found, self.lock = set(failing), [], Lock()

    def consume(self, message):
        with self.lock:
            body = message.body.decode()
            self.found.append([body, message.delivery_attempt])
            if body in self.failing:
                self.failing.remove(body)
                return ConsumeResult.FAILURE
            return ConsumeResult.SUCCESS


class Checker(TransactionChecker):
    def __init__(self):
        self.asked = []

    def check(self, message):
        self.asked.append(message.body.decode())
        return TransactionResolution.COMMIT


def round_trip(topic, group, count, **fields):
    sender, sent = producer(topic), []
    for number in range(count):
        made = message(topic, f"m{number}", tag="t", keys=f"k{number}", properties={"p": "ü"}, **fields)
        sent.append([f"m{number}", sender.send(made).message_id])
    found = take(simple(topic, group), count)
    got = [[one.body.decode(), one.message_id, one.tag, sorted(one.keys), one.properties["p"]] for one in found]
    return {"sent": sent, "got": got}


def delay():
    due = int(time.time()) + 3
    seen = round_trip("Delay", "GDelay", 1, delivery_timestamp=due)
    return {**seen, "late_s": time.time() - due}


def transactions():
    sender = producer("Transactions", Checker())
    dropped, kept = sender.begin_transaction(), sender.begin_transaction()
    sender.send(message("Transactions", "dropped"), dropped)
    sender.send(message("Transactions", "kept"), kept)
    dropped.rollback()
    kept.commit()
    return bodies(take(simple("Transactions", "GTransactions"), 2, 7))


def checks():
    checker = Checker()
    sender = producer("Checks", checker)
    sender.send(message("Checks", "orphan"), sender.begin_transaction())
    return {"got": bodies(take(simple("Checks", "GChecks"), 1)), "asked": sorted(set(checker.asked))}


def priority():
    producer("Priority").send(message("Priority", "urgent", priority=3))
    return [one.priority for one in take(simple("Priority", "GPriority"), 1)]


def recall():
    sender = producer("Recall")
    due = int(time.time()) + 5
    recalled = sender.send(message("Recall", "recalled", delivery_timestamp=due))
    sender.send(message("Recall", "kept", delivery_timestamp=due))
    sender.recall_message("Recall", recalled.recall_handle)
    return bodies(take(simple("Recall", "GRecall"), 2, 12))


def redelivery():
    producer("Redelivery").send(message("Redelivery", "again"))
    consumer, attempts = simple("Redelivery", "GRedelivery"), []
    end = time.monotonic() + 30
    while len(attempts) < 2 and time.monotonic() < end:
        for one in consumer.receive(1, 30):
            attempts.append(one.delivery_attempt)
            if len(attempts) == 1:
                consumer.change_invisible_duration(one, 2)
            else:
                consumer.ack(one)
    return attempts


def push():
    inbox = Inbox(["m3"])
    consumer = PushConsumer(CONFIGURATION, "GPush", inbox, {"Push": FilterExpression()}, consumption_thread_count=4)
    consumer.startup()
    sender = producer("Push")
    for number in range(10):
        sender.send(message("Push", f"m{number}"))
    end = time.monotonic() + 60
    while len(inbox.found) < 11 and time.monotonic() < end:
        time.sleep(0.1)
    time.sleep(1)  # for what must not come
    return sorted(inbox.found)


def filters():
    sender = producer("Filters")
    for number, tag in enumerate("abc"):
        made = message("Filters", tag, tag=tag, properties={"n": str(number)})
        sender.send(made)
    return {
        "tags": sorted(bodies(take(simple("Filters", "GTags", FilterExpression("a || c")), 3, 7))),
        "sql": sorted(bodies(take(simple("Filters", "GSql", FilterExpression("n > 0", FilterType.SQL)), 3, 7))),
    }


FEATURES = {
    "normal": lambda: round_trip("Normal", "GNormal", 10),
    "fifo": lambda: round_trip("Fifo", "GFifo", 10, message_group="g"),
    "delay": delay,
    "transactions": transactions,
    "checks": checks,
    "priority": priority,
    "recall": recall,
    "redelivery": redelivery,
    "push": push,
    "filters": filters,
}


def run(name):
    try:
        seen = {"feature": name, "seen": FEATURES[name]()}
    except Exception:  # noqa: BLE001 - the test fails with it
        seen = {"feature": name, "error": traceback.format_exc()}
    os.write(1, json.dumps(seen).encode() + b"\n")  # print writes the end of the line on its own, and threads share it


with ThreadPoolExecutor(16) as threads:
    list(threads.map(run, sys.argv[4:]))
os._exit(0)  # its threads would go on
