"""The further queues of a record: 5.5 leaves out names with a slash, 4.9 does not (MultiDispatchUtils, 5.5.0)."""

import pytest

from mqtool.records.dispatch import DispatchRules, further_queues


@pytest.mark.parametrize(
    ("drops_paths", "expected"), [(True, [("%LMQ%b", 8)]), (False, [("%LMQ%a/x", 7), ("%LMQ%b", 8)])]
)
def test_a_name_with_a_slash_is_left_out_where_the_release_does(drops_paths, expected):
    rules = DispatchRules(multi_dispatch=True, drops_paths=drops_paths)
    assert further_queues("T", "%LMQ%a/x,%LMQ%b", "7,8", rules).queues == expected


def test_names_and_offsets_of_different_numbers_give_no_queue_and_the_reason():
    found = further_queues("T", "%LMQ%a,%LMQ%b", "7", DispatchRules(multi_dispatch=True))
    assert (found.queues, found.not_a_number) == ([], None)
    assert found.problem == "2 queues in INNER_MULTI_DISPATCH, 1 in INNER_MULTI_QUEUE_OFFSET"
