"""JSON Lines made from columns are the rows made from messages, for every real store and body mode."""

import json

import pytest

import mqtool
from mqtool.records.frames import Frames
from mqtool.store import Message
from mqtool.store.log.json_rows import json_lines, row_of
from tests.support.stores import STORES, StoreFixture
from tests.support.tables import combined, in_parts

pytestmark = pytest.mark.usefixtures("either_way")


@in_parts("fixture, mode", combined([s for s in STORES if s.directory], ["none", "text", "hex", "base64"]), size=16)
def test_lines_from_columns_are_rows_of_messages(fixture: StoreFixture, mode: str) -> None:
    assert fixture.directory is not None
    with mqtool.open(fixture.directory) as store:
        lines = b"".join(json_lines(item, mode) for item in store.commit_log.walk() if isinstance(item, Frames))
        rows = [json.loads(line) for line in lines.splitlines()]
        expected = [row_of(message, mode) for message in store.messages() if isinstance(message, Message)]
    assert rows == expected
    assert [list(row) for row in rows] == [list(row) for row in expected]
