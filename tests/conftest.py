"""Fixtures for all tests, and which tests share a worker."""

import contextlib
import gc
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from mqtool.cli import after_start
from tests.support.damage import CASES, damage_case, held_locks
from tests.support.engine_faults import fast_directory, remove
from tests.support.native import IS_COMPILED, form
from tests.support.rocketmq import RocketMQ, Unavailable, release
from tests.support.scheduling import GroupScheduling
from tests.support.stores import SOON_AFTER
from tests.support.tiers import FAST_FOLDERS, NIGHT, TIERS, belongs
from tests.support.watch import Watch

# how long an example takes is not a property of ours
settings.register_profile("fast", deadline=None, max_examples=10)
settings.register_profile("full", deadline=None, max_examples=50)
settings.register_profile("night", deadline=None, max_examples=500)

STARTS_JVM = ("interop", "spark")
TESTS = Path(__file__).parent


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--tier fast|default|full`: which tests run (`tests.support.tiers`)."""
    parser.addoption("--tier", choices=TIERS, default="full", help="fast, default or full (the default)")


def pytest_configure(config: pytest.Config) -> None:
    """Has hypothesis try fewer examples in the fast tier, and sets what otherwise depends on the shell and the runner."""
    pytest.MonkeyPatch().setattr(after_start, "now_ms", lambda: SOON_AFTER)
    os.environ.pop("COLUMNS", None)  # workers of xdist have it; output that is no terminal's is not wrapped
    signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background, shells have their children ignore it
    settings.load_profile("night" if NIGHT else "fast" if config.getoption("--tier") == "fast" else "full")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Takes the tests of the tier; those that start JVMs get more time, since the first one fetches RocketMQ."""
    tier, taken, left = config.getoption("--tier"), [], []
    for item in items:
        markers = frozenset(marker.name for marker in item.iter_markers())
        (taken if belongs(_folder(item), markers, tier) else left).append(item)
        if not markers.isdisjoint(STARTS_JVM):
            item.add_marker(pytest.mark.timeout(600))
        if "night" in markers and not NIGHT:
            item.add_marker(pytest.mark.skip(reason="for the night; MQTOOL_LONG=1 runs it"))
    items[:] = _spread(taken) if os.environ.get("PYTEST_XDIST_WORKER") else taken
    config.hook.pytest_deselected(items=left)


def _spread(items: list[pytest.Item]) -> list[pytest.Item]:
    """Puts the tests with the real RocketMQ, which mostly wait, between the modules of all others.

    Where all workers ran such tests at the same time, the processors would have nothing to do. The last sixth of the
    others comes after them: it keeps all workers busy to the end.
    """
    waiting = [item for item in items if item.get_closest_marker("interop")]
    others = [item for item in items if not item.get_closest_marker("interop")]
    work = [1 if _folder(item) in FAST_FOLDERS else 4 for item in others]  # roughly, how long each takes
    spread: list[pytest.Item] = []
    added, done, total = 0, 0, sum(work) * 5 // 6
    for number, item in enumerate(others):
        if number and item.path != others[number - 1].path:
            due = len(waiting) * done // total
            spread += waiting[added:due]
            added = due
        spread.append(item)
        done += work[number]
    return spread + waiting[added:]


def _folder(item: pytest.Item) -> str:
    return item.path.relative_to(TESTS).parts[0]


def pytest_collection_finish() -> None:
    """Keeps the collector from searching thousands of tests and all modules again and again, above all at the end."""
    gc.freeze()


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """`-n auto`: two more than there are processors, since tests with real brokers mostly wait for them; not in the fast tier."""
    return (os.cpu_count() or 1) + (0 if config.getoption("--tier") == "fast" else 2)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `--dist=loadgroup`, the default, a scheduler of ours; else xdist's."""
    return GroupScheduling(config, log) if config.getvalue("dist") == "loadgroup" else None


_WATCH = Watch()


@pytest.fixture(autouse=True)
def nothing_outside() -> Iterator[None]:
    """Fails a test during which this process made or removed a file outside of the directories meant for that."""
    _WATCH.strange.clear()
    yield
    assert _WATCH.strange == []


@pytest.fixture(scope="module", params=["python", "compiled"])
def either_way(request: pytest.FixtureRequest) -> Iterator[None]:
    """Once by the rules in Python, and once by their compiled form."""
    is_compiled = request.param == "compiled"
    if is_compiled and not IS_COMPILED:
        pytest.skip("needs the extension modules")
    with form(compiled=is_compiled):
        yield


@pytest.fixture
def rocketmq() -> Iterator[Callable[[str], RocketMQ]]:
    """`rocketmq("5.5.0")`: the real release. Skips where it cannot be had, unless MQTOOL_REQUIRE_INTEROP is set.

    Brokers that the test leaves running are killed.
    """
    used: list[RocketMQ] = []

    def get(version: str) -> RocketMQ:
        try:
            used.append(release(version))
        except Unavailable as reason:
            if os.environ.get("MQTOOL_REQUIRE_INTEROP"):
                raise
            pytest.skip(str(reason))
        return used[-1]

    yield get
    for one in used:
        one.close()


@pytest.fixture
def in_memory() -> Iterator[Path]:
    """A new directory in memory, where there is some: for tests that sync a great deal."""
    found = fast_directory()
    yield found
    remove(found)


@pytest.fixture
def damaged(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """`damaged("tail-torn@5.5.0-crash")`: path of that damaged store; its lock is held if the case wants it."""
    with contextlib.ExitStack() as stack:

        def build(case_id: str) -> Path:
            store = damage_case(case_id, tmp_path / f"damaged-{case_id.replace('@', '-')}")
            stack.enter_context(held_locks(CASES[case_id], store))
            return store

        yield build
