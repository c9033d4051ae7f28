"""Keys of a broker's properties file: unknown ones are named, with the nearest that a broker knows."""

import logging

import pytest

from mqtool.cli.app import run
from mqtool.cli.commands.serve import configuration
from mqtool.cli.exits import ExitCode
from mqtool.engine.options import StoreOptions, config_values
from mqtool.engine.retention.rules import RetentionPolicy
from mqtool.formats.release import MEASURED, V5_4, V5_5, V5_5_1
from mqtool.server.broker.config import DEFAULTS
from mqtool.store.config import broker_keys
from mqtool.store.config.broker_keys import KEYS, PROXY_KEYS, TABLE, defaults, unread_keys
from tests.support.tables import in_parts


def test_every_key_that_serve_looks_at_is_a_broker_s_or_a_proxy_s():
    assert DEFAULTS.keys() <= KEYS.keys() | PROXY_KEYS
    assert not PROXY_KEYS & KEYS.keys()


def test_an_option_of_the_engine_has_the_default_of_a_broker():
    options = config_values(StoreOptions()) | {"fileReservedTime": str(RetentionPolicy().reserved_hours)}
    assert options == {key: defaults(V5_5)[key] for key in options}


def test_an_unknown_key_is_named_with_the_one_that_was_meant():
    keys = ["flushDiskTyp", "FlushDiskType", "flsuhDiskType", "brokerName", "zzz", "mapedFileSizeCommitLog"]
    meant = "unknown key {!r} has no effect; did you mean flushDiskType?".format
    assert [one.words for one in unread_keys(keys)] == [*map(meant, keys[:3]), "unknown key 'zzz' has no effect"]


@in_parts("key", ["maxTransferBytesOnMessageInMemor2", "brokerIP3", "minAccessMessageInMemoryRatio", *KEYS], size=200)
def test_no_key_is_suggested_for_one_that_means_something_else(key, monkeypatch):
    """Also not for a key that a later release adds: each known key in turn is taken for such a one."""
    monkeypatch.setattr(broker_keys, "KEYS", {name: kind for name, kind in KEYS.items() if name != key})
    assert [one.words for one in unread_keys([key])] == [f"unknown key {key!r} has no effect"]


@pytest.mark.parametrize(
    ("key", "releases", "why"),
    [
        ("rocksdbCQSelectiveDoubleWriteEnable", [V5_5], "read since 5.5.1; this store's broker is 5.5.0"),
        (
            "rocksdbCQSelectiveDoubleWriteEnable",
            [V5_4, V5_5],
            "read since 5.5.1; this store's broker is 5.4.0 or 5.5.0",
        ),
        ("rocksdbCQSelectiveDoubleWriteEnable", [V5_5, V5_5_1], ""),
        ("enableLiteEventMode", [V5_5_1], "read since 5.5.0 up to 5.5.0; this store's broker is 5.5.1"),
        ("longPollingEnable", list(MEASURED), ""),
        ("controllerDLegerPeers", [V5_5], "it belongs in the file of the controller or name server"),
    ],
)
def test_a_key_of_another_release_is_called_that(key, releases, why):
    expected = [f"key {key!r} has no effect: {why}"] if why else []
    assert [one.words for one in unread_keys([key], releases)] == expected


def test_no_key_that_a_release_reads_is_called_unknown():
    """A row of type - is shown by brokers, and has no setter."""
    rows = [line.split("\t") for line in TABLE.read_text("utf-8").splitlines()[1:]]
    words = [one.words for one in unread_keys([key for key, kind, *_ in rows if kind != "-"])]
    assert len(rows) == 598
    assert len(words) == 16
    assert all("of the controller" in one for one in words)


def test_serve_names_each_unknown_key_of_set_and_config_once(tmp_path, caplog, capsys):
    config = tmp_path / "broker.conf"
    config.write_text("brokerNam=a\nbrokerName=b\n", "utf-8")
    warned = f"{config}: unknown key 'brokerNam' has no effect; did you mean brokerName?"
    assert run(["serve", "--store", str(tmp_path / "s"), "--config", str(config), "--set", "x"]) == ExitCode.USAGE
    assert capsys.readouterr().err.count(warned) == 1
    with caplog.at_level(logging.WARNING):
        assert configuration(config, ["fileReservdTime=1"]).values["brokerName"] == "b"
    lines = [one.getMessage() for one in caplog.records]
    assert lines == ["--set: unknown key 'fileReservdTime' has no effect; did you mean fileReservedTime?"]
