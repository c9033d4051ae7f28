"""The commands of `mqtool`: one file for each, with its options, its function and the schema of its output.

No command imports another: shared parts are in `mqtool.cli`. Heavy libraries are imported by the functions that use
them, so that `mqtool --help` and `mqtool COMMAND --help` load none.
"""

from typing import NamedTuple


class Command(NamedTuple):
    """A command as `mqtool --help` lists it.

    Attributes:
        group: heading in `mqtool --help`.
        summary: its line in `mqtool --help`.
        module: defines a function named like the command, `-` as `_`, and its HELP; None for the one of that name here.
    """

    group: str
    summary: str
    module: str | None = None


INSPECT = "Inspect"
CHECK = "Check"
REPAIR = "Repair"
SALVAGE = "Salvage and back up"
COPY = "Copy"
MOVE = "Move messages"
SERVE = "Serve"
DOCUMENTATION = "Documentation"

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
    "verify": Command(CHECK, "Check a store and state what to do about each finding."),
    "explain-start": Command(CHECK, "Show what a broker would do to a store on startup."),
    "report": Command(CHECK, "Write the findings as one HTML page, for a ticket."),
    "repair": Command(REPAIR, "Check a store, show the plan that repairs it, and apply it after a question."),
    "runbook": Command(REPAIR, "Detect and repair a known problem, step by step."),
    "plan": Command(REPAIR, "Write a plan for a change, to review before applying it."),
    "apply": Command(REPAIR, "Apply a plan; the change can be undone."),
    "undo": Command(REPAIR, "Undo a change: restore every file byte for byte."),
    "discard-undo": Command(REPAIR, "Discard the undo data of a change and free its space."),
    "rebuild": Command(REPAIR, "Rebuild queues, index and configuration from the CommitLog."),
    "clean": Command(REPAIR, "Delete expired files; show first what consumers would lose."),
    "salvage": Command(SALVAGE, "Copy every valid record of a damaged store to a new one."),
    "backup": Command(SALVAGE, "Take a verified, incremental backup, also of a live store."),
    "restore": Command(SALVAGE, "Restore a backup into a new directory."),
    "mirror": Command(COPY, "Follow a running broker as its slave."),
    "convert": Command(COPY, "Convert a store to another layout with the same messages."),
    "export": Command(MOVE, "Export messages as Parquet, in full or incrementally."),
    "append": Command(MOVE, "Append messages to a store as a broker would."),
    "replay": Command(MOVE, "Send messages of a store or an export again."),
    "serve": Command(SERVE, "Serve a store to real clients: broker and name server."),
    "help": Command(DOCUMENTATION, "Print a page of the documentation, the meaning of a code, or the kinds of stores."),
}

ALIASES = {"check": "verify", "doctor": "verify", "fix": "repair", "ls": "info", "topics": "info"}
"""What people type, and the command that it is; not listed."""
