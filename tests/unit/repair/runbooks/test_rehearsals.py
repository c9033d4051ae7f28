"""Every runbook on a store of the real broker with its fault: looked at, carried out, proved, taken back."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import mqtool
from mqtool.repair import undo
from mqtool.repair.runbooks import RUNBOOKS, Request, run
from mqtool.verify import Severity, verify
from tests.support.damage import base_config, damage_case
from tests.support.stores import copy_store, tree_digest


@dataclass(frozen=True)
class Rehearsal:
    """A fault and what a runbook makes of it.

    Attributes:
        book: id.
        fault: damage case, or a store in fixtures.
        more: does further harm.
        request: beside apply and yes.
    """

    book: str
    fault: str
    more: Callable[[Path], Any] = field(default=lambda _root: None)
    request: Request = field(default_factory=Request)

    def build(self, tmp_path: Path) -> Path:
        """Makes the store with the fault."""
        root = damage_case(self.fault, tmp_path) if "@" in self.fault else copy_store(self.fault, tmp_path)
        self.more(root)
        return root


def drop_topic(root):
    """As a deletion by mistake leaves it: neither queues nor configuration, only the log."""
    shutil.rmtree(root / "consumequeue" / "Audit")
    (root / "config" / "topics.json.bak").unlink(missing_ok=True)


def empty_queue_file(root):
    """A last file of zeros, as a crash between making and writing it leaves it."""
    last = max((root / "consumequeue" / "Orders" / "0").iterdir())
    following = last.with_name(f"{int(last.name) + last.stat().st_size:020}")
    following.write_bytes(bytes(last.stat().st_size))


IN_PLACE = {
    "stray file": Rehearsal(
        "RB-01", "none@5.5.0-clean", lambda root: (root / "commitlog" / ".DS_Store").write_bytes(b"x")
    ),
    "short segment made ahead": Rehearsal("RB-01", "segment-extra-short@4.9.7-clean"),
    "queue file of odd length": Rehearsal("RB-01", "cq-odd-length@5.5.0-clean"),
    "hole in a queue": Rehearsal("RB-02", "cq-hole@5.5.0-clean"),
    "unit of another message": Rehearsal("RB-02", "cq-wrong-target@4.9.7-clean"),
    "garbage unit": Rehearsal("RB-02", "cq-garbage-middle@5.5.0-clean"),
    "queue directory gone": Rehearsal("RB-03", "cq-queue-missing@5.5.0-clean"),
    "topic directory gone": Rehearsal("RB-03", "cq-topic-missing@4.9.7-clean"),
    "last queue file gone": Rehearsal("RB-03", "cq-file-missing-last@5.5.0-clean"),
    "torn tail": Rehearsal("RB-04", "tail-torn@5.5.0-crash"),
    "stale tail": Rehearsal("RB-04", "tail-stale@4.9.7-clean"),
    "garbage tail": Rehearsal("RB-04", "tail-garbage@5.5.0-crash"),
    "index gone": Rehearsal("RB-06", "index-missing@5.5.0-clean", request=Request(config=base_config("5.5.0-clean"))),
    "index in a circle": Rehearsal("RB-06", "index-slot-loop@4.9.7-clean"),
    "index header": Rehearsal("RB-06", "index-header-garbage@5.5.0-clean"),
    "empty last queue file": Rehearsal("RB-07", "none@4.9.7-clean", empty_queue_file),
    "crashed 5.5": Rehearsal("RB-08", "none@5.5.0-crash"),
    "crashed 4.9": Rehearsal("RB-08", "none@4.9.7-crash"),
    "topics torn": Rehearsal("RB-09", "config-topics-torn-both@5.5.0-clean"),
    "offsets torn": Rehearsal("RB-09", "config-offsets-torn-both@4.9.7-clean"),
    "topic deleted": Rehearsal("RB-10", "config-topics-lack-audit@5.5.0-clean", drop_topic),
    "disk full": Rehearsal("RB-11", "none@5.5.0-clean", request=Request(used=95, before=16384)),
    "one body": Rehearsal("RB-21", "none@5.5.0-clean", request=Request(at=0)),
}


@pytest.fixture(params=list(IN_PLACE))
def rehearsal(request):
    return IN_PLACE[request.param]


@pytest.mark.slow
def test_a_dry_run_plans_and_changes_nothing(rehearsal, tmp_path):
    root = rehearsal.build(tmp_path)
    before = tree_digest(root)
    found = run(RUNBOOKS[rehearsal.book], root, rehearsal.request)
    assert found.present
    assert found.plan is not None
    assert [step.name for step in found.steps] == ["detect", "explain", "plan", "gate", "apply"]
    assert found.step("apply").status == "skipped"
    assert tree_digest(root) == before


def test_it_is_refused_without_a_word_about_a_backup(tmp_path):
    root = damage_case("cq-queue-missing@5.5.0-clean", tmp_path)
    before = tree_digest(root)
    found = run(RUNBOOKS["RB-03"], root, Request(apply=True))
    assert found.step("gate").status == "refused"
    assert "backup" in found.step("gate").summary
    assert not found.applied
    assert tree_digest(root) == before


@pytest.mark.long
@pytest.mark.slow
def test_it_is_mended_proved_and_taken_back(rehearsal, tmp_path):
    root = rehearsal.build(tmp_path)
    before = tree_digest(root)
    request = replace(rehearsal.request, apply=True, backup_acknowledged=True)
    found = run(RUNBOOKS[rehearsal.book], root, request)
    assert found.repaired, found.markdown()
    assert found.step("verify").status == "done"
    with mqtool.open(root) as store:
        errors = {one.code for one in verify(store).findings if one.severity is Severity.ERROR}
    assert not errors
    assert found.losses.by_change == 0
    undo(root)
    assert tree_digest(root) == before


HEALTHY = [book for book in RUNBOOKS if book not in ("RB-12", "RB-16", "RB-22", "RB-14", "RB-21")]


@pytest.mark.slow
@pytest.mark.parametrize("book", HEALTHY)
def test_a_store_without_the_symptom_is_left_alone(book, healthy):
    root, digest = healthy
    found = run(RUNBOOKS[book], root, Request(apply=True, backup_acknowledged=True, used=50))
    assert not found.present
    assert [step.status for step in found.steps] == ["refused"]
    assert tree_digest(root) == digest


@pytest.fixture(scope="module")
def healthy(tmp_path_factory):
    root = copy_store("orders-5.5.0", tmp_path_factory.mktemp("healthy"))
    return root, tree_digest(root)
