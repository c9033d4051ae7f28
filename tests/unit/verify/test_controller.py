"""Files of controller mode: lost epochs are found by what else the store has."""

import pytest

import mqtool
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
    assert "brokerIdentity is there" in one.evidence


def test_the_configuration_tells_too(tmp_path):
    root = without_epochs(tmp_path)
    (root / "brokerIdentity").unlink()
    assert codes(root) == set()
    assert codes(root, {"enableControllerMode": "true"}) == {"epoch-missing"}


@pytest.mark.parametrize("name", ["ipv6", "ha-5.5.0/store-slave"])
def test_other_stores_need_none(name, tmp_path):
    assert codes(without_epochs(tmp_path, name)) == set()
