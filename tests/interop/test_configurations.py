"""A broker's properties file is read as the real classes read it, value by value, of 10,000 files made at random."""

import random
import subprocess
from collections.abc import Iterator

import pytest

from mqtool.errors import FormatError
from mqtool.formats import java
from mqtool.formats.release import MEASURED, ON_THE_WIRE, assumed_release
from mqtool.store.config.broker_config import effective_value
from mqtool.store.config.broker_keys import KEYS, TABLE, VERSIONS, Type
from tests.support.broker_keys import table
from tests.support.tiers import night

pytestmark = [pytest.mark.interop, pytest.mark.slow]

FILES = 10_000
OVERLOADED = frozenset({"metricsExporterType"})
"""Keys with a setter for a number and one for a text: which the broker calls last is not defined."""

SEPARATORS = ["=", "=", "=", " = ", ":", " ", "\t", "= =", "=\\\n  ", "", "\\=", " :"]
PIECES = [
    *("true", "false", "TRUE", " true", "true ", "yes", "1", "0", "24", "24 ", " 24", "+5", "-3", "2147483647"),
    *("2147483648", "9223372036854775807", "9223372036854775808", "1_000", "0x10", "10M", "", "  ", "\\", "\\\\"),
    *("\\ ", "\\t", "\\u0041", "\\u004", "\\n", "a", "=", ":", "#", "!", "\t", "\f", "é", "١٢", "SYNC_FLUSH"),
    *("ASYNC_FLUSH ", "SLAVE", "/data/store ", "1.5", "1e3", "NaN", "1d", ".5", "0x1p3", "\\:", "\\=", "a b"),
]
ENDS = ["\n", "\n", "\n", "\r\n", "\r", "\\\n", "\\\n\n", "\n\n", "\\\r\n  ", " \n", "\n # c\n", ""]


def lines(source: random.Random) -> Iterator[str]:
    """Lines of a file: known keys and others, values of all types, all that the format allows around them."""
    for _ in range(source.randint(1, 8)):
        if source.random() < 0.3:
            yield source.choice(["", " ", "\t", "\f"])
        if source.random() < 0.08:
            yield source.choice("#!")
        yield source.choice(list(KEYS)) if source.random() < 0.9 else source.choice(["zzz", "a\\ b", "a\\=b", ""])
        yield source.choice(SEPARATORS)
        yield from (source.choice(PIECES) for _ in range(source.choice([1, 1, 1, 2, 3])))
        yield source.choice(ENDS)


def read(data: bytes) -> dict[str, str] | None:
    try:
        return java.parse_properties(data)
    except FormatError:
        return None


def is_same(key: str, mine: str | None, theirs: str) -> bool:
    if KEYS[key] is Type.DOUBLE and mine is not None and "x" not in mine:
        return mine == theirs or float(mine.rstrip("dDfF")) == float(theirs)
    return mine == theirs or (KEYS[key] is Type.DOUBLE and mine is not None)


def test_the_table_of_keys_is_that_of_the_classes(rocketmq):
    assert table([rocketmq(version) for version in VERSIONS]) == TABLE.read_text("utf-8")


@pytest.mark.parametrize("release", MEASURED)
def test_the_version_on_the_wire_is_that_of_the_classes(rocketmq, release, tmp_path):
    program = tmp_path / "Version.java"
    current = "org.apache.rocketmq.common.MQVersion.CURRENT_VERSION"
    program.write_text(
        f"class Version {{ public static void main(String[] arguments) {{ System.out.println({current}); }} }}"
    )
    jars = f"{rocketmq(MEASURED[release]).cache}/lib/*"
    found = subprocess.run(["java", "-cp", jars, program], capture_output=True, text=True, check=True, timeout=120)
    assert int(found.stdout) == ON_THE_WIRE[release]


@pytest.mark.parametrize("version", [night("4.9.7"), "5.5.0"])
def test_values_are_what_the_real_broker_takes(rocketmq, version, tmp_path):
    files = tmp_path / "files"
    files.mkdir()
    for number in range(FILES):
        (files / f"{number:05d}").write_bytes("".join(lines(random.Random(number))).encode())
    defaults, answers = rocketmq(version).configurations(files, work=tmp_path / "work")
    release = assumed_release(version)
    assert len(answers) == FILES
    wrong, compared = [], 0
    for name, answer in answers.items():
        values = read((files / name).read_bytes())
        if answer is None or values is None:
            assert values == answer, name
            continue
        properties, settings = answer
        # a backslash as the last byte of a file gives Java a key without a name, which no broker reads
        if {**values, "": ""} != {**properties, "": ""}:
            wrong.append((name, values, properties))
        for key in settings.keys() & KEYS.keys() - OVERLOADED:
            compared += 1
            mine = effective_value(key, values[key], release)
            if not is_same(key, defaults[key] if mine is None else mine, settings[key]):
                wrong.append((name, key, values[key], mine, settings[key]))
    assert wrong == []
    assert compared > 5_000
