"""Hosts, message ids and file names."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtool.errors import FormatError, TruncatedError
from mqtool.formats import file_names, hosts, java, topics
from mqtool.formats.hosts import Host, UniqueKey
from tests.support.stores import answered, answers
from tests.unit.formats.real import files

addresses = st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)).map(str)
ports = st.integers(java.INT_MIN, java.INT_MAX)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("7f0000010000d431", "127.0.0.1:54321"),
        ("20010db8000000000000000000000001000004d2", "[2001:db8::1]:1234"),
        ("0000000000000000000000000000000100002a9f", "[::1]:10911"),
        ("00000000000000000000ffff0102030400000001", "[::ffff:1.2.3.4]:1"),
        ("01020304ffffffff", "1.2.3.4:-1"),
    ],
)
def test_hosts_have_one_text(data, text):
    raw = bytes.fromhex(data)
    found = hosts.parse(raw)
    assert hosts.build(found) == raw
    assert hosts.parse_text(hosts.text_of(raw)) == found
    assert hosts.parse_text(text) == found


@given(addresses, ports)
def test_a_built_host_is_parsed_to_the_same_host(address, port):
    host = Host(address, port)
    assert hosts.parse(hosts.build(host)) == host
    assert hosts.parse_text(str(host)) == host


@pytest.mark.parametrize("size", [size for size in range(25) if size not in hosts.SIZES])
def test_a_host_of_another_length_is_an_error(size):
    with pytest.raises(TruncatedError, match=f"8 or 20 bytes, found {size}"):
        hosts.parse(bytes(size))


@pytest.mark.parametrize("text", ["", "1.2.3.4", "1.2.3.4:x", "::1:5", "[1.2.3.4]:5", "[::1]", "host:5", "1.2.3:5"])
def test_a_text_that_is_no_host_is_an_error(text):
    with pytest.raises(FormatError):
        hosts.parse_text(text)


@pytest.mark.parametrize("host", [Host("nowhere", 1), Host("1.2.3.4", 1 << 31)])
def test_a_host_that_does_not_fit_is_refused(host):
    with pytest.raises(FormatError, match="cannot be written"):
        hosts.build(host)


@pytest.mark.parametrize("store", answered("gets"), ids=str)
def test_offset_ids_of_the_broker_lead_to_their_record(store):
    for answer in answers(store.name, "messages"):
        found = hosts.parse_offset_id(answer["offsetMsgId"])
        assert found.physical_offset == answer["physicalOffset"]
        address, _, port = answer["storeHost"].rpartition("|")
        store_host = hosts.build(hosts.parse_text(f"[{address}]:{port}" if ":" in address else f"{address}:{port}"))
        assert (found.address, found.port) == (store_host[:-4], int(port))
        assert hosts.format_offset_id(store_host, found.physical_offset) == answer["offsetMsgId"]


def test_an_offset_id_is_read_in_either_case():
    assert hosts.parse_offset_id("c0a8010a00002a9f0000000000000000") == hosts.parse_offset_id(
        "C0A8010A00002A9F0000000000000000"
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "C0A8010A",
        "C0A8010A00002A9F000000000000000",
        "G" * 32,
        "0" * 33,
        "0" * 55,
        "0" * 57,
        "C0A8010A 00002A9F00000000000000 ",
        "٠" * 32,
    ],
)
def test_a_text_of_another_shape_is_not_an_id(text):
    with pytest.raises(FormatError, match="32 or 56"):
        hosts.parse_offset_id(text)


@pytest.mark.parametrize("name", ["orders-4.9.7", "orders-5.5.0", "ipv6"])
def test_unique_keys_of_real_clients_state_when_the_message_was_born(name):
    seen = 0
    for answer in answers(name, "messages"):
        text = answer["properties"].get("UNIQ_KEY", "")
        if len(text) not in hosts.TEXT_LENGTHS or answer["reconsumeTimes"]:
            continue
        layout = hosts.UNIQUE_KEY_V4 if len(text) == 32 else hosts.UNIQUE_KEY_V6
        key = layout.parse(bytes.fromhex(text))
        assert layout.build(key).hex().upper() == text
        born = datetime.fromtimestamp(answer["bornTimestamp"] / 1000, UTC)
        month = born.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        assert abs(month + timedelta(milliseconds=key.month_millis) - born) < timedelta(seconds=2)
        seen += 1
    assert seen > 50


def test_the_parts_of_a_known_unique_key():
    key = hosts.UNIQUE_KEY_V4.parse(bytes.fromhex("7F0000010FA818B4AAC26C9E7A3B0001"))
    assert key == UniqueKey(b"\x7f\0\0\1", 0x0FA8, 0x18B4AAC2, 0x6C9E7A3B, 1)


@given(st.integers(0, java.LONG_MAX))
def test_a_mapped_file_name_has_twenty_digits(offset):
    name = file_names.mapped_file_name(offset)
    assert len(name) == 20
    assert file_names.parse_mapped_file_name(name) == offset


@pytest.mark.parametrize("offset", [-1, 1 << 63])
def test_no_file_starts_outside_a_java_long(offset):
    with pytest.raises(FormatError):
        file_names.mapped_file_name(offset)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "0",
        "0" * 19,
        "0" * 21,
        "9" * 20,
        "-" + "0" * 19,
        "٠" * 20,
        "0" * 20 + ".delete",
    ],
)
def test_other_names_are_no_mapped_files(name):
    assert file_names.parse_mapped_file_name(name) is None


def test_names_of_real_index_files_are_moments():
    paths = files("index/*[0-9]")
    assert len(paths) > 50
    for path in paths:
        moment = file_names.parse_index_file_name(path.name, UTC)
        assert moment is not None
        assert moment.year == 2026
        assert file_names.index_file_name(moment) == path.name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "2026112100394439",
        "20261321003944398",
        "2026112100394439x",
        "00000000000000000",
        "٠" * 17,
    ],
)
def test_other_names_are_no_index_files(name):
    assert file_names.parse_index_file_name(name, UTC) is None


@pytest.mark.parametrize(
    ("topic", "groups", "group"),
    [
        ("%RETRY%g", [], "g"),
        ("%DLQ%g+T", ["g"], "g+T"),
        ("%RETRY%g+T", [], "g"),  # KeyBuilder.buildPopRetryTopicV2
        ("%RETRY%g+T_1", ["g_x"], "g"),
        ("%RETRY%g_T", ["g", "x"], "g"),  # buildPopRetryTopicV1
        ("%RETRY%a_b_T", ["a", "a_b"], "a_b"),
        ("%RETRY%a_b_T", ["c"], "a_b_T"),
    ],
)
def test_the_group_of_a_retry_topic(topic, groups, group):
    assert topics.group_of_retry(topic, groups) == group


@pytest.mark.parametrize(
    ("queue", "parts"),
    [
        ("%LMQ%$parent$child", ("parent", "child")),
        ("%LMQ%queue", None),
        ("%LMQ%$parent$", None),
        ("%LMQ%$parent$a$b", None),
        ("topic$child", None),
    ],
)
def test_a_light_queue_of_a_lite_topic_has_the_names_of_both(queue, parts):
    assert topics.parts_of_lite_queue(queue) == parts


def test_an_offset_id_that_cannot_be_written_is_refused():
    with pytest.raises(FormatError, match="expected a host of 8 or 20 bytes, found 4"):
        hosts.format_offset_id(bytes(4), 0)
    with pytest.raises(FormatError, match="cannot be written"):
        hosts.format_offset_id(bytes(8), 1 << 63)
