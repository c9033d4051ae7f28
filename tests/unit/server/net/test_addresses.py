"""The address that a server advertises, and files of accounts that are no text."""

import ipaddress

import pytest

from mqtool.errors import ConfigFileError
from mqtool.server.net import acl, connections


def test_the_own_address_is_one_and_that_of_the_loop_where_there_is_no_network(monkeypatch):
    assert ipaddress.ip_address(connections.own_address()).version == 4

    def unreachable(self, address):
        raise OSError(101, "Network is unreachable")

    monkeypatch.setattr("socket.socket.connect", unreachable)
    assert connections.own_address() == "127.0.0.1"


def test_accounts_that_are_no_text_are_refused(tmp_path):
    pytest.importorskip("yaml")
    path = tmp_path / "plain_acl.yml"
    path.write_bytes(b"accounts: \xff\n")
    with pytest.raises(ConfigFileError, match="expected YAML in UTF-8, found other bytes"):
        acl.load(path)
