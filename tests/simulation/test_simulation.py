"""Some minutes of the simulator; `python -m tests.simulation --minutes 480` runs it for a night."""

import random

import pytest

from mqtool.errors import FormatError
from mqtool.formats.release import MEASURED
from tests.simulation.disk import SimulatedDisk
from tests.simulation.engine import EngineRun
from tests.simulation.runs import KINDS, simulate

SEEDS = 20
FAILED_ONCE = [("engine", 160)]
"""A run that fails becomes a test. 160: killed between the creation of a file and its size, 4.9 did not start."""


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, SEEDS, 10))
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_promised_is_lost_whatever_fails(kind, first):
    assert sum(simulate(kind, seed) for seed in range(first, first + 10)) > 0


@pytest.mark.parametrize(("kind", "seed"), FAILED_ONCE)
def test_a_seed_that_failed_once_holds(kind, seed):
    assert simulate(kind, seed) > 0


def test_a_seed_gives_the_same_run_again(in_memory):
    runs = [EngineRun(in_memory / name, 11) for name in ("a", "b")]
    for run in runs:
        run.run()
    assert runs[0].disk.operations == runs[1].disk.operations > 100
    assert runs[0].model.stored == runs[1].model.stored


def test_a_disk_that_lies_about_syncs_is_found(monkeypatch, in_memory):
    monkeypatch.setattr(SimulatedDisk, "note_synced", lambda self, path: None)
    monkeypatch.setattr("tests.simulation.engine.ROUNDS", 2)

    def is_found(seed):
        try:
            EngineRun(in_memory / str(seed), seed).run()
        except (AssertionError, FormatError):  # a message is not served, or not the one that was acknowledged
            return True
        return False

    assert any(is_found(seed) for seed in range(60))


def test_a_file_is_never_seen_without_its_size(tmp_path):
    disk = SimulatedDisk(random.Random(1))
    file = disk.create(tmp_path / "00000000000000000000", 4096)
    file.close()
    assert (tmp_path / "00000000000000000000").stat().st_size == 4096
    assert sorted(path.name for path in tmp_path.iterdir()) == ["00000000000000000000"]


@pytest.mark.interop
@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, 7])
def test_a_real_broker_serves_what_was_promised(rocketmq, tmp_path, in_memory, seed):
    run = EngineRun(in_memory / "store", seed)
    run.run()
    options = run.options
    config = {
        "mappedFileSizeCommitLog": options.commit_log_file_size,
        "mappedFileSizeConsumeQueue": options.consume_queue_file_size,
        "maxHashSlotNum": options.index_slots,
        "maxIndexNum": options.index_entries,
    }
    release = rocketmq(MEASURED[options.release])
    found = release.answers(run.root, config, work=tmp_path / "work")["messages"]
    served = {(one["topic"], one["queueId"], one["queueOffset"]) for one in found}
    promised = {(*queue, place) for queue, held in run.model.stored.items() for place in held}
    assert promised
    assert promised <= served
