"""A predicted start beside what the real store did: the same fields in the same terms."""

import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from mqtool.formats import java
from mqtool.recovery import Outcome, predict
from mqtool.recovery.losses import ranges
from mqtool.recovery.reading import OK
from tests.support.damage import DamageCase, base_config, base_messages, damage_case, held_locks
from tests.support.stores import fixture, read_lines

ASKED = ("exit", "after_start", "queues", "lost", "deleted")
"""Fields that must agree in every case."""

MORE = (
    "hung",
    "counted",
    "refusal",
    "readable",
    "repeated",
    "runs",
    "index_after",
    "abort_after",
    "created",
    "changed",
    "checkpoint",
)
"""Further fields that are predicted."""

RACING = frozenset({"index_after", "created", "changed", "checkpoint"})
"""Fields that the real store itself does not give twice in some cases: see `races`."""

STARTS = {"4.9.7": ("4.9.7", None), "5.5.0": ("5.5.0", None), "4.9.7 by 5.5.0": ("5.5.0", "4.9.7")}
"""Recorded starts: by which release, and of a store of which older one."""

HEAP = 512 << 20
"""Of the Java process that gave the answers."""

UNNAMED_TABLES = "config/"
"""The whole broker writes its tables as it runs; which and when is not a question of recovery."""


def predicted(case: DamageCase, opened_by: str, more_keys: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Builds a case's store, predicts its start and returns the fields of an answer."""
    with tempfile.TemporaryDirectory() as folder:
        store = damage_case(case, Path(folder))
        with held_locks(case, store):
            return predicted_in(store, case, opened_by, more_keys)


def predicted_in(
    store: Path, case: DamageCase, opened_by: str, more_keys: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Predicts the start of a case's store, which is built and locked already; returns the fields of an answer."""
    keys = {**java.parse_properties(base_config(case.base).read_bytes()), **(more_keys or {})}
    outcome = predict(store, opened_by, keys, whole_broker=case.mode == "broker", heap_bytes=HEAP)
    return in_terms_of_answers(outcome, base_messages(case.base), str(store))


def in_terms_of_answers(outcome: Outcome, messages: list[dict[str, Any]], store: str) -> dict[str, Any]:
    """Returns a prediction as `run.py` would have written it down, `lost` and `readable` by the base's messages."""
    ours = {f"{m['topic']}/{m['queue']}" for m in messages}
    queues = {name: queue for name, queue in (outcome.queues or {}).items() if queue.max_offset or name in ours}
    offsets = {name: [queue.min_offset, queue.max_offset, queue.next_offset] for name, queue in queues.items()}
    runs = {name: [list(run) for run in outcome.readings[name].runs()] for name in queues} if outcome.runs else None
    return {
        "exit": outcome.exit,
        "hung": outcome.hung is not None,
        "refusal": outcome.refusal and _directories_of_4096_bytes(outcome.refusal, Path(store)).replace(store, "STORE"),
        "after_start": outcome.after_start and dict(zip(("min", "max"), outcome.after_start, strict=True)),
        "queues": offsets if outcome.runs else None,
        "runs": runs,
        "deleted": list(outcome.files.deleted),
        "created": _no_tables(outcome.files.created),
        "changed": _no_tables(outcome.files.changed),
        "index_after": [list(summary) for summary in outcome.index_after],
        "abort_after": outcome.abort_after,
        "checkpoint": _checkpoint(outcome),
        **_consumed(outcome, messages),
    }


def _directories_of_4096_bytes(refusal: str, store: Path) -> str:
    """Returns a refusal as it would be on the file system of the recorded starts; on others, directories have other sizes."""
    for path in store.glob("*/*/"):
        refusal = refusal.replace(f"{path} {path.stat().st_size} length", f"{path} 4096 length")
    return refusal


def _consumed(outcome: Outcome, messages: list[dict[str, Any]]) -> dict[str, Any]:
    if not outcome.runs:
        return {"lost": None, "counted": None, "readable": None, "repeated": None}
    served: dict[tuple[str, int], int] = {}
    for name, reading in outcome.readings.items():
        for physical in reading.physical[reading.states == OK].tolist():
            served[name, physical] = served.get((name, physical), 0) + 1
    lost: dict[str, list[int]] = {}
    repeated: dict[str, list[int]] = {}
    queued = [m for m in messages if m["offset"] >= 0]
    for message in queued:
        name = f"{message['topic']}/{message['queue']}"
        times = served.get((name, message["phy"]), 0)
        if times != 1:
            (repeated if times else lost).setdefault(name, []).append(message["offset"])
    readable = len(queued) - sum(map(len, lost.values()))
    known = {(f"{m['topic']}/{m['queue']}", m["offset"]) for m in queued}
    counted: dict[str, list[int]] = {}
    for name, runs in (outcome.lost or {}).items():
        here = [offset for first, last in runs for offset in range(first, last + 1) if (name, offset) in known]
        if here:
            counted[name] = here
    return {"lost": _ranges(lost), "counted": _ranges(counted), "repeated": _ranges(repeated), "readable": readable}


def _ranges(offsets: Mapping[str, Iterable[int]]) -> dict[str, list[list[int]]]:
    return {name: [list(one) for one in ranges(numbers)] for name, numbers in sorted(offsets.items())}


def _checkpoint(outcome: Outcome) -> list[int] | None:
    if outcome.plan is None or not outcome.runs:
        return None
    found = outcome.plan.checkpoint
    return [
        found.physic_msg_timestamp,
        found.logics_msg_timestamp,
        found.index_msg_timestamp,
        found.confirm_physical_offset,
        found.logics_physical_offset,
    ]


def answered(answer: dict[str, Any]) -> dict[str, Any]:
    """Returns the compared fields of a recorded answer."""
    positions, queues, files = answer.get("after_start"), answer["queues"], answer["files"]
    runs = answer["exit"] is None and not answer.get("hung")
    after = answer["checkpoint"]["after"] if runs else None
    return {
        "exit": answer["exit"],
        "hung": "hung" in answer,
        "refusal": refusal_of(answer),
        "after_start": positions and {name: positions[name] for name in ("min", "max")},
        "queues": queues and {name: [q["min"], q["max"], q["next"]] for name, q in queues.items()},
        "runs": queues and {name: q["runs"] for name, q in queues.items()},
        "lost": answer["lost"],
        "counted": answer["lost"],
        "readable": answer["readable"],
        "repeated": answer.get("repeated"),
        "deleted": files["deleted"],
        "created": _no_tables(file["file"] for file in files["created"]),
        "changed": _no_tables(file["file"] for file in files["changed"]),
        "index_after": answer["index_after"],
        "abort_after": answer["abort_after"],
        "checkpoint": after and [after[name] for name in ("physic", "logics", "index", "confirmPhy", "logicsPhy")],
    }


def races(answer: dict[str, Any], mine: dict[str, Any]) -> bool:
    """Whether a case is one in which the clock or a thread of the real store decides files that are compared.

    Index files made within one millisecond share a name; and the thread that flushes a full index file writes the
    checkpoint at a moment of its own, which shows where several are filled or the start does not end well.
    """
    new = [summary for summary in mine["index_after"] if summary[0] == "new"]
    several = len(new) > 1
    unstopped = mine["exit"] is not None or mine["hung"]
    return several or bool(unstopped and new)


def refusal_of(answer: dict[str, Any]) -> str | None:
    """Returns the broker's words of a start that ended: what was thrown, else the line of its log that says why."""
    if answer["exit"] is None:
        return None
    if answer.get("threw"):
        return str(answer["threw"]).removeprefix("start: ")
    marks = ("length not matched", "load exception", " error java.io", ".json Failed", ".bak Failed")
    lines = [line for line in answer["log"] if any(mark in line for mark in marks)]
    return lines[-1].partition(": ")[2] if lines else None


def _no_tables(names: Iterable[str]) -> list[str]:
    return [name for name in names if not name.startswith(UNNAMED_TABLES)]


def differences(
    mine: dict[str, Any], answer: dict[str, Any], *, with_races: bool = False
) -> dict[str, tuple[Any, Any]]:
    """Returns (predicted, answered) of each field of a prediction that does not agree with a recorded answer.

    Fields in which the real store does not agree with itself are left out, unless they are asked for.
    """
    theirs = answered(answer)
    free = RACING if races(answer, mine) and not with_races else frozenset()
    return {
        field: (mine[field], theirs[field])
        for field in (*ASKED, *MORE)
        if field not in free and not agrees(field, mine[field], theirs[field])
    }


def agrees(field: str, mine: Any, theirs: Any) -> bool:
    """Whether a field is right.

    A refusal is, if the broker's words are among ours or ours among theirs; messages counted as lost are, if they are
    lost: what neither a record nor a unit proves is not counted.
    """
    if field == "counted" and mine is not None and theirs is not None:
        return all(_offsets(runs) <= _offsets(theirs.get(name, [])) for name, runs in mine.items())
    if field != "refusal" or mine is None or theirs is None:
        return bool(mine == theirs)
    return mine in theirs or theirs in mine


def _offsets(runs: list[list[int]]) -> set[int]:
    return {offset for first, last in runs for offset in range(first, last + 1)}


def more_cases() -> dict[str, tuple[DamageCase, dict[str, Any]]]:
    """The cases of `fixtures/damage/more`, each with the broker's keys that it adds."""
    lines = read_lines(fixture("damage/more/cases.jsonl"))
    keys = {line["id"]: line.pop("config", {}) for line in lines}
    return {line["id"]: (DamageCase(**(line | {"edits": tuple(line["edits"])})), keys[line["id"]]) for line in lines}


def more_answers(opened_by: str, written_by: str | None = None) -> dict[str, dict[str, Any]]:
    """What the real store made of them, by case id."""
    name = f"answers-{written_by}-by-{opened_by}" if written_by else f"answers-{opened_by}"
    return {line["id"]: line for line in read_lines(fixture(f"damage/more/{name}.jsonl"))}
