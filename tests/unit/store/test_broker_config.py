"""What a broker takes from the text of a value; tests/interop/test_configurations.py asks the real classes."""

import subprocess
import sys

import pytest

from mqtool.cli.app import run
from mqtool.errors import ConfigFileError, UsageError
from mqtool.formats.release import V4_9, V5_5
from mqtool.store.config import broker_config
from mqtool.store.config.broker_config import effective_value
from tests.support.stores import sizes_of, store_fixture

ORDERS = store_fixture("orders-5.5.0").directory


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("timerWheelEnable", "true", "true"),
        ("timerWheelEnable", "True", "true"),
        ("timerWheelEnable", "true ", "false"),
        ("timerWheelEnable", "yes", "false"),
        ("fileReservedTime", "24", "24"),
        ("fileReservedTime", "+24", "24"),
        ("fileReservedTime", "24 ", None),
        ("fileReservedTime", "1_000", None),
        ("fileReservedTime", "2147483648", None),
        ("brokerId", "2147483648", "2147483648"),
        ("brokerId", "9223372036854775808", None),
        ("timerPrecisionMs", "999", "500"),
        ("timerPrecisionMs", "-1", "100"),
        ("logicalDiskSpaceCleanForciblyThreshold", " 0.8 ", "0.8"),
        ("logicalDiskSpaceCleanForciblyThreshold", "0,8", None),
        ("brokerRole", "SLAVE", "SLAVE"),
        ("brokerRole", "slave", None),
        ("nobodysKey", "x ", "x "),
    ],
)
@pytest.mark.parametrize("release", [V4_9, V5_5])
def test_what_a_broker_takes(key, value, expected, release):
    assert effective_value(key, value, release) == expected


def test_texts_are_trimmed_since_5_2_only():
    assert effective_value("storePathRootDir", "/data/store ", V4_9) == "/data/store "
    assert effective_value("storePathRootDir", "/data/store ", V5_5) == "/data/store"
    assert effective_value("flushDiskType", "SYNC_FLUSH ", V4_9) is None
    assert effective_value("flushDiskType", "SYNC_FLUSH ", V5_5) == "SYNC_FLUSH"


def written(tmp_path, text):
    path = tmp_path / "broker.conf"
    path.write_text(text)
    return path


def test_a_value_of_a_file_that_the_broker_ignores_leaves_the_default(tmp_path):
    config = broker_config.load(written(tmp_path, "fileReservedTime=24 \ntimerWheelEnable=true \nbrokerName=a\n"))
    assert config.integer("fileReservedTime") is None
    assert config.flag("timerWheelEnable") is False
    assert config.effective_values() == {"timerWheelEnable": "false", "brokerName": "a"}


@pytest.mark.parametrize(("key", "value"), [("fileReservedTime", "24 "), ("fileReservedTime", "a day")])
def test_a_value_that_is_given_directly_is_wrong_usage(key, value):
    with pytest.raises(UsageError, match=f"{key}: expected a whole number, found '{value}'"):
        broker_config.load({key: value}).integer(key)


def test_a_choice_that_is_given_directly_is_one_of_those_there_are():
    with pytest.raises(UsageError, match="flushDiskType: expected one of ASYNC_FLUSH, SYNC_FLUSH, found 'FAST'"):
        broker_config.load({"flushDiskType": "FAST"}).text("flushDiskType")


def test_a_file_that_java_refuses_is_an_error(tmp_path):
    with pytest.raises(ConfigFileError, match=r"a broker refuses to start with it: .*four hexadecimal digits"):
        broker_config.load(written(tmp_path, "storePathRootDir=C:\\users\\store\n"))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("timerWheelEnable=true ", "timerWheelEnable='true ': the broker reads false; remove the blanks"),
        ("timerWheelEnable=on", "timerWheelEnable='on': the broker reads false; write true or false"),
        (
            "fileReservedTime=24\t",
            "fileReservedTime='24\\t': the broker ignores it and keeps its default; remove the blanks",
        ),
        (
            "fileReservedTime=3 days",
            (
                "fileReservedTime='3 days': the broker ignores it and keeps its default; "
                "write a whole number that fits a Java int"
            ),
        ),
        (
            "flushDiskType=SYNC",
            (
                "flushDiskType='SYNC': the broker ignores it and keeps its default; "
                "write one of ASYNC_FLUSH, SYNC_FLUSH, without blanks"
            ),
        ),
        (
            "flushDiskType=SYNC_FLUSH ",
            (
                "flushDiskType='SYNC_FLUSH ': brokers before 5.2 ignore it for its blanks and keep the default; "
                "remove the blanks"
            ),
        ),
        (
            "readAheadCacheSizeThresholdRate=much",
            "readAheadCacheSizeThresholdRate='much': the broker ignores it and keeps its default; write a number",
        ),
        (
            "brokerName=broker-a ",
            "brokerName='broker-a ': brokers before 5.2 keep the blanks at its end; remove the blanks",
        ),
        ("timerPrecisionMs=999", "timerPrecisionMs='999': the broker rounds it down to 500, a supported precision"),
    ],
)
def test_a_value_that_does_not_become_what_it_says_is_reported(line, words, tmp_path, capsys):
    path = written(tmp_path, f"{sizes_of('orders-5.5.0')}{line}\n")
    assert run(["info", str(ORDERS), "--config", str(path)]) == 0
    assert capsys.readouterr().err == f"mqtool: {path}: {words}\n"
    assert run(["verify", str(ORDERS), "--config", str(path)]) == 0  # the store itself is clean
    assert words in capsys.readouterr().out


def test_values_that_become_what_they_say_are_not_reported(tmp_path):
    text = "timerWheelEnable=TRUE\nfileReservedTime=+24\nbrokerRole=SLAVE\nstorePathRootDir=/data/store\nbrokerIP1= a\n"
    assert broker_config.load(written(tmp_path, text)).misread() == []


def test_a_setting_on_the_command_line_is_refused(tmp_path, capsys):
    assert run(["serve", str(tmp_path / "store"), "--set", "fileReservedTime=a day"]) == 2
    assert "--set fileReservedTime='a day': " in capsys.readouterr().err
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("place", "text", "is_found"),
    [
        ("broker.conf", "brokerRole=SLAVE\n", True),
        ("broker.conf", "brokerRole=SLAVE\nstorePathRootDir=elsewhere\n", False),
        ("conf/broker.conf", "brokerRole=SLAVE\nstorePathRootDir=STORE\n", True),
        ("conf/2m-noslave/broker-a.properties", "storePathRootDir=STORE\n", True),
        ("../conf/broker.conf", "storePathRootDir=STORE\n", True),
        ("../conf/broker.conf", "brokerRole=SLAVE\n", False),
        ("broker.conf", "not=a broker's file\n", False),
    ],
)
def test_the_configuration_is_found_where_brokers_keep_it(tmp_path, place, text, is_found):
    store = tmp_path / "data" / "store"
    store.mkdir(parents=True)
    path = store.parent / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.replace("STORE", str(store)), "utf-8")
    found = broker_config.find(store)
    assert (found and found.resolve()) == (path.resolve() if is_found else None)


def test_of_two_configurations_that_name_a_store_none_is_chosen(tmp_path):
    (tmp_path / "store").mkdir()
    (tmp_path / "conf").mkdir()
    for name in ("broker.conf", "conf/broker.conf"):
        (tmp_path / name).write_text(f"storePathRootDir={tmp_path / 'store'}\n", "utf-8")
    assert broker_config.find(tmp_path / "store") is None


def test_a_running_broker_names_its_configuration(tmp_path):
    (tmp_path / "store").mkdir()
    path = tmp_path / "mine.conf"
    path.write_text(f"storePathRootDir={tmp_path / 'store'}\n", "utf-8")
    command = [
        sys.executable,
        "-c",
        "import sys; print(flush=True); sys.stdin.read()",
        "BrokerStartup",
        "-c",
        path.name,
    ]
    with subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        assert broker_config.find(tmp_path / "store") == path
        process.stdin.close()
