"""One Spark session for all tests of this directory; they are skipped, with the reason, where Spark cannot start.

One worker runs them all: a second session would cost more than it saves.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from mqtool.errors import UnavailableError
from mqtool.spark.session import build

CONF = {"spark.sql.shuffle.partitions": "2", "spark.default.parallelism": "2", "spark.driver.memory": "1g"}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent.name == "spark":
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    warehouse = {"spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse"))}
    try:
        session = build("local[2]", CONF | warehouse)
    except UnavailableError as reason:
        pytest.skip(str(reason))
    yield session
    session.stop()
