"""gRPC clients on the page, in the metrics and in the log: like the others."""

import socket

from mqtool.protocol.rocketmq_v2 import definition as d
from tests.support.grpc_client import GrpcClient, code
from tests.support.html_page import Page
from tests.unit.server.broker.conftest import until


def test_a_grpc_consumer_is_a_member_of_its_group(site, client):
    client.put("Seen", b"x")
    with GrpcClient(site.server.addresses["broker"], client_id="grpc@page") as consumer:
        consumer.consume("GSeen", "Seen", d.PUSH_CONSUMER)
        page = Page(site.get("/group?name=GSeen").text).text
        assert "1 member, CLUSTERING, CONSUME_PASSIVELY" in page
        assert "grpc@page 127.0.0.1:" in page
        assert "rocketmq_consumer_connections{" in site.get("/metrics").text
        lines = [one for one in site.get("/metrics").text.splitlines() if "GSeen" in one]
        assert any(one.startswith("rocketmq_consumer_connections{") and one.endswith(" 1") for one in lines), lines
    until(lambda: "grpc@page" not in site.get("/group?name=GSeen").text)


def test_messages_of_grpc_clients_count(site, client):
    client.put("Counted", b"first")
    with GrpcClient(site.server.addresses["broker"]) as producer:
        for _ in range(3):
            assert code(producer.send("Counted", b"x")) == "OK"
        producer.consume("GCounted", "Counted")
        received = []
        until(lambda: received.extend(producer.receive("GCounted", "Counted")) or len(received) >= 4)

        def value(name):
            lines = [
                one for one in site.get("/metrics").text.splitlines() if one.startswith(name) and '"Counted"' in one
            ]
            return sum(float(one.rpartition(" ")[2]) for one in lines)

        assert (value("rocketmq_messages_in_total"), value("rocketmq_messages_out_total")) == (4, 4)
        for one in received:
            assert code(producer.ack("GCounted", "Counted", one)) == "OK"
        until(lambda: "GCounted Counted 0 " in Page(site.get("/").text).text)


def test_the_log_names_the_address_of_a_grpc_client_that_breaks_the_protocol(site, caplog):
    host, _, port = site.server.addresses["broker"].rpartition(":")
    with caplog.at_level("INFO"), socket.create_connection((host, int(port))) as connection:
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x01\x00\x00\x00\x00\x00\x01x")
        address = "{}:{}".format(*connection.getsockname())
        while connection.recv(4096):
            pass
        until(lambda: any(address in one.getMessage() for one in caplog.records))
    assert any(address in one.getMessage() and "HTTP/2" in one.getMessage() for one in caplog.records)
