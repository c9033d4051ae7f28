"""The real broker can be started on a store, asked, stopped in order and killed."""

import pytest

from tests.support.stores import answers, copy_store, shape_keys, store_fixture
from tests.support.tiers import night

pytestmark = [pytest.mark.interop, pytest.mark.slow]


@pytest.mark.parametrize("version", ["4.9.7", night("5.5.0")])
def test_a_broker_serves_a_fixture_and_stops_in_order(version, rocketmq, tmp_path):
    name = f"orders-{version}"
    copy_store(name, tmp_path)
    message = next(row for row in answers(name, "messages") if (row["topic"], row["queueId"]) == ("Orders", 1))
    broker = rocketmq(version).start_broker(tmp_path, **shape_keys(store_fixture(name).config))
    assert (broker.store / "abort").exists()
    printed = broker.admin("queryMsgByOffset", "-b", "broker-a", "-t", "Orders", "-i", "1", "-o", "0")
    assert message["properties"]["UNIQ_KEY"] in printed, printed
    broker.stop()
    assert not (broker.store / "abort").exists()


@pytest.mark.night
def test_a_killed_broker_leaves_its_abort_file(rocketmq, tmp_path):
    broker = rocketmq("5.5.0").start_broker(tmp_path, mappedFileSizeCommitLog=65536)
    assert "SEND_OK" in broker.admin("sendMessage", "-t", "Fresh", "-p", "hello", "-k", "key-1")
    broker.stop(kill=True)
    assert (broker.store / "abort").exists()
    assert b"hello" in (broker.store / "commitlog" / f"{0:020}").read_bytes()


def test_a_broker_that_refuses_its_store_is_reported_with_its_exit_status(rocketmq, tmp_path):
    copy_store("rollover-5.5.0", tmp_path)
    with pytest.raises(AssertionError, match="did not start: exit status 253"):
        rocketmq("5.5.0").start_broker(tmp_path, mappedFileSizeCommitLog=65536)
