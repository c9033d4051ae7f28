"""Where sizes and rules of a rebuild come from."""

import pytest

import mqtool
from mqtool.errors import UsageError
from mqtool.rebuild.settings import DEFAULT, settings_of
from tests.support.stores import copy_store, store_fixture

SIZES = ("consume_queue_size", "batch_consume_queue_size", "consume_queue_ext_size", "index_slots", "index_entries")


def settings(root, config=None, version=None):
    with mqtool.open(root, config) as store:
        return settings_of(store, version)


def bare(tmp_path):
    """A store of which only the log is left."""
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / f"{0:020d}").write_bytes(bytes(4096))
    return tmp_path


def test_files_tell_their_sizes():
    found = settings(store_fixture("bcq-5.5.0").directory)
    assert [getattr(found, name) for name in SIZES] == [6_000_000, 460, 50_331_648, 100, 400]
    assert found.evidence["index_slots"].startswith("index file 2")
    assert found.evidence["consume_queue_size"] == DEFAULT
    assert found.rules.batch_topics == {"Inner"} or found.rules.batch_topics


def test_without_files_the_broker_s_defaults_hold(tmp_path):
    found = settings(bare(tmp_path))
    assert [getattr(found, name) for name in SIZES] == [6_000_000, 13_800_000, 50_331_648, 5_000_000, 20_000_000]
    assert {found.evidence[name] for name in SIZES} == {DEFAULT}
    assert found.rules.index_tags


def test_a_configuration_overrules_what_files_tell(tmp_path):
    root = copy_store("cqext-5.5.0", tmp_path)
    found = settings(
        root,
        {
            "mappedFileSizeConsumeQueue": 4010,
            "maxHashSlotNum": 7,
            "maxIndexNum": 9,
            "enableConsumeQueueExt": "false",
            "enableMultiDispatch": "false",
            "messageDelayLevel": "1s 2m",
            "mappedFileSizeConsumeQueueExt": 5000,
        },
    )
    assert [getattr(found, name) for name in SIZES] == [4020, 13_800_000, 5000, 7, 9]
    assert (found.has_extension, found.rules.multi_dispatch, found.rules.delay_levels) == (
        False,
        False,
        (1000, 120_000),
    )


def test_an_extension_is_reported_by_its_directory(tmp_path):
    assert settings(store_fixture("cqext-4.9.7").directory).has_extension
    assert not settings(store_fixture("orders-4.9.7").directory).has_extension


@pytest.mark.parametrize(
    ("version", "tags", "everywhere"),
    [
        ("4.9", False, True),
        ("4.9.7", False, True),
        ("5.1", False, False),
        ("5.3.3", False, False),
        ("5.5", True, False),
        ("6.0", True, False),
        (None, True, False),
    ],
)
def test_the_release_decides_about_tags_and_multi_dispatch(version, tags, everywhere):
    rules = settings(store_fixture("orders-5.5.0").directory, version=version).rules
    assert (rules.index_tags, rules.lmq_everywhere) == (tags, everywhere)


@pytest.mark.parametrize("config", [{"maxHashSlotNum": 0}, {"maxIndexNum": -5}, {"maxIndexNum": "many"}])
def test_numbers_that_cannot_be_are_refused(tmp_path, config):
    with pytest.raises(UsageError, match=next(iter(config))):
        settings(bare(tmp_path), config)


def test_delay_levels_that_cannot_be_are_refused(tmp_path):
    with pytest.raises(UsageError, match="messageDelayLevel"):
        settings(bare(tmp_path), {"messageDelayLevel": "1s soon"})
