"""Offsets of groups that pop are reset, as RocketMQ's own OffsetResetForPopIT does it."""

import pytest

from mqtool.engine import PutResult, PutStatus
from tests.support.remoting import bodies, records
from tests.unit.server.broker.conftest import until
from tests.unit.server.broker.test_pop import ack, fill, pop


def reset(client, topic, offset, group):
    """What resetOffsetByQueueId of the admin client sends."""
    client.call(15, consumerGroup=group, topic=topic, queueId=0, commitOffset=offset)
    return client.call(222, topic=topic, group=group, queueId=0, timestamp=-1, offset=offset, isForce=False)


def run(client, topic, group, resets, at, most, *, order=False, acks=True):
    """Pops one message at a time; resets the offset after `at` messages; returns the bodies."""
    found = []
    for _ in range(most):
        answer = pop(client, topic, group=group, queue=0, count=1, order=order, poll=0)
        if answer.code != 0:
            break
        ((facts, body),) = records(answer)
        found.append(int(body[1:]))
        if acks:
            offset = facts["queue_offset"]
            info = ack_words(answer, offset)
            reply = client.call(200051, consumerGroup=group, topic=topic, queueId=0, offset=offset, extraInfo=info)
            assert reply.code == 0, reply.remark
        if len(found) == at:
            for one in resets:
                assert reset(client, topic, one, group).code == 0
    return found


def ack_words(answer, offset):
    found = answer.fields
    start = found["startOffsetInfo"].split(" ")[-1]
    return f"{start} {found['popTime']} {found['invisibleTime']} {found['reviveQid']} 0 broker-a 0 {offset}"


@pytest.mark.parametrize("order", [False, True], ids=["any-order", "in-order"])
@pytest.mark.parametrize(
    ("resets", "at", "expected"),
    [
        ([5], 8, [*range(8), *range(5, 10)]),
        ([3, 5], 8, [*range(8), *range(5, 10)]),
        ([8], 2, [0, 1, 8, 9]),
        ([5, 8], 2, [0, 1, 8, 9]),
        ([5], 1, [0, *range(5, 10)]),
        ([3, 5], 1, [0, *range(5, 10)]),
        ([3], 5, [*range(5), *range(3, 10)]),
        ([3, 1], 5, [*range(5), *range(1, 10)]),
    ],
    ids=range(8),
)
def test_a_reset_while_a_group_pops_decides_what_comes_next(client, topic, order, resets, at, expected):
    fill(client, topic, 10)
    assert run(client, topic, f"G-{topic}", resets, at, 30, order=order) == expected


def test_a_reset_brings_messages_that_are_out_and_their_old_acknowledgements_have_no_effect(client, topic):
    fill(client, topic, 10)
    group = f"G-{topic}"
    first = pop(client, topic, group=group, queue=0, count=32, order=True)
    assert len(bodies(first)) == 10
    assert reset(client, topic, 2, group).code == 0
    assert client.call(14, consumerGroup=group, topic=topic, queueId=0).fields["offset"] == "2"
    second = pop(client, topic, group=group, queue=0, count=32, order=True)
    assert len(bodies(second)) == 8
    for offset in range(10):
        ack(client, topic, first, offset, group=group)
    assert pop(client, topic, group=group, queue=0, count=32, order=True).code == 210
    for offset in range(2, 10):
        assert ack(client, topic, second, offset, group=group, start=2).code == 0
    client.put(topic, b"after")
    assert bodies(pop(client, topic, group=group, queue=0, count=32, order=True, poll=5_000)) == [b"after"]


def test_a_reset_by_time_alone_goes_forward_too(client, topic):
    fill(client, topic, 10)
    group = f"G-{topic}"
    assert len(bodies(pop(client, topic, group=group, queue=0, count=2))) == 2
    answer = client.call(222, topic=topic, group=group, queueId=0, timestamp=-1, offset=8, isForce=False)
    assert answer.code == 0
    assert len(bodies(pop(client, topic, group=group, queue=0, count=32))) == 2


def test_an_offset_outside_of_the_queue_is_refused(client, topic):
    fill(client, topic, 2)
    pop(client, topic, group="GRange", queue=0, count=1)
    answer = client.call(222, topic=topic, group="GRange", queueId=0, timestamp=-1, offset=9, isForce=True)
    assert (answer.code, answer.remark) == (1, "Target offset 9 not in consume queue range [0-2]")


@pytest.mark.parametrize("order", [False, True], ids=["any-order", "in-order"])
def test_an_acknowledgement_after_a_reset_does_not_undo_it(client, topic, order):
    fill(client, topic, 10)
    group = f"G-{topic}"
    answer = pop(client, topic, group=group, queue=0, count=1, order=order)
    assert reset(client, topic, 5, group).code == 0
    asked = {"consumerGroup": group, "topic": topic, "queueId": 0, "offset": 0}
    assert client.call(200051, extraInfo=ack_words(answer, 0), **asked).code == 0
    assert bodies(pop(client, topic, group=group, queue=0, count=1, order=order)) == [b"p5"]


def test_in_order_an_acknowledgement_of_what_was_out_at_a_reset_leaves_the_new_offset(client, server, topic):
    fill(client, topic, 3)
    first = pop(client, topic, group="GLate", queue=0, count=2, order=True)
    assert bodies(first) == [b"p0", b"p1"]
    info = [ack_words(first, offset) for offset in (0, 1)]
    fields = {"consumerGroup": "GLate", "topic": topic, "queueId": 0}
    assert client.call(200051, offset=0, extraInfo=info[0], **fields).code == 0
    server.call(lambda: server.broker.offsets.reset("GLate", topic, 0, 1))
    assert client.call(200051, offset=1, extraInfo=info[1], **fields).code == 0
    assert server.call(lambda: server.broker.offsets.of("GLate", topic)) == {0: 1}  # also what a restart finds
    assert bodies(pop(client, topic, group="GLate", queue=0, count=1, order=True)) == [b"p1"]


def test_a_reset_during_a_pop_decides_what_comes_next(client, server, topic, monkeypatch):
    fill(client, topic, 3)

    flushed, during, committed = server.broker.writer.flushed, [], []
    commit = server.broker.offsets.commit

    def noted(group, *place):
        if group == "GDuring" and place[0] == topic:
            committed.append(place[-1])
        commit(group, *place)

    async def resetting():
        server.broker.offsets.reset("GDuring", topic, 0, 0)

    def flushed_later(*arguments):
        if during:
            return flushed(*arguments)
        during.append(True)
        return resetting()

    with monkeypatch.context() as patched:
        patched.setattr(server.broker.writer, "flushed", flushed_later)
        patched.setattr(server.broker.offsets, "commit", noted)
        assert bodies(pop(client, topic, group="GDuring", queue=0, count=2)) == [b"p0", b"p1"]
    assert set(committed) == {0}  # never 2, which a broker that is killed then would find
    assert bodies(pop(client, topic, group="GDuring", queue=0, count=1)) == [b"p0"]


def test_a_pop_gets_what_could_be_noted_when_the_store_refuses_the_rest(client, server, topic, monkeypatch):
    for queue in range(2):
        assert client.put(topic, b"q%d" % queue, queue=queue).code == 0
        until(lambda queue=queue: client.call(30, topic=topic, queueId=queue).fields["offset"] == "1")
    put, stored = server.broker.writer.put, []

    def refusing(message):
        if stored:
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE)
        stored.append(message)
        return put(message)

    with monkeypatch.context() as patched:
        patched.setattr(server.broker.writer, "put", refusing)
        (first,) = bodies(pop(client, topic, group="GPart", count=8))
        refused = pop(client, topic, group="GPart", count=8)
    assert (refused.code, refused.remark) == (1, "the check point could not be stored: SERVICE_NOT_AVAILABLE")
    assert {first, *bodies(pop(client, topic, group="GPart", count=8))} == {b"q0", b"q1"}
