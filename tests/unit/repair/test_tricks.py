"""Plans and journals that somebody has made up never lead outside of the store directory."""

import contextlib
import hashlib
import json
import os
import shutil

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mqtool.errors import MqtoolError, RefusedError
from mqtool.repair import Plan, RebuildQueues, SetAside, apply, discard_undo, make_plan, undo
from mqtool.repair.paths import HOME, inside
from tests.support.stores import copy_store, tree_digest

TRICKS = (
    "../outside/secret",
    "/etc/passwd",
    "commitlog/../../outside/secret",
    "..",
    ".",
    "",
    "a//b",
    "/",
    "link/secret",
    "link",
    "config/link",
    "\0",
    "a\0b",
    ".mqtool/journal",
    ".mqtool/quarantine/x",
    "lock",
    "x" * 5000,
    "/".join(["d"] * 60),
    7,
    None,
    ["a"],
    {"a": 1},
)
OUTSIDE = "outside"


@pytest.fixture
def tmp_path(in_memory):
    """Changes sync a great deal."""
    return in_memory


@pytest.fixture
def places(tmp_path):
    """A store beside a directory that it has links to, and a plan for it."""
    root = copy_store("rollover-5.5.0", tmp_path)
    outside = tmp_path / OUTSIDE
    outside.mkdir()
    (outside / "secret").write_text("keep")
    (root / "link").symlink_to(outside)
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "link").symlink_to(outside / "secret")
    shutil.rmtree(root / "consumequeue" / "Roll" / "0")
    return root, outside, make_plan(root, [RebuildQueues(("Roll",)), SetAside(("checkpoint",))])


def signed(document):
    """A plan's document with a digest that fits."""
    document = {name: value for name, value in document.items() if name != "digest"}
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return {**document, "digest": hashlib.sha256(text.encode()).hexdigest()}


def chained(lines):
    """A journal's lines with sums that fit."""
    chain, made = "", []
    for one in lines:
        line = {name: value for name, value in one.items() if name != "sum"}
        chain = hashlib.sha256((chain + json.dumps(line, sort_keys=True, separators=(",", ":"))).encode()).hexdigest()[
            :16
        ]
        made.append(json.dumps({**line, "sum": chain}))
    return "\n".join(made) + "\n"


def replaced(value, path, new):
    """A copy of a JSON value with another value at a path."""
    if not path:
        return new
    if isinstance(value, dict):
        return {name: replaced(one, path[1:], new) if name == path[0] else one for name, one in value.items()}
    return [replaced(one, path[1:], new) if number == path[0] else one for number, one in enumerate(value)]


def paths_in(value, path=()):
    """Every place in a JSON value."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, one in items:
        yield from paths_in(one, (*path, name))


@pytest.mark.slow
@pytest.mark.parametrize(
    "where",
    [("steps", 0, "path"), ("reads", 0, "path"), ("changes", 1, "files", 0), ("store",)],
    ids=["step", "read", "change", "store"],
)
def test_a_plan_with_a_path_that_leads_elsewhere_is_refused(places, where):
    root, outside, plan = places
    before = tree_digest(root), tree_digest(outside)
    for trick in TRICKS:
        forged = json.dumps(signed(replaced(json.loads(plan.to_json()), where, trick)))
        with pytest.raises(MqtoolError):
            apply(Plan.from_json(forged), backup_acknowledged=True, verify_after=False)
        assert (tree_digest(root), tree_digest(outside)) == before, trick


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in TRICKS if isinstance(name, str)], ids=lambda name: ascii(name)[:20])
def test_no_trick_names_a_file_of_the_store(places, name):
    with pytest.raises(RefusedError):
        inside(places[0], name)


def test_a_store_whose_directory_is_a_link_is_planned_for_where_it_is_and_its_links_are_not_followed(places, tmp_path):
    root, outside, _ = places
    (tmp_path / "door").symlink_to(root)
    assert make_plan(tmp_path / "door", SetAside(("checkpoint",))).store == str(root)
    shutil.move(root / "consumequeue", outside / "consumequeue")
    (root / "consumequeue").symlink_to(outside / "consumequeue")
    before = tree_digest(outside)
    with pytest.raises(RefusedError, match="symbolic link"):
        make_plan(root, RebuildQueues())
    assert tree_digest(outside) == before


def test_a_journal_of_another_release_is_refused(places):
    root, _, plan = places
    journal = apply(plan, backup_acknowledged=True, verify_after=False).journal
    first, *others = map(json.loads, journal.read_text().splitlines())
    journal.write_text(chained([first | {"schema_version": 2}, *others]))
    before = tree_digest(root)
    with pytest.raises(RefusedError, match="journal: line 1 was written by an unknown release of mqtool"):
        undo(root)
    assert tree_digest(root) == before


@pytest.mark.parametrize("ending", [undo, discard_undo], ids=["undo", "discard-undo"])
def test_links_below_what_is_ours_are_removed_and_not_followed(places, ending):
    root, outside, plan = places
    done = apply(plan, backup_acknowledged=True, verify_after=False)
    (done.quarantine / "directory").symlink_to(outside)
    (done.quarantine / "file").symlink_to(outside / "secret")
    ending(root)
    assert not (root / HOME).exists()
    assert [path.name for path in outside.iterdir()] == ["secret"]
    assert (outside / "secret").read_text() == "keep"


@pytest.mark.parametrize("part", ["", "quarantine", "staging", "building"])
def test_what_is_ours_being_a_link_is_refused(places, part):
    root, outside, plan = places
    (root / HOME / part).parent.mkdir(exist_ok=True)
    (root / HOME / part).symlink_to(outside)
    before = tree_digest(outside)
    for action in (lambda: apply(plan, backup_acknowledged=True), lambda: undo(root), lambda: discard_undo(root)):
        with pytest.raises(RefusedError):
            action()
    assert tree_digest(outside) == before


FORGED = [("time",), ("barrier",), ("made", 0), ("directories",), ("plan", "steps", 0, "path"), ("plan", "inode")]


@pytest.mark.slow
@pytest.mark.parametrize("where", FORGED, ids=lambda where: "-".join(map(str, where)))
@pytest.mark.parametrize("ending", [undo, discard_undo], ids=["undo", "discard-undo"])
def test_a_journal_with_a_path_that_leads_elsewhere_is_refused(places, where, ending):
    root, outside, plan = places
    journal = apply(plan, backup_acknowledged=True, verify_after=False).journal
    lines = [json.loads(line) for line in journal.read_text("utf-8").splitlines()]
    lines[0]["made"] = ["consumequeue/new"]
    (root / HOME / "spare").mkdir()
    for trick in TRICKS:
        if (where, trick) in ((("barrier",), None), (("made", 0), "a"), (("directories",), "")):
            continue
        new = {str(trick): 5} if where == ("directories",) else trick
        forged = replaced(lines[0], where, new)
        forged["plan"] = signed(forged["plan"])
        journal.write_text(chained([forged, *lines[1:]]), "utf-8")
        before = tree_digest(outside), tree_digest(root)
        with contextlib.suppress(MqtoolError):
            ending(root)
            pytest.fail(f"{trick!r} was not refused")
        assert (tree_digest(outside), tree_digest(root)) == before, trick


MAX = int(os.environ.get("MQTOOL_TRICKS", "20"))
_JSON = st.sampled_from(TRICKS) | st.text(max_size=8) | st.integers() | st.booleans() | st.none()


@pytest.mark.slow
@settings(max_examples=MAX, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_plans_and_journals_with_anything_in_any_place_change_nothing_outside(places, data):
    root, outside, plan = places
    before = tree_digest(outside)
    pristine = root.with_name("pristine")
    if not pristine.exists():
        shutil.copytree(root, pristine, symlinks=True)
    document = json.loads(plan.to_json())
    where = data.draw(st.sampled_from(sorted(paths_in(document), key=str)))
    forged = replaced(document, where, data.draw(_JSON))
    with contextlib.suppress(MqtoolError):
        text = json.dumps(signed(forged) if isinstance(forged, dict) else forged)
        apply(Plan.from_json(text), backup_acknowledged=True, verify_after=False)
    if not (root / HOME).exists():
        apply(plan, backup_acknowledged=True, verify_after=False)
    journal = root / HOME / "journal"
    whole = journal.read_text("utf-8")
    lines = [json.loads(line) for line in whole.splitlines()]
    number = data.draw(st.integers(0, len(lines) - 1))
    where = data.draw(st.sampled_from(sorted(paths_in(lines[number]), key=str)))
    forged = replaced(lines[number], where, data.draw(_JSON))
    if isinstance(forged, dict):
        if isinstance(forged.get("plan"), dict):
            forged["plan"] = signed(forged["plan"])
        journal.write_text(chained([*lines[:number], forged, *lines[number + 1 :]]), "utf-8")
        for ending in (discard_undo, undo):
            with contextlib.suppress(MqtoolError):
                ending(root)
    if journal.exists():
        journal.write_text(whole, "utf-8")
        with contextlib.suppress(MqtoolError):
            undo(root)
    assert tree_digest(outside) == before
    assert (root / "link").is_symlink()
    for path in root.iterdir():
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    shutil.copytree(pristine, root, symlinks=True, dirs_exist_ok=True)
