"""The structure of a catalogue entry."""

from msgspec import Struct

from mqtool.verify.findings import Area, Severity


class Check(Struct, frozen=True):
    """One finding code."""

    code: str  # stable name
    area: Area  # which check reports it
    severity: Severity  # the default; `meaning` states when the check reports another one
    meaning: str  # what is wrong, and how the broker reacts to it
    remedy: str  # what to do, as text
    # The command to run; `FindingCollector` fills in `{store}`, `{path}`, `{name}`, `{topic}`, `{queue_id}`, `{group}`,
    # `{offsets}`, `{plan}` and `{owner}`.
    next_step: str
    runbooks: tuple[str, ...] = ()  # ids of its runbooks, most likely first
    no_runbook: str = ""  # if there is none, the reason


def check(
    area: Area,
    severity: Severity,
    code: str,
    meaning: str,
    remedy: str,
    next_step: str,
    *runbooks: str,
    no_runbook: str = "",
) -> Check:
    """Returns an entry; each module of an area binds the first two arguments."""
    return Check(code, area, severity, meaning, remedy, next_step, runbooks, no_runbook)


NOT_READ = "Nothing is known to be wrong: `verify` could not read it."
NO_STEP = "No action is needed."
CONFIGURATION = "Correct the configuration, not the store."
REPLICA = "Only a replica has it; no other file of the store does."


def run(runbook: str) -> str:
    """Returns the next step that runs a runbook without changing anything (dry run)."""
    return f"mqtool runbook run {runbook} {{store}}"
