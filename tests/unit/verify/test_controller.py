"""Files of controller mode: lost epochs are found by what else the store has."""

import pytest

import mqtool
from mqtool.engine.start.detect import options_for
from mqtool.errors import UnsupportedFormatError
from mqtool.repair.backup import backup
from mqtool.repair.changes import Purge
from mqtool.repair.plan_builder import make_plan
from mqtool.store.config.broker_config import load
from mqtool.store.layout import epoch_file
from mqtool.verify import State, verify
from tests.support.stores import copy_store

NAMES = ("epochFileCheckpoint", "epochFileCheckpoint.bak")


def codes(root, config=None):
    with mqtool.open(root, config) as store:
        return {one.code for one in verify(store).findings}


def without_epochs(tmp_path, name="controller-5.5.0/store-x"):
    root = copy_store(name, tmp_path)
    for file in NAMES:
        (root / file).unlink(missing_ok=True)
    return root


def test_both_epoch_files_missing_is_an_error(tmp_path):
    root = without_epochs(tmp_path)
    with mqtool.open(root) as store:
        found = verify(store)
    (one,) = found.findings
    assert (one.code, found.state) == ("epoch-missing", State.CORRUPT)
    assert "brokerIdentity exists" in one.evidence


def test_the_configuration_tells_too(tmp_path):
    root = without_epochs(tmp_path)
    (root / "brokerIdentity").unlink()
    assert codes(root) == set()
    assert codes(root, {"enableControllerMode": "true"}) == {"epoch-missing"}


@pytest.mark.parametrize("name", ["ipv6", "ha-5.5.0/store-slave"])
def test_other_stores_need_none(name, tmp_path):
    assert codes(without_epochs(tmp_path, name)) == set()


def with_epochs_elsewhere(tmp_path):
    root = copy_store("controller-5.5.0/store-x", tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for file in (*NAMES, "brokerIdentity"):
        if (root / file).exists():
            (root / file).rename(elsewhere / file)
    keys = {
        "enableControllerMode": "true",
        "storePathEpochFile": str(elsewhere / NAMES[0]),
        "storePathBrokerIdentity": str(elsewhere / "brokerIdentity"),
    }
    return root, keys


def test_files_in_another_place_are_found_by_the_configuration(tmp_path):
    root, keys = with_epochs_elsewhere(tmp_path)
    assert codes(root, keys) == set()
    (tmp_path / "elsewhere" / NAMES[0]).write_text("x")
    assert codes(root, keys) == {"epoch-unreadable"}


def test_a_broker_identity_in_another_place_needs_epochs(tmp_path):
    root, keys = with_epochs_elsewhere(tmp_path)
    del keys["enableControllerMode"]
    for file in NAMES:
        (tmp_path / "elsewhere" / file).unlink(missing_ok=True)
    assert codes(root, keys) == {"epoch-missing"}


def test_the_place_in_a_copy_of_the_store_comes_first(tmp_path):
    keys = load({"storePathRootDir": "/data/store", "storePathEpochFile": "/data/store/own/epochs"})
    assert epoch_file(tmp_path, keys) == tmp_path / "own/epochs"
    assert epoch_file(tmp_path, load({})) == tmp_path / NAMES[0]


@pytest.mark.parametrize("without", ["enableControllerMode", "storePathEpochFile"])
def test_a_store_of_controller_mode_is_not_purged_wherever_its_epochs_are(tmp_path, without):
    root, keys = with_epochs_elsewhere(tmp_path)
    del keys[without]
    with pytest.raises(UnsupportedFormatError, match="controller mode"):
        make_plan(root, Purge(("Control",)), config=keys)


def test_the_engine_does_not_write_to_a_store_whose_epochs_are_elsewhere(tmp_path):
    root, keys = with_epochs_elsewhere(tmp_path)
    with pytest.raises(UnsupportedFormatError, match="controller mode"):
        options_for(root, keys)


def test_a_backup_notes_the_files_that_are_outside_of_the_root(tmp_path):
    root, keys = with_epochs_elsewhere(tmp_path)
    notes = backup(root, tmp_path / "backup", keys).snapshot.notes
    assert [f"({key}) is outside of" in note for key, note in zip(list(keys)[1:], notes, strict=True)] == [True, True]
