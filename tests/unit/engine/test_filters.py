"""What a get asks of units and records."""

from mqtool.store.queues.get_message import SqlFilter


def test_a_filter_asks_the_record_and_not_the_unit():
    found = SqlFilter("a > 5")
    assert found.by_unit(0, None)
    assert [found.by_record({"a": value}) for value in ("6", "5", "x")] == [True, False, False]
