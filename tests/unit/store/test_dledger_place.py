"""The data files of a DLedger log: where the configuration says, for all that read them."""

import shutil

import pytest

import mqtool
from mqtool.convert.dledger import convert
from mqtool.errors import LayoutError, UnsupportedFormatError
from mqtool.recovery import predict
from mqtool.repair.backup import backup
from mqtool.store.layout import LedgerPlace, detect, ledger_place
from mqtool.verify.findings import State
from mqtool.verify.store import verify
from tests.support.stores import copy_store, shape_keys, store_fixture

FIXTURE = "dledger-5.5.0"
ENTRIES = 186


def keys(root, data):
    return {
        **shape_keys(store_fixture(FIXTURE).config),
        "enableDLegerCommitLog": "true",
        "dLegerSelfId": "n0",
        "storePathRootDir": str(root),
        "storePathDLedgerCommitLog": ",".join(str(path) for path in data),
    }


@pytest.fixture(params=["outside", "inside"])
def moved(request, tmp_path):
    """A store whose data files are outside of its root or elsewhere in it, and its keys."""
    root = copy_store(FIXTURE, tmp_path)
    data = (tmp_path if request.param == "outside" else root) / "ledger-data"
    (root / "dledger-n0" / "data").rename(data)
    return root, data, keys(root, [data])


def test_a_reader_finds_every_message(moved):
    root, data, config = moved
    with mqtool.open(root, config) as store:
        assert sum(1 for _ in store.messages()) == ENTRIES
        assert store.layout.ledger == LedgerPlace(root / "dledger-n0", (data,))
        assert store.layout.is_of_log(data)
        result = verify(store)
    assert (result.state, result.findings) == (State.CLEAN, ())


def test_a_start_loses_no_message(moved):
    root, data, config = moved
    outcome = predict(root, "5.5.0", config)
    assert (outcome.runs, outcome.readable) == (True, ENTRIES)
    assert outcome.plan is not None
    assert {segment.path.parent for segment in outcome.plan.segments} == {data}


def test_a_conversion_takes_every_message(moved, tmp_path):
    root, _, config = moved
    with mqtool.open(root, config) as store:
        found = convert(store, tmp_path / "plain")
    assert found.records == ENTRIES
    assert found.left_behind == []


def test_a_backup_has_the_log_or_is_refused(moved, tmp_path):
    root, data, config = moved
    if data.is_relative_to(root):
        names = [file.path for file in backup(root, tmp_path / "backup", config).snapshot.files]
        assert "ledger-data/00000000000000000000" in names
        assert names.index("ledger-data/00000000000000000000") > names.index("dledger-n0/checkpoint")
    else:
        with pytest.raises(UnsupportedFormatError, match="ledger-data: this log is outside of"):
            backup(root, tmp_path / "backup", config)


def test_the_data_files_of_a_copy_are_those_in_the_copy(tmp_path):
    root = copy_store(FIXTURE, tmp_path)
    data = root / "dledger-n0" / "data"
    config = keys(root, [data])
    copy = tmp_path / "copy" / "store"
    shutil.copytree(root, copy)
    shutil.rmtree(root)
    with mqtool.open(copy, config) as store:
        assert store.layout.ledger.data == (copy / "dledger-n0" / "data",)
        assert sum(1 for _ in store.messages()) == ENTRIES
        assert store.config.for_copy(copy).values["storePathDLedgerCommitLog"] == str(copy / "dledger-n0" / "data")
    assert predict(copy, "5.5.0", config).readable == ENTRIES


def test_a_log_without_its_own_directory_is_read(moved):
    root, _, config = moved
    shutil.rmtree(root / "dledger-n0")
    with mqtool.open(root, config) as store:
        assert sum(1 for _ in store.messages()) == ENTRIES
        assert store.layout.dledger_dirs == (root / "dledger-n0",)


def test_data_files_in_several_directories_are_read_in_order(tmp_path):
    root = copy_store(FIXTURE, tmp_path)
    first, second = tmp_path / "a", tmp_path / "b"
    (root / "dledger-n0" / "data").rename(first)
    second.mkdir()
    for file in sorted(first.iterdir())[1::2]:
        file.rename(second / file.name)
    config = keys(root, [first, second])
    with mqtool.open(root, config) as store:
        assert sum(1 for _ in store.messages()) == ENTRIES
    with pytest.raises(UnsupportedFormatError, match="in several directories"):
        predict(root, "5.5.0", config)


def test_a_directory_that_is_missing_is_an_error(tmp_path):
    root = copy_store(FIXTURE, tmp_path)
    with pytest.raises(LayoutError, match=r"names this DLedger log directory, but neither it nor .*store/away exists"):
        mqtool.open(root, keys(root, [tmp_path / "away"]))


def test_a_start_without_the_directory_has_a_log_without_entries(tmp_path):
    root = copy_store(FIXTURE, tmp_path)
    assert predict(root, "5.5.0", keys(root, [tmp_path / "away"])).readable == 0


def test_a_node_that_never_started_has_no_log_yet(tmp_path):
    root = tmp_path / "store"
    (root / "commitlog").mkdir(parents=True)
    found = detect(root, mqtool.store.config.broker_config.load(keys(root, [tmp_path / "later"])))
    assert (found.dledger_dirs, found.commit_log.files) == ((), ())


def test_a_disabled_log_is_not_one(tmp_path):
    (tmp_path / "dledger-n0").mkdir()
    assert ledger_place(tmp_path, mqtool.store.config.broker_config.load({"enableDLegerCommitLog": "false"})) is None
