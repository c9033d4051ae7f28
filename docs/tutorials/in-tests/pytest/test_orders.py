"""Tests with the official Python client (`pip install rocketmq-python-client`)."""

import time

from rocketmq import ClientConfiguration, Credentials, FilterExpression, Message, Producer, SimpleConsumer


def send(endpoints, topic, *bodies, group=None):
    producer = Producer(ClientConfiguration(endpoints, Credentials()), (topic,))
    producer.startup()
    for body in bodies:
        message = Message()
        message.topic, message.body = topic, body
        if group:
            message.message_group = group
        producer.send(message)
    producer.shutdown()


def receive(endpoints, topic, group, count):
    consumer = SimpleConsumer(
        ClientConfiguration(endpoints, Credentials()), group, {topic: FilterExpression()}, await_duration=10
    )
    consumer.startup()
    time.sleep(1)  # this client does not wait until its settings are answered
    found = []
    while len(found) < count:
        for message in consumer.receive(16, 30):
            consumer.ack(message)
            found.append(message.body)
    consumer.shutdown()
    return found


def test_orders_arrive(broker):
    send(broker.endpoints, "Orders", b"1", b"2")
    assert sorted(receive(broker.endpoints, "Orders", "Shipping", 2)) == [b"1", b"2"]


def test_payments_arrive_in_order(broker):
    send(broker.endpoints, "Payments", b"1", b"2", b"3", group="customer-7")
    assert receive(broker.endpoints, "Payments", "Bookkeeping", 3) == [b"1", b"2", b"3"]


def test_every_test_can_have_an_empty_broker(mqtool_server):
    mqtool_server.create_topic("Orders")
    send(mqtool_server.endpoints, "Orders", b"only this one")
    [message] = mqtool_server.wait_for("Orders", count=1, timeout=5)
    assert message.body == b"only this one"
    assert receive(mqtool_server.endpoints, "Orders", "Shipping", 1) == [b"only this one"]
    [sent] = [request for request in mqtool_server.requests() if request.code == "SEND_MESSAGE_V2"]
    assert (sent.topic, sent.outcome) == ("Orders", "OK")
