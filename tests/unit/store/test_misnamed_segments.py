"""A segment that is named into the middle of another one hides none of its records."""

import pytest

from mqtool.rebuild.job import rebuild
from mqtool.rebuild.settings import settings_of
from mqtool.store import Message
from mqtool.store.layout import without_misnamed
from mqtool.store.store import open_store
from tests.support.damage import base_messages, damage_case


@pytest.mark.parametrize("content", ["zeros", "copy"])
@pytest.mark.parametrize("base", [131073, 131072 + 500, 16384 + 1])
def test_the_records_of_the_other_one_are_read(content, base, tmp_path):
    root = damage_case("none@4.9.7-clean", tmp_path)
    first = (root / "commitlog/00000000000000000000").read_bytes()
    (root / f"commitlog/{base:020}").write_bytes(bytes(len(first)) if content == "zeros" else first)
    with open_store(root) as store:
        found = [message.physical_offset for message in store.messages() if isinstance(message, Message)]
        assert found == [message["phy"] for message in base_messages("4.9.7-clean")]
        result = rebuild(store, tmp_path / "out", settings_of(store))
    assert (result.records, result.units) == (395, 389)
    assert not result.damage


def test_a_file_after_the_end_of_the_log_stays(tmp_path):
    root = damage_case("none@4.9.7-clean", tmp_path)
    path = root / f"commitlog/{200001:020}"
    path.write_bytes(bytes(16384))
    with open_store(root) as store:
        assert store.layout.log_segments[-1].path == path
        assert without_misnamed(store.layout.segments, None) == store.layout.segments
