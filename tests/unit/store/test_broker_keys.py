"""Keys of a broker's properties file: unknown ones are named, with the nearest that a broker knows."""

import logging

from mqtool.cli.app import run
from mqtool.cli.commands.serve import configuration
from mqtool.cli.exits import ExitCode
from mqtool.engine.options import StoreOptions, config_values
from mqtool.engine.retention.rules import RetentionPolicy
from mqtool.formats.release import V5_5
from mqtool.server.broker.config import DEFAULTS
from mqtool.store.config.broker_keys import KEYS, PROXY_KEYS, defaults, unknown_keys


def test_every_key_that_serve_looks_at_is_a_broker_s_or_a_proxy_s():
    assert DEFAULTS.keys() <= KEYS.keys() | PROXY_KEYS
    assert not PROXY_KEYS & KEYS.keys()


def test_an_option_of_the_engine_has_the_default_of_a_broker():
    options = config_values(StoreOptions()) | {"fileReservedTime": str(RetentionPolicy().reserved_hours)}
    assert options == {key: defaults(V5_5)[key] for key in options}


def test_an_unknown_key_is_named_with_the_one_that_was_meant():
    found = unknown_keys(["flushDiskTyp", "FlushDiskType", "brokerName", "zzz", "mapedFileSizeCommitLog"])
    assert found == [("flushDiskTyp", "flushDiskType"), ("FlushDiskType", "flushDiskType"), ("zzz", None)]


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
