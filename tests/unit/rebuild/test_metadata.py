"""Configuration composed from a log: what is guessed, what is kept, what is put right."""

import pytest
from msgspec.structs import replace

import mqtool
from mqtool.formats import checkpoint, config_files
from mqtool.rebuild.job import rebuild
from mqtool.rebuild.metadata import Surveyor, compose, survey_log
from mqtool.rebuild.settings import settings_of
from mqtool.verify import verify
from tests.support.builder import StoreBuilder
from tests.support.stores import copy_store, store_fixture
from tests.unit.rebuild.model import record
from tests.unit.rebuild.test_job import make_store

KEY = {"UNIQ_KEY": "7F0000010FA818B4AAC26C9E7A3B0001", "DELAY": "2", "REAL_TOPIC": "T"}


def composed(root):
    with mqtool.open(root) as store:
        survey = survey_log(store, store.dispatch_rules)
        return survey, compose(store, survey)


def topics_of(made):
    return config_files.parse_topics(made.files["config/topics.json"]).topic_config_table


def delays_of(made):
    return config_files.parse_delay_offsets(made.files["config/delayOffset.json"]).offset_table


def guesses_in(made, file):
    return {guess.item: guess.value for guess in made.guesses if guess.file == file}


@pytest.mark.parametrize(
    ("given", "treated", "evidence"),
    [("5", "5.5", "given: 5, treated as 5.5"), ("4", "4.9", "given: 4, treated as 4.9"), ("5.5.0", "5.5", "given")],
)
def test_a_major_version_has_the_rules_of_a_store_that_was_detected_as_it(tmp_path, given, treated, evidence):
    with mqtool.open(make_store(tmp_path, [record("T")])) as store:
        found = settings_of(store, given)
        assert found.rules == settings_of(store, treated).rules
    assert found.evidence["broker_version"] == evidence


def test_topics_get_the_queues_of_their_records(tmp_path):
    records = [record("T", 3), record("%RETRY%g", 0), record("U", 0, sys_flag=2), record("%LMQ%x", 0)]
    _, made = composed(make_store(tmp_path, records))
    found = topics_of(made)
    assert {
        name: (topic.read_queue_nums, topic.write_queue_nums, topic.perm, topic.topic_filter_type)
        for name, topic in found.items()
    } == {"T": (4, 4, 6, "SINGLE_TAG"), "%RETRY%g": (1, 1, 6, "SINGLE_TAG"), "U": (1, 1, 6, "MULTI_TAG")}
    assert made.unconfigured == ["%RETRY%g", "T", "U"]
    assert set(guesses_in(made, "topics.json")) == set(found)


def test_a_topic_of_inner_batches_is_a_batch_topic(tmp_path):
    _, made = composed(make_store(tmp_path, [record("B", sys_flag=0x80 | 0x40)]))
    assert topics_of(made)["B"].queue_type == "BatchCQ"


def test_the_schedule_topic_has_a_queue_for_each_level(tmp_path):
    _, made = composed(make_store(tmp_path, [record("SCHEDULE_TOPIC_XXXX", 2, props=KEY)]))
    assert topics_of(made)["SCHEDULE_TOPIC_XXXX"].read_queue_nums == 18


def test_groups_follow_from_retry_and_dead_letter_topics(tmp_path):
    _, made = composed(make_store(tmp_path, [record("%RETRY%one"), record("%DLQ%two"), record("T")]))
    groups = config_files.parse_groups(made.files["config/subscriptionGroup.json"]).subscription_group_table
    assert sorted(groups) == ["one", "two"]


def test_a_retry_topic_of_pop_belongs_to_the_group_that_popped(tmp_path):
    root = make_store(tmp_path, [record("%RETRY%one+T"), record("%RETRY%two_T"), record("T")])
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "consumerOffset.json").write_text('{"offsetTable": {"T@two": {0: 1}}}')
    _, made = composed(root)
    groups = config_files.parse_groups(made.files["config/subscriptionGroup.json"]).subscription_group_table
    assert sorted(groups) == ["one", "two"]


@pytest.mark.parametrize(("delivered", "expected"), [([], 0), ([0], 1), ([0, 1], 2), ([1], 2)])
def test_a_delay_level_goes_on_behind_the_last_message_that_was_delivered(tmp_path, delivered, expected):
    keys = [KEY | {"UNIQ_KEY": f"{KEY['UNIQ_KEY'][:-1]}{n}"} for n in range(3)]
    records = [record("SCHEDULE_TOPIC_XXXX", 1, n, props=key) for n, key in enumerate(keys)]
    records += [record("T", 0, n, props=keys[n]) for n in delivered]
    survey, made = composed(make_store(tmp_path, records))
    assert survey.served == {1: expected}
    assert delays_of(made) == {2: expected}
    assert guesses_in(made, "delayOffset.json") == {"level 2": str(expected)}


def test_a_later_retry_of_the_same_message_is_not_the_delivery(tmp_path):
    parked = record("SCHEDULE_TOPIC_XXXX", 1, 0, props=KEY)
    again = record("T", 0, 0, props=KEY)
    fields = {name: getattr(again, name) for name in again.__struct_fields__} | {"reconsume_times": 1}
    survey, _ = composed(make_store(tmp_path, [parked, type(again)(**fields)]))
    assert survey.served == {1: 0}


def test_offsets_outside_of_their_queue_are_put_back_and_reported(tmp_path):
    root = copy_store("bcq-5.5.0", tmp_path)
    with mqtool.open(root) as store:
        name, queue_id, end = next((queue.topic, queue.queue_id, queue.max_offset) for queue in store.queues())
    text = f'{{"offsetTable":{{"{name}@g":{{{queue_id}:99999}},"Gone@g":{{0:5}}}}}}'
    (root / "config" / "consumerOffset.json").write_text(text)
    _, made = composed(root)
    found = config_files.parse_consumer_offsets(made.files["config/consumerOffset.json"]).offset_table
    assert found == {f"{name}@g": {queue_id: end}, "Gone@g": {0: 0}}
    assert guesses_in(made, "consumerOffset.json") == {f"g {name}/{queue_id}": str(end), "g Gone/0": "0"}


@pytest.mark.parametrize(("stated", "kept"), [(99, 15), (2, 2), (7, 7), (-3, 0)])
def test_a_consumer_offset_below_the_start_of_its_queue_stays_because_tiered_storage_has_the_messages(
    tmp_path, stated, kept
):
    root = make_store(tmp_path, [record("T", 0, 5 + number) for number in range(10)])
    (root / "config").mkdir()
    (root / "config" / "consumerOffset.json").write_text(f'{{"offsetTable":{{"T@g":{{0:{stated}}}}}}}')
    _, made = composed(root)
    found = config_files.parse_consumer_offsets(made.files["config/consumerOffset.json"]).offset_table
    assert found == {"T@g": {0: kept}}
    assert guesses_in(made, "consumerOffset.json") == ({} if stated == kept else {"g T/0": str(kept)})


def test_a_configured_topic_with_fewer_queues_than_records_is_widened(tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    path = root / "config" / "topics.json"
    topics = config_files.parse_topics(path.read_bytes())
    narrow = path.read_bytes().replace(b'"readQueueNums":4', b'"readQueueNums":2')
    path.write_bytes(narrow)
    _, made = composed(root)
    assert topics_of(made)["Orders"].read_queue_nums == topics.topic_config_table["Orders"].read_queue_nums == 4
    assert "Orders" in guesses_in(made, "topics.json")


def test_the_checkpoint_is_that_of_the_last_record(tmp_path):
    survey, made = composed(store_fixture("orders-5.5.0").directory)
    found = checkpoint.parse(made.files["checkpoint"])
    real = checkpoint.parse((store_fixture("orders-5.5.0").directory / "checkpoint").read_bytes())
    assert (found.physic_msg_timestamp, found.logics_msg_timestamp) == (real.physic_msg_timestamp, survey.last_time)
    assert found.logics_physical_offset == real.logics_physical_offset == survey.last_record
    assert found.index_msg_timestamp <= real.index_msg_timestamp


def test_damage_on_the_way_is_counted(tmp_path):
    root = make_store(tmp_path, [record("T", 0, n) for n in range(5)])
    segment = root / "commitlog" / f"{0:020d}"
    data = bytearray(segment.read_bytes())
    data[96:100] = b"\xee" * 4  # magic code of the second record, which begins at 92
    segment.write_bytes(data)
    survey, _ = composed(root)
    assert (survey.damage.count, survey.records) == (1, 4)


@pytest.mark.parametrize(("known", "kept"), [(0, 0), (9_999_999, 9_999_999), (-2, 0), (0x4141414141414141, 0)])
def test_a_field_that_the_log_does_not_prove_is_kept_where_it_can_be(known, kept, tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    path = root / "checkpoint"
    path.write_bytes(checkpoint.build(replace(checkpoint.parse(path.read_bytes()), master_flushed_offset=known)))
    with mqtool.open(root) as store:
        found = {one.code for one in verify(store).findings}
    assert found == (set() if known == kept else {"checkpoint-bad-value"})
    _, made = composed(root)
    assert checkpoint.parse(made.files["checkpoint"]).master_flushed_offset == kept
    assert ("master_flushed_offset" in guesses_in(made, "checkpoint")) == (known != kept)


@pytest.mark.parametrize("name", ["orders-5.5.0", "metadata-4.9.7", "timer-5.5.0", "bcq-5.5.0", "crash-4.9.7"])
def test_the_log_is_surveyed_in_the_pass_that_makes_the_files(name, tmp_path):
    check_survey(copy_store(name, tmp_path), tmp_path / "out")


def test_damage_is_part_of_the_survey_of_that_pass(tmp_path):
    builder = StoreBuilder()
    for _ in range(20):
        builder.put()
    root = builder.write(tmp_path / "store")
    put = builder.puts[7]
    with (root / "commitlog" / f"{0:020}").open("r+b") as file:
        file.seek(put.physical_offset)
        file.write(b"?" * 8)
    survey = check_survey(root, tmp_path / "out")
    assert [(one.start, one.end) for one in survey.damage.items] == [(put.physical_offset, put.end)]
    assert survey.records == 19


def test_a_log_of_half_messages_is_surveyed_without_queues(tmp_path):
    builder = StoreBuilder()
    for _ in range(3):
        builder.put(topic="RMQ_SYS_TRANS_HALF_TOPIC", sys_flag=4)  # prepared: dispatch makes no unit
    survey = check_survey(builder.write(tmp_path / "store", queues=False), tmp_path / "out")
    assert (survey.records, survey.last_record) == (3, builder.puts[-1].physical_offset)
    assert survey.queues == {}


def check_survey(root, out):
    """Surveys a log in the pass that makes the files and in one of its own."""
    surveyor = Surveyor()
    with mqtool.open(root) as store:
        settings = settings_of(store)
        rebuild(store, out, settings, surveyor=surveyor)
        found = surveyor.finish() if surveyor.is_complete else None
        apart = survey_log(store, settings.rules)
    assert found == apart
    assert apart.records > 0
    return apart


@pytest.mark.parametrize(("stated", "kept"), [(99, 15), (2, 5), (7, 7)])
def test_a_position_outside_of_the_queue_of_its_delay_level_is_moved_to_its_end(stated, kept, tmp_path):
    parked = [record("SCHEDULE_TOPIC_XXXX", 2, 5 + number) for number in range(10)]
    root = make_store(tmp_path, parked)
    (root / "config").mkdir()
    (root / "config" / "delayOffset.json").write_text(f'{{"offsetTable":{{3:{stated}}}}}')
    _, made = composed(root)
    assert delays_of(made) == {3: kept}
    expected = {} if stated == kept else {"level 3": str(kept)}
    assert guesses_in(made, "delayOffset.json") == expected
