"""One broker for all tests of a module, with settings and topics of its own."""

import pytest

from mqtool.server.testing import MqServer


@pytest.fixture(scope="module")
def broker():
    with MqServer(transactionTimeOut="1000", transactionCheckInterval="1000") as server:
        server.create_topic("Orders")
        server.create_topic("Payments", "FIFO", queues=2)
        server.create_group("Bookkeeping", fifo=True)
        yield server
