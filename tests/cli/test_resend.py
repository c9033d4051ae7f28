"""`replay --dead-letters`, `--half` and `--to-topic`: the messages of real clients, back in their topics."""

import pytest

import mqtool as library
from mqtool.cli.exits import ExitCode
from tests.support.stores import FIXTURES, answers, copy_store

STORE = FIXTURES / "lives-5.5.0" / "store"


def sent(kind):
    """Unique key to queue of what clients sent in one kind of life."""
    rows = [row for row in answers("lives-5.5.0", "lives") if row["event"] == "sent"]
    return {row["msgId"]: (row["topic"], row["queue"]) for row in rows if row["life"].startswith(f"{kind}-")}


def messages(root):
    with library.open(root) as store:
        return list(store.messages())


@pytest.fixture
def target(tmp_path):
    return tmp_path / "target"


def test_dead_letters_are_back_in_the_topics_that_they_were_sent_to(mqtool, target):
    result = mqtool("replay", STORE, "--into", target, "--dead-letters", "LivesGroup", "-f", "json")
    assert (result.code, result.document["replayed"]) == (ExitCode.OK, 10)
    found = messages(target)
    assert {one.unique_key for one in found} == set(sent("dead"))
    assert {one.topic for one in found} == {"LivesRetry"}
    assert {one.queue_id for one in found} == {0, 1}  # both queues of the topic
    assert {one.reconsume_times for one in found} == {0}
    (names,) = {tuple(sorted(one.properties)) for one in found}
    assert names == ("CLUSTER", "KEYS", "MSG_REGION", "TAGS", "TRACE_ON", "UNIQ_KEY", "WAIT")


def test_half_messages_that_ran_out_of_checks_are_sent_as_ordinary_ones(mqtool, target):
    result = mqtool("replay", STORE, "--into", target, "--half", "-f", "json")
    assert (result.code, result.document["replayed"]) == (ExitCode.OK, 14)
    found = messages(target)
    expected = sent("txgivenup") | sent("txopen")
    assert {one.unique_key: (one.topic, one.queue_id) for one in found} == expected
    assert {one.sys_flag for one in found} == {0}
    assert not any({"TRAN_MSG", "REAL_TOPIC", "TRANSACTION_CHECK_TIMES"} & set(one.properties) for one in found)
    assert min(one.body.decode() for one in found).startswith("txgivenup-")


def test_filters_and_a_topic_of_its_own_go_together(mqtool, target):
    dead = ["--dead-letters", "LivesGroup", "--to-topic", "Repaired", "--key", "dead-3", "--topic", "LivesRetry"]
    said = mqtool("replay", STORE, "--into", target, *dead, "--dry-run", "-f", "json").document
    assert said["topics"] == [{"topic": "Repaired", "messages": 1}]
    assert not target.exists()
    mqtool("replay", STORE, "--into", target, *dead)
    assert [(one.topic, one.body) for one in messages(target)] == [("Repaired", b"dead-3")]


def test_a_topic_that_none_was_sent_to_selects_none(mqtool, target):
    dead = ["--dead-letters", "LivesGroup", "--topic", "LivesPlain"]
    found = mqtool("replay", STORE, "--into", target, *dead, "-f", "json").document
    assert (found["replayed"], found["not_selected"]) == (0, 10)


def test_any_replay_can_rename(mqtool, target):
    mqtool("replay", STORE, "--into", target, "--topic", "LivesPlain", "--to-topic", "Copy")
    found = messages(target)
    assert {one.topic for one in found} == {"Copy"}
    assert len(found) == 25


def test_a_group_without_dead_letters_is_an_error_that_names_those_with(mqtool, target):
    result = mqtool("replay", STORE, "--into", target, "--dead-letters", "LivesOther")
    assert result.code == ExitCode.USAGE
    assert "groups with dead letters: LivesGroup" in result.stderr
    assert mqtool("replay", STORE, "--into", target, "--dead-letters", "LivesGroup", "--half").code == ExitCode.USAGE


def test_a_dead_letter_that_states_no_origin_is_refused_unless_a_topic_is_given(mqtool, tmp_path, target):
    store = copy_store("lives-5.5.0", tmp_path)
    segment = store / "commitlog" / f"{262_144:020}"
    data = bytearray(segment.read_bytes())
    with library.open(store) as opened:
        (first, *_) = [one for one in opened.messages() if one.topic.startswith("%DLQ%")]
    at = data.index(b"RETRY_TOPIC", first.physical_offset - 262_144)
    data[at : at + 5] = b"OTHER"
    segment.write_bytes(data)
    result = mqtool("replay", store, "--into", target, "--dead-letters", "LivesGroup", "-f", "json")
    assert (result.code, result.document["replayed"], result.document["refused"]) == (ExitCode.NO, 9, 1)
    assert "--to-topic" in result.stderr


def test_a_state_of_another_kind_of_replay_is_refused(mqtool, tmp_path, target):
    state = tmp_path / "state"
    arguments = ["replay", STORE, "--into", target, "--state", state]
    assert mqtool(*arguments, "--dead-letters", "LivesGroup").code == ExitCode.OK
    assert mqtool(*arguments, "--half").code == ExitCode.USAGE
    again = mqtool(*arguments, "--dead-letters", "LivesGroup", "-f", "json")
    assert (again.code, again.document["replayed"]) == (ExitCode.OK, 0)
