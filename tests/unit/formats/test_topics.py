"""Names of topics, decided by TopicValidator, TopicConfigManager and KeyBuilder of 5.5.0."""

import pytest

from mqtool.formats import service_records, topics

# name: the broker reserves it, clients may send to it, a service keeps messages of other topics in it,
# its messages are for applications, and a broker makes it itself
SYSTEM = {
    "TBW102": (True, True, False, False, True),
    "SCHEDULE_TOPIC_XXXX": (True, False, True, False, True),
    "BenchmarkTest": (True, True, False, True, True),
    "RMQ_SYS_TRANS_HALF_TOPIC": (True, False, True, False, True),
    "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC": (True, False, True, False, True),
    "RMQ_SYS_TRACE_TOPIC": (True, True, False, False, True),
    "RMQ_SYS_TRANS_OP_HALF_TOPIC": (True, False, True, False, True),
    "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC": (True, False, True, False, True),
    "TRANS_CHECK_MAX_TIME_TOPIC": (True, False, False, False, True),
    "SELF_TEST_TOPIC": (True, False, False, False, True),
    "OFFSET_MOVED_EVENT": (True, False, False, False, True),
    "CHECKPOINT_TOPIC": (True, True, False, True, False),
    "rmq_sys_wheel_timer": (True, True, True, False, True),
    "rmq_sys_REVIVE_LOG_DefaultCluster": (True, True, True, False, True),
    "rmq_sys_SYNC_BROKER_MEMBER_a": (True, True, False, False, True),
    "%RETRY%G": (False, True, False, True, True),
    "%DLQ%G": (False, True, False, True, True),
    "%LMQ%L": (False, True, False, True, True),
    "Orders": (False, True, False, True, False),
    "RMQ_SYS_OF_USERS": (False, True, False, True, False),
    "SCHEDULE_TOPIC_XXXX_2": (False, True, False, True, False),
}


@pytest.mark.parametrize("name", SYSTEM)
def test_what_the_broker_does_with_a_topic(name):
    assert SYSTEM[name] == (
        topics.is_system_topic(name),
        name not in topics.NOT_FOR_SENDERS,
        topics.holds_service_records(name),
        topics.is_for_consumers(name),
        topics.is_made_by_broker(name),
    )


def test_pop_retry_topics_have_two_forms():
    """KeyBuilder.buildPopRetryTopicV1 and V2, and parseNormalTopic."""
    assert topics.pop_retry_topic("G", "T") == "%RETRY%G_T"
    assert topics.pop_retry_topic("G", "T", second_form=True) == "%RETRY%G+T"
    assert {topics.popped_topic("G", name) for name in ("%RETRY%G_T", "%RETRY%G+T", "T")} == {"T"}


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        ("%RETRY%G", True),
        ("%RETRY%G_T", True),
        ("%RETRY%G+T", True),
        ("%RETRY%Gr", False),
        ("%RETRY%H", False),
        ("%DLQ%G", False),
        ("G", False),
    ],
)
def test_the_retry_topics_of_a_group(topic, expected):
    assert topics.is_retry_of(topic, "G") is expected


def test_messages_of_a_topic_without_a_service_have_no_problem_of_one():
    for topic in ("Orders", "%RETRY%G", "RMQ_SYS_TRACE_TOPIC"):
        assert service_records.problem_of(topic, {}, b"", 0, 0) is None
    assert service_records.problem_of("SCHEDULE_TOPIC_XXXX", {}, b"", 0, 0)
