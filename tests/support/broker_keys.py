"""The table of a broker's keys, from the published classes: `python -m tests.support.broker_keys` writes it."""

import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from mqtool.store.config.broker_keys import AT_START, NOT_READ, TABLE, VERSIONS
from tests.support.rocketmq import RocketMQ, release

OF_A_MACHINE = {"brokerIP1", "brokerIP2", "brokerName", "rocketmqHome", "storePathRootDir"}
OF_A_START = {"bitMapLengthConsumeQueueExt"}
"""Keys whose value ConsumerFilterManager sets."""
OBJECTS = {"jraftConfig"}
"""Keys whose default is an object, which Java prints with its identity."""


def keys_of(rocketmq: RocketMQ, processors: int = 1) -> Mapping[str, list[str]]:
    """Type, part and default by key, of a release on a machine with a number of processors."""
    with tempfile.TemporaryDirectory() as home:
        java, *words = rocketmq._java("BrokerKeys", home=Path(home))
        command = [java, f"-XX:ActiveProcessorCount={processors}", *words]
        result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return {key: row for key, *row in (line.split("\t") for line in result.stdout.splitlines())}


def table(rocketmqs: list[RocketMQ]) -> str:
    """The text of the table, of these releases."""
    small, large = ([keys_of(rocketmq, processors) for rocketmq in rocketmqs] for processors in (1, 64))
    lines = ["\t".join(["key", "type", "part", *(rocketmq.version for rocketmq in rocketmqs)])]
    for key in sorted(set().union(*small)):
        kind, part = next(keys[key][:2] for keys in reversed(small) if key in keys)
        defaults = []
        for few, many in zip(small, large, strict=True):
            default = few[key][2] if key in few else NOT_READ
            varies = few.get(key) != many.get(key) or key in OF_A_MACHINE | OF_A_START | OBJECTS
            defaults.append(AT_START if varies and default != NOT_READ else default)
        lines.append("\t".join([key, kind, part, *defaults]))
    return "".join(f"{line}\n" for line in lines)


if __name__ == "__main__":
    TABLE.write_text(table([release(version) for version in VERSIONS]), "utf-8")
