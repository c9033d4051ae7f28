"""`mqtool repair`: the diagnosis, the one plan, the one alternative, and the way back."""

import os
import re
import shlex
import shutil
import subprocess

import pytest

import mqtool as library
from mqtool.cli.exits import ExitCode
from tests.cli.answers import problems
from tests.support.damage import base_config, base_messages, damage_answers, damage_case, held_lock
from tests.support.permissions import without_rights
from tests.support.stores import copy_store, fixture, tree_digest
from tests.support.terminal import run_on_terminal
from tests.support.unreadable import unreadable

FLIPPED = "recent-flip-body@4.9.7-clean"


def bodies(root):
    with library.open(root) as store:
        return {(m.topic, m.queue_id, m.queue_offset, m.body) for m in store.messages() if hasattr(m, "body")}


@pytest.fixture
def broken(tmp_path):
    """A store without one queue and without its index."""
    root = copy_store("orders-5.5.0", tmp_path)
    shutil.rmtree(root / "consumequeue" / "Orders" / "2")
    shutil.rmtree(root / "index")
    return root


def test_a_store_that_a_plan_repairs_is_repaired_in_place_and_the_repair_can_be_undone(mqtool, broken):
    before = tree_digest(broken)
    shown = mqtool("repair", broken, "--dry-run", "--json").document
    assert (shown["status"], shown["reason"], shown["dry_run"], shown["result"]) == ("corrupt", None, True, None)
    assert shown["changes"] == ["rebuild-consumequeue", "rebuild-index"]
    assert (shown["already_lost"], shown["lost_by_change"]) == (0, 0)
    assert (shown["lost_by_start"], shown["not_served"]) == (0, 12), "records of Orders/2"
    assert tree_digest(broken) == before
    done = mqtool("repair", broken, "--yes", "--json").document
    assert (done["result"], done["left"], done["files"]) == ("clean", [], shown["files"])
    assert mqtool("verify", broken).code == ExitCode.OK
    assert mqtool(*shlex.split(done["undo"])[1:]).code == ExitCode.OK
    assert tree_digest(broken) == before


def test_a_repair_prints_commands_with_the_path_that_was_typed(mqtool, broken, monkeypatch):
    monkeypatch.chdir(broken.parent)
    done = mqtool("repair", broken.name, "--yes", "--json").document
    assert (done["undo"], done["next_steps"]) == ("mqtool undo store --yes", ["mqtool explain-start store"])
    assert mqtool("undo", broken.name, "--yes", "--json").document["next_steps"] == ["mqtool verify store"]
    assert mqtool("plan", "repair", broken.name, "-o", "plan.json").code == ExitCode.OK
    applied = mqtool("apply", "plan.json", "--yes", "--json").document
    assert (applied["undo"], applied["next_steps"]) == (done["undo"], done["next_steps"])
    discarded = mqtool("discard-undo", broken, "--yes", "--json").document
    assert discarded["next_steps"] == [f"mqtool explain-start {broken}"]


def test_a_repair_names_topics_in_which_no_group_has_a_position(mqtool, broken, monkeypatch):
    monkeypatch.chdir(broken.parent)
    shutil.rmtree(broken / "consumequeue" / "Payments")
    with (broken / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(next(m.physical_offset for m in library.open(broken).messages() if m.topic == "Keyed") + 90)
        file.write(b"\xff")
    text = " ".join(mqtool("repair", broken, "--yes").text.split())
    assert "No group has a position in Payments: " in text, "groups have one in Orders; Keyed is not repaired"
    plan = ("plan", "offsets", broken, "--group", "g", "--topic", "Payments", "--to", "earliest", "-o", "plan.json")
    assert mqtool(*plan).code == ExitCode.REFUSED
    (discard,) = re.findall(r"`mqtool (discard-undo [^`]+)`", text)
    assert mqtool(*shlex.split(discard)).code == ExitCode.OK
    assert mqtool(*plan).code == ExitCode.OK
    assert mqtool("help", *re.findall(r"`mqtool help (\S+)`", text)).code == ExitCode.OK


def test_a_missing_config_has_one_answer_that_leads_to_a_clean_store(mqtool, tmp_path, monkeypatch):
    monkeypatch.chdir(copy_store("orders-5.5.0", tmp_path).parent)
    shutil.rmtree("store/config")
    before = tree_digest(tmp_path / "store")
    verified, shown = (mqtool(name, "store", "--json").document for name in ("verify", "repair"))
    assert shown["reason"].startswith("config/ is missing: copy it from a backup or a replica. Without one, rebuild it")
    assert verified["next_steps"] == shown["next_steps"] == ["mqtool plan rebuild metadata store -o plan.json"]
    assert mqtool(*shlex.split(shown["next_steps"][0])[1:]).code == ExitCode.OK
    assert mqtool("apply", "plan.json", "--yes", "--json").document["status"] == "clean"
    assert mqtool("undo", "store", "--yes").code == ExitCode.OK
    assert tree_digest(tmp_path / "store") == before


def test_the_text_is_ten_lines(mqtool, broken):
    lines = mqtool("repair", broken).text.splitlines()
    assert len(lines) <= 10
    assert lines[0] == f"{broken}: corrupt"
    text = " ".join(" ".join(lines).split())
    assert re.search(r"a start of 5\.5 loses no message; 12 are not served: .*; do not start the broker", text)
    assert lines[-1] == f"next: mqtool repair {broken} --yes"


def test_where_no_plan_is_enough_a_new_store_is_the_one_alternative(mqtool, tmp_path, monkeypatch):
    """The numbers are those of the real broker: it cut the log at the flipped bit."""
    root = damage_case(FLIPPED, tmp_path)
    before, config = tree_digest(root), base_config(FLIPPED.partition("@")[2])
    lost = damage_answers("4.9.7", None)[FLIPPED]["lost"]
    shown = mqtool("repair", root, "--config", config, "--json")
    assert (shown.code, shown.document["changes"], bool(shown.document["reason"])) == (ExitCode.NO, [], True)
    said = " ".join(mqtool("repair", root, "--config", config, "--dry-run").text.split())
    assert f"No repair in place: {shown.document['reason']}; the only way is a new store with every record" in said
    assert shown.document["already_lost"] == 1
    by_start = sum(last - first + 1 for ranges in lost.values() for first, last in ranges)
    assert shown.document["already_lost"] + shown.document["lost_by_start"] == by_start
    (step,) = shown.document["next_steps"]
    assert step == f"mqtool repair {root} --config {config} -o {root}.new --yes"
    step = step.removesuffix(" --yes")
    refused = mqtool(*shlex.split(step)[1:])
    assert (refused.code, root.with_name(f"{root.name}.new").exists()) == (ExitCode.REFUSED, False)
    made = mqtool(*shlex.split(step)[1:], "--yes", "--json")
    assert (made.code, made.document["left"], made.document["undo"]) == (ExitCode.NO, [], None), "one is lost"
    whole = bodies(damage_case("none@4.9.7-clean", tmp_path / "whole"))
    assert len(whole - bodies(root.with_name(f"{root.name}.new"))) == 1
    assert tree_digest(root) == before


def test_a_first_plan_is_not_offered_where_those_that_follow_it_would_lose_messages(mqtool, tmp_path):
    """A torn end, which a plan repairs, and a flipped bit, at which a start after a crash cuts the log."""
    root = copy_store("crash-4.9.7", tmp_path)
    with library.open(root) as store:
        end, flipped = store.commit_log.max_offset, next(store.messages(limit=1))
        last = store.commit_log.segments[store.commit_log.last_used]
    segments = root / "commitlog"
    with (segments / f"{0:020d}").open("r+b") as file:
        file.seek(flipped.physical_offset + 90)
        file.write(b"\xff")
    with last.path.open("r+b") as file:
        file.seek(end - last.base + 4000)
        file.write(b"\xff")
    before = tree_digest(root)
    refused = mqtool("plan", "repair", root, "-o", tmp_path / "plan.json")
    assert (refused.code, str(root) in refused.stderr, "mqtool-preview" in refused.stderr) == (
        ExitCode.REFUSED,
        True,
        False,
    )
    assert mqtool("verify", root, "--json").document["next_steps"] == [f"mqtool repair {root} -o {root}.new"]
    shown = mqtool("repair", root, "--yes", "--json")
    assert (shown.code, shown.document["changes"]) == (ExitCode.NO, [])
    assert (
        shown.document["next_steps"] == [f"mqtool repair {root} -o {root}.new --yes"] == [shown.document["new_store"]]
    )
    assert tree_digest(root) == before


def test_a_repair_in_place_that_leaves_an_error_names_what_follows_it(mqtool, broken):
    """A flipped bit that a start does not read, and that no change of files repairs."""
    with library.open(broken) as store:
        flipped = list(store.messages())[300].physical_offset
    with (broken / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(flipped + 90)
        file.write(b"\xff")
    follows = f"mqtool repair {broken} --release 5.5 -o {broken}.new"
    shown = mqtool("repair", broken, "--release", "5.5", "--json").document
    assert (shown["left"], shown["then"], shown["new_store"]) == (["log-bad-body"], None, f"{follows} --yes")
    text = mqtool("repair", broken, "--release", "5.5").text
    assert "Choose: in place, the broker can start, and 1 error stays (log-bad-body);" in text.splitlines()
    in_place = f"in place: mqtool repair {broken} --release 5.5 --yes"
    assert text.splitlines()[-2:] == [in_place, f"to a new store: {follows} --yes"]
    done = mqtool("repair", broken, "--release", "5.5", "--yes", "--json")
    assert (done.code, done.document["left"], done.document["next_steps"]) == (ExitCode.NO, ["log-bad-body"], [follows])
    for words, yes in ((("verify",), ""), (("repair", "--dry-run"), " --yes")):
        again = mqtool(words[0], broken, *words[1:], "--release", "5.5", "--json").document
        assert again["next_steps"] == [follows + yes]
    made = mqtool(*shlex.split(follows)[1:], "--yes", "--json").document
    assert (made["complete"], sum(row["messages"] for row in made["lost"])) == (False, 1)


def test_repair_names_the_new_store_where_verify_does_not_try_a_plan(mqtool, tmp_path, monkeypatch):
    """Beyond a size of the log or a number of findings `verify` goes by their codes; it was a circle."""
    monkeypatch.setattr("mqtool.repair.from_findings.TRIED_FINDINGS", 0)
    root = copy_store("orders-5.5.0", tmp_path)
    os.truncate(root / "commitlog" / "00000000000000262144", 70_000)
    first = "00000000000000262144 ends inside a record, as a copy does that was interrupted: copy it again "
    for name in ("verify", "repair", "explain-start"):
        assert f"\ncommitlog/{first}" in mqtool(name, root).text
    (gap,) = (row for row in mqtool("verify", root, "--json").document["findings"] if "missing" in row["code"])
    assert gap["evidence"].startswith("61072 bytes are missing between 00000000000000262144 and 00000000000000393216")
    assert mqtool("verify", root, "--json").document["next_steps"] == [f"mqtool repair {root}"]
    assert mqtool("repair", root, "--json").document["next_steps"] == [f"mqtool repair {root} -o {root}.new --yes"]


def test_a_short_last_segment_gets_its_size_with_the_cut_of_its_torn_end(mqtool, tmp_path):
    root = copy_store("crash-4.9.7", tmp_path)
    with library.open(root) as store:
        last = store.commit_log.segments[store.commit_log.last_used]
    os.truncate(last.path, 9_000)
    done = mqtool("repair", root, "--yes", "--json").document
    assert (done["changes"], done["left"], done["result"]) == (["truncate", "record-losses"], [], "dirty")
    lost = sum(row["messages"] for row in done["lost"])
    assert mqtool("verify", root, "--json").document["known_lost"] == lost > 0
    assert last.path.stat().st_size == last.size
    assert mqtool("explain-start", root).code == ExitCode.OK


def test_batch_queues_without_any_configuration_are_an_error_that_is_repaired(mqtool, tmp_path):
    """A broker does not start: only topics.json states the type of a queue."""
    root = copy_store("bcq-5.5.0", tmp_path)
    before = mqtool("explain-start", root).code
    shutil.rmtree(root / "config")
    assert (before, mqtool("explain-start", root).code) == (ExitCode.OK, ExitCode.NO)
    done = mqtool("repair", root, "--yes", "--json").document
    assert (done["changes"], done["left"]) == (["rebuild-metadata"], [])
    assert mqtool("explain-start", root).code == ExitCode.OK


def test_a_new_store_without_the_old_configuration_is_of_the_old_release_and_keeps_its_compacted_topics(
    mqtool, tmp_path
):
    root = copy_store("compaction-5.5.0", tmp_path)
    with library.open(root) as store:
        compacted = {name for name, config in store.metadata.topics.items() if config.is_compacted}
    assert compacted
    shutil.rmtree(root / "config")
    assert mqtool("salvage", root, "-o", tmp_path / "new").code == ExitCode.OK
    with library.open(tmp_path / "new") as store:
        assert {name for name, config in store.metadata.topics.items() if config.is_compacted} == compacted
        assert store.version.line != "4.9"


def test_the_commands_at_the_end_put_the_new_store_in_place_and_it_is_clean(mqtool, tmp_path):
    root = damage_case("segment-missing-middle@5.5.0-clean", tmp_path)
    done = mqtool("repair", root, "-o", f"{root}.new", "--yes", "--json").document
    *checks, aside, place = done["next_steps"]
    assert (aside, place) == (f"mv {root} {root}.old", f"mv {root}.new {root}")
    assert not done["complete"]
    assert all(mqtool(*shlex.split(step)[1:]).code == ExitCode.OK for step in checks)
    subprocess.run(f"{aside} && {place}", shell=True, check=True)
    assert mqtool("verify", root, "--json").document["known_lost"] == 44
    assert mqtool("repair", root, "--json").document["status"] == "clean"


def test_a_new_store_gets_the_owner_of_the_old_one(mqtool, tmp_path, monkeypatch):
    root = copy_store("rollover-5.5.0", tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: root.stat().st_uid + 1)
    steps = mqtool("salvage", root, "-o", f"{root}.new", "--json").document["next_steps"]
    assert steps[2:] == [
        f"chown -R --reference={root} {root}.new",
        f"mv {root} {root}.old",
        f"mv {root}.new {root}",
    ]


def test_a_new_store_is_not_put_in_the_place_of_one_that_a_broker_uses_or_whose_log_is_elsewhere(mqtool, tmp_path):
    root = copy_store("rollover-5.5.0", tmp_path)
    (root / "lock").touch()
    with held_lock(root / "lock"):
        used = mqtool("salvage", root, "-o", tmp_path / "first", "--json").document
    (root / "commitlog").rename(tmp_path / "log")
    config = tmp_path / "broker.conf"
    config.write_text(f"storePathRootDir={root}\nstorePathCommitLog={tmp_path / 'log'}\n")
    elsewhere = mqtool("salvage", root, "-o", tmp_path / "second", "--config", config, "--json").document
    assert [len(document["next_steps"]) for document in (used, elsewhere)] == [2, 2]
    assert not any(step.startswith("mv") for document in (used, elsewhere) for step in document["next_steps"])


def test_a_killed_store_needs_nothing_but_a_start(mqtool, tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    (root / "abort").touch()
    result = mqtool("repair", root)
    assert (result.code, "nothing to repair" in result.text.splitlines()) == (ExitCode.OK, True)


def test_a_delayed_message_that_is_lost_leaves_no_error_in_the_new_store(mqtool, tmp_path):
    """Its unit becomes a copy of the next one, whose tags code is the time of delivery."""
    root = copy_store("orders-4.9.7", tmp_path)
    with library.open(root) as store:
        delayed = (m for m in store.messages() if (m.topic, m.queue_id) == ("SCHEDULE_TOPIC_XXXX", 0))
        lost = next(message for message in delayed if message.queue_offset == 1)
        segment = next(part for part in store.commit_log.segments if part.base <= lost.physical_offset < part.end)
    with segment.path.open("r+b") as file:
        file.seek(lost.physical_offset - segment.base + 88)
        file.write(bytes([lost.body[0] ^ 1]))
    assert mqtool("repair", root, "-o", tmp_path / "new", "--yes").code == ExitCode.NO, "a message is lost"
    checked = mqtool("verify", tmp_path / "new", "--json").document
    assert [row["code"] for row in checked["findings"] if row["severity"] == "error"] == []
    assert "queue-filled-hole" in {row["code"] for row in checked["findings"]}


def test_another_copy_gives_back_what_is_lost(mqtool, tmp_path):
    root, copy = damage_case(FLIPPED, tmp_path / "a"), damage_case("none@4.9.7-clean", tmp_path / "b")
    made = mqtool("repair", root, "-o", tmp_path / "new", "--with", copy, "--yes", "--json")
    assert made.code == ExitCode.OK, made.stderr
    assert bodies(tmp_path / "new") == bodies(copy)
    alone = mqtool("repair", root, "--with", copy)
    assert (alone.code, "add -o NEW" in alone.stderr) == (ExitCode.USAGE, True)


@pytest.mark.parametrize(
    "words",
    [("salvage", "STORE"), ("repair", "STORE", "--yes"), ("runbook", "run", "RB-05", "STORE", "--yes")],
    ids=str,
)
def test_a_new_store_that_lacks_a_message_ends_with_1_whatever_made_it(mqtool, tmp_path, words):
    root, copy = damage_case(FLIPPED, tmp_path / "a"), damage_case("none@4.9.7-clean", tmp_path / "b")
    words = [str(root) if word == "STORE" else word for word in words]
    assert mqtool(*words, "-o", tmp_path / "lossy").code == ExitCode.NO
    assert mqtool(*words, "-o", tmp_path / "new", "--with", copy).code == ExitCode.OK
    assert (len(bodies(copy) - bodies(tmp_path / "lossy")), bodies(tmp_path / "new")) == (1, bodies(copy))


def test_an_intact_store_needs_nothing(mqtool):
    store = fixture("orders-5.5.0/store")
    result = mqtool("fix", store)
    config = f"broker.conf: {store.parent / 'broker.conf'}"
    assert (result.code, result.text.splitlines()[1:]) == (ExitCode.OK, [config, "nothing to repair"])


def test_a_store_in_use_is_left_alone(mqtool, broken):
    with held_lock(broken / "lock"):
        result = mqtool("repair", broken, "--yes")
    assert (result.code, "stop it first" in result.stderr) == (ExitCode.REFUSED, True)


def test_json_has_the_documented_fields_and_no_others(mqtool, broken):
    assert problems("repair", mqtool("repair", broken, "--json").document) == []
    assert problems("repair", mqtool("repair", broken, "--yes", "--json").document) == []


@pytest.mark.slow
def test_every_command_counts_the_losses_of_a_store_alike(mqtool, tmp_path):
    """A queue is missing, and a start of the broker cuts the log at a flipped bit."""
    root = damage_case("recent-flip-body@4.9.7-clean", tmp_path)
    shutil.rmtree(root / "consumequeue" / "Orders" / "0")
    config = ("--config", base_config("4.9.7-clean"), "--json")
    start = mqtool("verify", root, *config).document["next_start"]
    names = ("already_lost", "lost_by_start", "not_served")
    numbers = {name: start[name] for name in names}
    assert numbers["already_lost"] == 1
    assert numbers["lost_by_start"] > 40
    explained = mqtool("explain-start", root, *config).document
    lost, gone, unserved = (
        sum(last - first + 1 for ranges in explained[name].values() for first, last in ranges)
        for name in ("lost", "gone", "unserved")
    )
    assert numbers == dict(zip(names, (gone, lost - gone - unserved, unserved), strict=True))
    repair = mqtool("repair", root, *config).document
    assert {name: repair[name] for name in names} == numbers
    book = mqtool("runbook", "run", "RB-05", root, "-o", tmp_path / "new", "--yes", *config).document
    assert {name: book[name] for name in names} == numbers
    assert book["lost_by_change"] == 0


@pytest.mark.parametrize("words", [("--dry-run",), ()])
def test_a_new_store_is_not_promised_where_it_would_be_refused(mqtool, tmp_path, words):
    root = copy_store("orders-5.5.0", tmp_path)
    (tmp_path / "taken").mkdir()
    assert mqtool("repair", root, "-o", tmp_path / "taken", *words).code == ExitCode.REFUSED
    segment = root / "commitlog" / f"{131072:020}"
    segment.chmod(0)
    with without_rights():
        shown = mqtool("repair", root, "-o", tmp_path / "new", *words)
        done = mqtool("repair", root, "-o", tmp_path / "new", "--yes")
    segment.chmod(0o644)
    assert (shown.code, shown.stdout, shown.stderr) == (done.code, done.stdout, done.stderr)
    assert (shown.code, (tmp_path / "new").exists()) == (ExitCode.REFUSED, False)


def test_a_new_store_without_what_the_disk_does_not_give_back_is_not_called_repaired(mqtool, tmp_path, monkeypatch):
    root = copy_store("orders-5.5.0", tmp_path)
    with unreadable(monkeypatch, root / "commitlog" / f"{131072:020}", from_position=4096, until=8192):
        shown = mqtool("repair", root, "-o", tmp_path / "new", "--dry-run", "--json")
        done = mqtool("repair", root, "-o", tmp_path / "new", "--yes", "--json")
    assert "unreadable" in shown.document["wrong"][0]
    assert (done.code, done.document["left"]) == (
        ExitCode.NO,
        ["bytes that could not be read are missing; what they held is unknown"],
    )


def test_a_repair_names_the_messages_that_are_lost(mqtool, tmp_path):
    """The torn record is the last one of its queue, by the list of the broker that wrote the store."""
    name = "tail-torn@5.5.0-crash"
    root, config = damage_case(name, tmp_path), base_config("5.5.0-crash")
    last = max((line for line in base_messages("5.5.0-crash") if line["offset"] >= 0), key=lambda line: line["phy"])
    lost = [{"queue": f"{last['topic']}/{last['queue']}", "messages": 1, "offsets": str(last["offset"])}]
    done = mqtool("repair", root, "--config", config, "--yes", "--json").document
    assert (done["changes"], done["already_lost"], done["lost"]) == (["truncate", "record-losses"], 1, lost)
    assert mqtool("verify", root, "--config", config, "--json").document["known_lost"] == 1
    made = mqtool("repair", damage_case(name, tmp_path / "b"), "-o", tmp_path / "new", "--yes", "--json").document
    assert made["lost"] == lost


def test_a_store_that_was_moved_is_undone_and_a_copy_of_it_is_not(mqtool, broken, tmp_path):
    before = tree_digest(broken)
    assert mqtool("repair", broken, "--yes").code == ExitCode.OK
    moved = broken.rename(tmp_path / "moved")
    shutil.copytree(moved, tmp_path / "copy")
    refused = mqtool("undo", tmp_path / "copy", "--yes")
    assert refused.code == ExitCode.REFUSED
    assert f"the change was made to {broken}, but this is another directory: undo it there" in refused.stderr
    assert mqtool("undo", moved, "--yes").code == ExitCode.OK
    assert tree_digest(moved) == before


def test_sizes_that_broker_conf_lacks_are_the_defaults_of_the_broker(mqtool, tmp_path):
    """A real 5.5.0 ends with -3: it expects segments of 1 GiB and queue files of 6,000,000 bytes."""
    root = copy_store("orders-5.5.0", tmp_path)
    config = tmp_path / "broker.conf"
    config.write_text(f"mappedFileSizeTimerLog=52000\nstorePathRootDir={root}\n")
    started = mqtool("explain-start", root, "--json")
    assert (started.code, started.document["exit"]) == (ExitCode.NO, -3)
    found = mqtool("verify", root, "--json").document
    lines = [row["evidence"].partition("set ")[2] for row in found["findings"] if row["code"] == "lint-size"]
    assert {"mappedFileSizeCommitLog=131072", "mappedFileSizeConsumeQueue=2000"} <= set(lines)
    shown = mqtool("repair", root, "--json")
    assert (shown.code, "set mappedFileSizeCommitLog=131072" in shown.document["reason"]) == (ExitCode.NO, True)
    with config.open("a") as file:
        file.writelines(f"{line.replace(' and ', chr(10))}\n" for line in lines)
    assert mqtool("explain-start", root).code == mqtool("verify", root).code == ExitCode.OK


def test_the_state_is_coloured_on_a_terminal(tmp_path):
    root = damage_case("old-flip-body@5.5.0-clean", tmp_path)
    _, screen = run_on_terminal(["repair", str(root), "--dry-run"])
    assert f"\x1b[1;31m{root}: corrupt\x1b[0m\n" in screen
    _, screen = run_on_terminal(["repair", str(root), "--dry-run"], NO_COLOR="1")
    assert f"{root}: corrupt\n" in screen
    assert "\x1b[1;31m" not in screen


def test_a_repair_in_place_that_would_make_new_errors_gives_way_to_a_new_store(mqtool, tmp_path):
    """All messages of 23 queues are in the part that was cut off: with filler there, their units lead nowhere."""
    root, new = copy_store("orders-5.5.0", tmp_path), tmp_path / "new"
    os.truncate(root / "commitlog" / "00000000000000262144", 70_000)
    shown = mqtool("repair", root, "--dry-run", "--json")
    assert shown.code == ExitCode.NO
    assert shown.document["reason"] == "after a change in place there would be 23 x queue-dangling-unit"
    (step,) = shown.document["next_steps"]
    assert step.removesuffix(" --yes") == mqtool("verify", root, "--json").document["next_steps"][0]
    assert shlex.split(step)[-3:] == ["-o", f"{root}.new", "--yes"]
    done = mqtool("repair", root, "-o", new, "--yes", "--json").document
    assert (done["result"], sum(row["messages"] for row in done["lost"])) == ("clean", 146)
    assert bodies(new) == bodies(root)


def test_a_new_store_s_report_says_why_what_was_corrected_and_what_begins_at_0(mqtool, tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    with library.open(root) as store:
        messages, segments = list(store.messages()), store.commit_log.segments
    (moved,) = (one for one in messages if (one.topic, one.queue_id, one.queue_offset) == ("Orders", 0, 10))
    gone = [one for one in messages if (one.topic, one.queue_id) == ("Compressed", 0)]
    changes = [(moved, 27, b"\x7f"), *((one, 88, bytes(8)) for one in gone)]  # the queue offset's last byte; bodies
    for message, at, data in changes:
        segment = next(part for part in segments if part.base <= message.physical_offset < part.end)
        with segment.path.open("r+b") as file:
            file.seek(message.physical_offset - segment.base + at)
            file.write(data)
    reason = mqtool("repair", root, "--json").document["reason"]
    made = mqtool("repair", root, "-o", tmp_path / "new", "--yes")
    assert reason
    lines = made.text.splitlines()
    assert f"Why not in place: {reason}" in lines
    notes = [line.removeprefix("Note: ") for line in lines if line.startswith("Note: ")]
    assert any(f"physical offsets {moved.physical_offset} (queue_offset)" in note for note in notes)
    assert "no message of Compressed/0 is left: these queues begin at queue offset 0 again" in notes
    with library.open(tmp_path / "new") as store:
        assert store.queue("Compressed", 0) is None
