"""One Spark session for all tests of this directory; they are skipped, with the reason, where Spark cannot start.

One worker runs them all: a second session would cost more than it saves.
"""

import os
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest

from mqtool.errors import UnavailableError
from mqtool.spark.session import build

OPTIONS_OF_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Small jobs end before the second compiler pays for its work: half of the processor time goes without it."""
CONF = {"spark.sql.shuffle.partitions": "2", "spark.default.parallelism": "2", "spark.driver.memory": "1g"}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent.name == "spark":
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    places = {
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.local.dir": tempfile.gettempdir(),  # Java does not ask TMPDIR
    }
    os.environ.setdefault("SPARK_SUBMIT_OPTS", OPTIONS_OF_JAVA)
    try:
        session = build("local[2]", CONF | places)
    except UnavailableError as reason:
        pytest.skip(str(reason))
    yield session
    session.stop()
