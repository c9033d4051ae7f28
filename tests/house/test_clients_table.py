"""The table of docs/serve.md says of each gRPC client and feature what a test shows, and names the version tested."""

import json
import re

from tests.house.modules import ROOT
from tests.support.clients import GRPC_WHEEL, PROGRAMS
from tests.support.grpc_features import CELLS, ROWS


def table() -> list[list[str]]:
    """Cells of the table, row by row; the first row is its head."""
    text = (ROOT / "docs" / "serve.md").read_text("utf-8")
    found = re.search(r"^\| \| Java .*\n(?:\|.*\n)+", text, re.MULTILINE)
    assert found is not None
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in found[0].splitlines()]
    return [rows[0], *rows[2:]]


def versions() -> dict[str, str]:
    """Version of each client that the tests run."""
    pom = (PROGRAMS / "grpc_java" / "pom.xml").read_text("utf-8")
    module = (PROGRAMS / "grpc_go" / "go.mod").read_text("utf-8")
    package = json.loads((PROGRAMS / "grpc_js" / "package.json").read_text("utf-8"))
    java = re.search(r"rocketmq-client-java</artifactId>\s*<version>([\d.]+)<", pom)
    go = re.search(r"rocketmq-clients/golang/v5 v([\d.]+)", module)
    assert java is not None
    assert go is not None
    return {
        "Java": java[1],
        "Python": GRPC_WHEEL.partition("==")[2],
        "Node.js": package["dependencies"]["rocketmq-client-nodejs"],
        "Go": go[1],
    }


def test_each_cell_is_a_test_and_each_test_is_a_cell():
    head, *rows = table()
    clients = [cell.rpartition(" ")[0] for cell in head[1:]]
    shown = {(row[0], client): cell for row in rows for client, cell in zip(clients, row[1:], strict=True)}
    tested = {
        (row, client): "yes" if set(features) <= set(cells) else "not tested"
        for row, features in ROWS.items()
        for client, cells in CELLS.items()
    }
    assert shown == tested


def test_the_versions_are_those_of_the_tests():
    assert dict(cell.rsplit(" ", 1) for cell in table()[0][1:]) == versions()
