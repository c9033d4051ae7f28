"""The start of a server: what it serves, and what is left of one that cannot start."""

import socket
import sys
import tempfile
import threading

import pytest

from mqtool.engine import FlushMode
from mqtool.errors import NotAStoreError, UsageError
from mqtool.server.serve import ServeOptions, Server, parse_flush
from mqtool.server.testing import MqServer
from tests.unit.server.broker.conftest import until


@pytest.fixture
def directories(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_server_that_cannot_start_leaves_no_thread_and_no_directory(directories):
    before = set(threading.enumerate())
    with pytest.raises(UsageError, match="maxMessageSize"), MqServer(maxMessageSize="much"):
        pass
    until(lambda: set(threading.enumerate()) <= before)  # a loop that is closed does not wait for its executor
    assert list(directories.iterdir()) == []


def test_a_file_in_place_of_a_store_is_named_and_not_changed(tmp_path):
    (tmp_path / "store").write_text("notes")
    with pytest.raises(NotAStoreError, match="expected a directory, found a file"), MqServer(tmp_path / "store"):
        pass
    assert (tmp_path / "store").read_text() == "notes"


def test_a_store_is_created_next_to_other_files(tmp_path):
    (tmp_path / "notes.txt").write_text("notes")
    with MqServer(tmp_path) as server:
        server.create_topic("Orders")
    assert (tmp_path / "notes.txt").read_text() == "notes"
    assert "Orders" in (tmp_path / "config" / "topics.json").read_text("utf-8")


@pytest.mark.parametrize(
    ("value", "mode"), [(None, None), ("sync", FlushMode.SYNC_FLUSH), ("ASYNC", FlushMode.ASYNC_FLUSH)]
)
def test_a_flush_mode_is_one_of_two_words(value, mode):
    assert parse_flush(value) is mode


def test_another_flush_mode_is_refused():
    with pytest.raises(UsageError, match="expected sync or async, found 'never'"):
        parse_flush("never")


def test_the_flush_mode_of_the_command_line_is_that_of_the_store(tmp_path):
    server = Server(ServeOptions(tmp_path / "store", flush=FlushMode.SYNC_FLUSH))
    with server._open() as store:
        assert store.options.flush_mode is FlushMode.SYNC_FLUSH


def test_a_grpc_client_of_a_server_without_its_packages_is_refused_with_advice(monkeypatch, caplog):
    caplog.set_level("INFO")
    monkeypatch.setitem(sys.modules, "mqtool.server.grpc.endpoint", None)
    with MqServer() as server:
        host, _, port = server.broker_address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=60) as client:
            client.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            assert client.recv(100) == b""
    assert "a gRPC connection: install 'rocketmq-mqtool[serve]' to serve it" in caplog.text
