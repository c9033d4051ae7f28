"""offsets.json of broadcasting clients, as OffsetSerializeWrapper.toJson of both releases writes it."""

import pytest

from mqtool.errors import FormatError
from mqtool.formats.config_files import parse_broadcast_offsets

BY_4_9_7 = (
    b'{\n\t"offsetTable":{{\n\t\t\t"brokerName":"broker-a",\n\t\t\t"queueId":3,\n\t\t\t"topic":"Top\\"ic"\n\t\t}:5,'
    b'{\n\t\t\t"brokerName":"broker-a",\n\t\t\t"queueId":0,\n\t\t\t"topic":"Orders"\n\t\t}:17\n\t}\n}'
)
BY_5_5_0 = (
    b'{\n\t"offsetTable":{\n\t\t{\n\t\t\t"brokerName":"broker-a",\n\t\t\t"queueId":3,\n\t\t\t"topic":"Top\\"ic"\n\t\t}:5,'
    b'\n\t\t{\n\t\t\t"brokerName":"broker-a",\n\t\t\t"queueId":0,\n\t\t\t"topic":"Orders"\n\t\t}:17\n\t}\n}'
)


@pytest.mark.parametrize("data", [BY_4_9_7, BY_5_5_0])
def test_both_releases_keys_are_objects(data):
    assert parse_broadcast_offsets(data) == {('Top"ic', "broker-a", 3): 5, ("Orders", "broker-a", 0): 17}


@pytest.mark.parametrize("data", [b"", b"{}", b'{"offsetTable":7}', b"\xff", b'{"offsetTable":{{"topic":"T"}:5}}'])
def test_what_is_no_such_file_is_refused(data):
    with pytest.raises(FormatError):
        parse_broadcast_offsets(data)


def test_a_client_without_positions_has_none():
    assert parse_broadcast_offsets(b'{\n\t"offsetTable":{}\n}') == {}
