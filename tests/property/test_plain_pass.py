"""`verify`'s compiled passes find what its array operations find: on real stores, and on made ones with bytes changed."""

import random

import pytest

import mqtool
from mqtool.verify import segment
from mqtool.verify.finding_collector import in_order
from mqtool.verify.store import encode
from mqtool.verify.survey import survey
from mqtool.verify.tasks import run_task, tasks_of
from tests.property.records import CONFIG, ENTRIES, SLOTS, change_bytes, varied_store
from tests.support.builder import StoreBuilder
from tests.support.damage import CASES, base_config
from tests.support.native import form, needs_native
from tests.support.stores import STORES, copy_store
from tests.support.tiers import NIGHT, one_in

pytestmark = needs_native

REAL = [store for store in STORES if not store.name.startswith(("equeue", "tfchunk"))]
DAMAGED = [case for case in CASES.values() if case.kind != "store-empty"][:: 1 if NIGHT else 15]


def facts_of(root, config, topics=None):
    """What every task finds, as JSON."""
    with mqtool.open(root, config) as opened:
        seen = survey(opened, topics)
        results = [run_task(seen, task) for task in tasks_of(seen)]
    for facts in (facts for result in results for facts in result.segments):
        # theirs is the order of the queues, and of the kinds of findings, inside each window
        facts.span.jumps.sort(key=lambda jump: jump.after)
        facts.findings[:] = in_order(facts.findings)
    return [encode(result) for result in results]


def check_same(root, config, topics=None):
    with form(compiled=False):
        expected = facts_of(root, config, topics)
    with form(compiled=True):
        found = facts_of(root, config, topics)
    assert found == expected


@pytest.fixture
def taken(monkeypatch):
    """Counts the records that the compiled pass took."""
    counts = []
    real = segment.PlainPass.skim

    def skim(self, position):
        before = self.records
        answer = real(self, position)
        counts.append(self.records - before)
        return answer

    monkeypatch.setattr(segment.PlainPass, "skim", skim)
    return counts


@pytest.fixture(params=[1 << 9, 1 << 12, segment.WINDOW])
def window(request, monkeypatch):
    """Windows shorter than some records, of a few records, and the usual ones."""
    monkeypatch.setattr(segment, "WINDOW", request.param)


@pytest.mark.parametrize("store", REAL, ids=str)
def test_real_stores(store, tmp_path):
    check_same(copy_store(store.name, tmp_path), store.config)


@pytest.mark.parametrize("case", DAMAGED, ids=str)
def test_damaged_stores(case, damaged):
    check_same(damaged(case.id), base_config(case.base))


def test_a_clean_store_is_mostly_read_by_the_compiled_pass(tmp_path, taken, monkeypatch):
    monkeypatch.setattr("mqtool.records.walk.FIRST_WINDOW", 1 << 12)
    builder = StoreBuilder(segment_size=1 << 18, slots=SLOTS, entries=ENTRIES)
    for number in range(1000):
        builder.put(b"body %d" % number, queue_id=number % 3, keys=f"k{number}", unique_key=f"{number:032X}", step=5)
    root = builder.write(tmp_path / "store")
    check_same(root, CONFIG)
    assert sum(taken) > 900


@pytest.mark.parametrize("seed", one_in(8, range(60 if NIGHT else 8)))
def test_stores_with_bytes_changed(seed, tmp_path, window, taken, monkeypatch):
    monkeypatch.setattr("mqtool.records.walk.FIRST_WINDOW", 1 << 10)
    chance = random.Random(seed)
    root = varied_store(tmp_path / "store", chance)
    check_same(root, CONFIG)
    check_same(root, CONFIG, ("Orders",))
    trees = (root / tree for tree in ("commitlog", "consumequeue", "index"))
    files = [path for tree in trees for path in sorted(tree.rglob("*")) if path.is_file()]
    for _ in range(4):
        change_bytes(chance.choice(files), chance)
        check_same(root, CONFIG)
    assert sum(taken) > 0
