"""The commands of `mqtool`: one file for each, with its options, its function and the schema of its output.

No command imports another: shared parts are in `mqtool.cli`. Heavy libraries are imported by the functions that use
them, so that `mqtool --help` and `mqtool COMMAND --help` load none.
"""

from typing import NamedTuple


class Command(NamedTuple):
    """A command as `mqtool --help` lists it."""

    group: str  # heading in `mqtool --help`
    summary: str  # its line in `mqtool --help`
    # Defines a function named like the command, `-` as `_`, and its HELP; None for the one of that name here.
    module: str | None = None
    # What an interrupted run leaves, and how to continue; a command that only reads leaves nothing.
    interrupted: str = "nothing was changed"


INSPECT = "Inspect"
CHECK = "Check"
REPAIR = "Repair"
SALVAGE = "Salvage and back up"
COPY = "Copy"
MOVE = "Move messages"
SERVE = "Serve"
DOCUMENTATION = "Documentation"

_CHANGE = "`mqtool verify STORE` shows whether a change was begun, and how to finish or undo it"
_NEW = "the store is unchanged, but the result is incomplete: run the same command again"
_REPLAY = "with --state FILE, the same command continues; without it, `mqtool info` shows what was stored"

COMMANDS = {
    "info": Command(INSPECT, "Describe a store: release, layout, topics, groups."),
    "dump": Command(INSPECT, "Print the contents of a store, a directory or a file."),
    "get": Command(INSPECT, "Print the message at an offset or with an id."),
    "find": Command(INSPECT, "Find messages by key, tag, property, time or body."),
    "sql": Command(INSPECT, "Query stores in SQL."),
    "offsets": Command(INSPECT, "Show the positions of consumer groups."),
    "story": Command(INSPECT, "Show the life of one message across its records."),
    "pending": Command(INSPECT, "List messages that are waiting to be delivered."),
    "diff": Command(INSPECT, "Show the differences between two stores."),
    "verify": Command(
        CHECK,
        "Check a store and state what to do about each finding.",
        interrupted=(
            "nothing was changed, and the progress in --state FILE is kept: run the same command again to continue"
        ),
    ),
    "explain-start": Command(CHECK, "Show what a broker would do to a store on startup."),
    "report": Command(CHECK, "Write the findings as one HTML page, for a ticket."),
    "repair": Command(
        REPAIR, "Check a store, show the plan that repairs it, and apply it after confirmation.", interrupted=_CHANGE
    ),
    "runbook": Command(REPAIR, "Detect and repair a known problem, step by step.", interrupted=_CHANGE),
    "plan": Command(REPAIR, "Write a plan for a change, to review before applying it."),
    "apply": Command(REPAIR, "Apply a plan; the change can be undone.", interrupted=_CHANGE),
    "undo": Command(REPAIR, "Undo a change: restore every file byte for byte.", interrupted=_CHANGE),
    "discard-undo": Command(REPAIR, "Discard the undo data of a change and free its space.", interrupted=_CHANGE),
    "rebuild": Command(REPAIR, "Rebuild queues, index and configuration from the CommitLog.", interrupted=_NEW),
    "clean": Command(REPAIR, "Delete expired files; show first what consumers would lose.", interrupted=_CHANGE),
    "salvage": Command(SALVAGE, "Copy every valid record of a damaged store to a new one.", interrupted=_NEW),
    "backup": Command(
        SALVAGE,
        "Take a verified, incremental backup, also of a live store.",
        interrupted="what was copied is kept, but is not a snapshot yet: run the same command again",
    ),
    "restore": Command(SALVAGE, "Restore a backup into a new directory.", interrupted=_NEW),
    "mirror": Command(COPY, "Follow a running broker as its slave."),
    "convert": Command(COPY, "Convert a store to another layout with the same messages.", interrupted=_NEW),
    "export": Command(
        MOVE,
        "Export messages as Parquet, in full or incrementally.",
        interrupted="nothing incomplete was published: run the same command again",
    ),
    "append": Command(
        MOVE,
        "Append messages to a store as a broker would.",
        interrupted="acknowledged messages are stored, and perhaps some later ones",
    ),
    "replay": Command(MOVE, "Send messages of a store or an export again.", interrupted=_REPLAY),
    "serve": Command(SERVE, "Serve a store to real clients: broker and name server."),
    "help": Command(DOCUMENTATION, "Print a page of the documentation, the meaning of a code, or the kinds of stores."),
}

ALIASES = {"check": "verify", "doctor": "verify", "fix": "repair", "ls": "info", "topics": "info"}
"""What people type, and the command that it is; not listed."""
