"""The configuration that is given: keys that no broker reads, sizes that no file has."""

import pytest

import mqtool
from mqtool.cli.app import run
from mqtool.errors import ConfigFileError
from mqtool.formats.release import MEASURED
from mqtool.store.config import broker_config
from mqtool.store.config.broker_keys import unread_keys
from mqtool.verify import Options, Severity, verify
from tests.support.stores import FIXTURES, store_fixture

ORDERS = store_fixture("orders-5.5.0")


def evidence(config, code, name="orders-5.5.0"):
    with mqtool.open(store_fixture(name).directory, config) as store:
        return [one.evidence for one in verify(store).findings if one.code == code]


def test_every_key_that_real_brokers_were_given_is_known():
    given = {key for path in FIXTURES.rglob("*.conf") for key in broker_config.load(path).values}
    assert len(given) > 30
    assert unread_keys(sorted(given)) == []


SAMPLE = {
    "brokerClusterName": "DefaultCluster",
    "brokerName": "broker-a",
    "brokerId": "0",
    "deleteWhen": "04",
    "fileReservedTime": "48",
    "brokerRole": "ASYNC_MASTER",
    "flushDiskType": "ASYNC_FLUSH",
}
"""What conf/broker.conf of the distributions states; conf/controller and conf/container of 5.x add the keys below."""
SINCE_5 = {
    "enableControllerMode": "false",
    "controllerAddr": "127.0.0.1:9878",
    "allAckInSyncStateSet": "true",
    "totalReplicas": "2",
    "inSyncReplicas": "1",
    "minInSyncReplicas": "1",
    "enableAutoInSyncReplicas": "true",
    "brokerHeartbeatInterval": "1000",
    "brokerNotActiveTimeoutMillis": "5000",
    "sendHeartbeatTimeoutMillis": "1000",
    "enableSlaveActingMaster": "true",
}


@pytest.mark.parametrize("release", MEASURED)
def test_the_sample_configuration_of_a_release_has_no_finding(release):
    keys = SAMPLE | (SINCE_5 if release >= (5, 0) else {})
    with mqtool.open(ORDERS.directory, keys) as store:
        found = verify(store, Options(broker=str(release))).findings
    assert [one.evidence for one in found if one.code.startswith("lint-")] == []


def test_a_key_of_another_release_is_a_note_that_says_so():
    key = "rocksdbCQSelectiveDoubleWriteEnable"
    with mqtool.open(ORDERS.directory, {key: "true"}) as store:
        (found,) = [one for one in verify(store).findings if one.code == "lint-unknown-key"]
        later = verify(store, Options(broker="5.5.1")).findings
    assert found.severity is Severity.NOTE
    assert found.evidence == f"key {key!r} has no effect: read since 5.5.1; this store's broker is 5.5.0"
    assert "lint-unknown-key" not in {one.code for one in later}


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("mapedFileSizeCommitlog", "mappedFileSizeCommitLog"),
        ("messageDelayLevels", "messageDelayLevel"),
        ("MaxHashSlotNum", "maxHashSlotNum"),
    ],
)
def test_a_misspelt_key_is_reported_with_the_one_that_is_meant(key, meant, tmp_path, capsys):
    assert evidence({key: "1"}, "lint-unknown-key") == [f"unknown key {key!r} has no effect; did you mean {meant}?"]
    path = tmp_path / "broker.conf"
    path.write_text(f"brokerName=a\n{key}=1\n")
    assert run(["info", str(ORDERS.directory), "--config", str(path)]) == 0
    assert capsys.readouterr().err == f"mqtool: {path}: unknown key {key!r} has no effect; did you mean {meant}?\n"


def test_a_key_like_no_other_is_reported_without_a_guess():
    assert evidence({"qwertz": "1"}, "lint-unknown-key") == ["unknown key 'qwertz' has no effect"]


@pytest.mark.parametrize(
    "data", [b"\x7fELF\1\2\3\0garbage\n\xff\xfe", b'{"brokerName": "a"}', b"some text\nof no keys\n"]
)
def test_a_file_that_is_no_configuration_is_wrong_usage(data, tmp_path, capsys):
    path = tmp_path / "broker.conf"
    path.write_bytes(data)
    with pytest.raises(ConfigFileError, match="no key that a broker reads"):
        broker_config.load(path)
    assert run(["verify", str(ORDERS.directory), "--config", str(path)]) == 2
    assert "no key that a broker reads" in capsys.readouterr().err


def test_a_file_whose_only_key_is_misspelt_is_refused_with_the_one_that_is_meant(tmp_path):
    path = tmp_path / "broker.conf"
    path.write_text("mappedFileSizeComitLog=131072\n")
    with pytest.raises(ConfigFileError, match=r"did you mean mappedFileSizeCommitLog\?"):
        broker_config.load(path)


def test_a_file_without_keys_is_a_configuration_of_defaults(tmp_path):
    (tmp_path / "broker.conf").write_text("# nothing\n\n")
    assert broker_config.load(tmp_path / "broker.conf").values == {}


@pytest.mark.parametrize(
    ("key", "value", "fits"),
    [
        ("mappedFileSizeCommitLog", "4096", "mappedFileSizeCommitLog=131072"),
        ("mappedFileSizeConsumeQueue", "4000", "mappedFileSizeConsumeQueue=2000"),
    ],
)
def test_a_wrong_size_is_reported_with_the_value_that_fits(key, value, fits):
    (words,) = evidence({key: value}, "lint-size")
    assert words.endswith(f": set {fits}")
    assert words.startswith(f"{key}={value}: ")


def test_a_wrong_shape_of_the_index_is_reported_with_the_one_that_its_entries_prove():
    (words,) = evidence({"maxHashSlotNum": "7", "maxIndexNum": "9"}, "lint-size")
    config = broker_config.load(ORDERS.config).values
    assert words.endswith(f": set maxHashSlotNum={config['maxHashSlotNum']} and maxIndexNum={config['maxIndexNum']}")


@pytest.mark.parametrize(
    ("config", "code", "expected"),
    [
        (
            {"mapedFileSizeCommitLog": "131072"},
            "lint-legacy-key",
            ["mapedFileSizeCommitLog=131072 has no effect; brokers read mappedFileSizeCommitLog"],
        ),
        (
            {"timerWheelEnable": "true "},
            "lint-misread-value",
            ["timerWheelEnable='true ': the broker reads false; remove the blanks"],
        ),
        (
            {"diskSpaceCleanForciblyRatio": "95"},
            "lint-disk-ratio",
            ["diskSpaceCleanForciblyRatio 95 > diskSpaceWarningLevelRatio 90"],
        ),
        (
            {"diskSpaceCleanForciblyRatio": "60", "diskMaxUsedSpaceRatio": "70"},
            "lint-disk-ratio",
            ["diskMaxUsedSpaceRatio 70 > diskSpaceCleanForciblyRatio 60"],
        ),
        ({"diskMaxUsedSpaceRatio": "88"}, "lint-disk-ratio", []),
        (
            {"diskMaxUsedSpaceRatio": "most"},
            "lint-disk-ratio",
            ["configuration: diskMaxUsedSpaceRatio: expected a whole number, found 'most'"],
        ),
    ],
)
def test_what_contradicts_itself_or_means_something_else_is_reported(config, code, expected):
    assert evidence(config, code) == expected


def test_a_root_without_a_store_is_reported_and_a_root_that_is_not_there_is_not(tmp_path):
    words = f"storePathRootDir={tmp_path} contains no store; {ORDERS.directory} does"
    assert evidence({"storePathRootDir": str(tmp_path)}, "lint-path") == [words]
    assert evidence({"storePathRootDir": str(tmp_path / "nothing")}, "lint-path") == []
    assert evidence({"storePathRootDir": str(ORDERS.directory)}, "lint-path") == []


def test_sizes_of_extensions_and_timer_logs_are_compared_too():
    (words,) = evidence({"mappedFileSizeConsumeQueueExt": "5000"}, "lint-size", "cqext-5.5.0")
    assert words.endswith(": set mappedFileSizeConsumeQueueExt=1000")
    (words,) = evidence({"mappedFileSizeTimerLog": "5000"}, "lint-size", "timer-5.5.0")
    assert words.endswith(": set mappedFileSizeTimerLog=1024")
