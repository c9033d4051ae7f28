"""Codes of the DLedger log."""

from mqtool.verify.catalogue.check import NO_STEP, Check, run
from mqtool.verify.findings import Area, Severity

_ENTRIES = "mqtool dump {path} --kind dledger-entry"


def _check(
    code: str, severity: Severity, meaning: str, remedy: str, next_step: str, *runbooks: str, no_runbook: str = ""
) -> Check:
    return Check(code, Area.DLEDGER, severity, meaning, remedy, next_step, runbooks, no_runbook)


CHECKS = (
    _check(
        "dledger-index-order",
        Severity.ERROR,
        "The index of an entry does not follow that of the entry before: the ledger's recovery refuses such a log.",
        "Copy the ledger's directory from another node, or convert the log to an ordinary one.",
        run("RB-15"),
        "RB-15",
    ),
    _check(
        "dledger-term-order",
        Severity.ERROR,
        "The term of an entry is below that of an entry before it.",
        "Copy the ledger's directory from another node, or convert the log to an ordinary one.",
        run("RB-15"),
        "RB-15",
    ),
    _check(
        "dledger-index-unit",
        Severity.ERROR,
        "A unit of the ledger's index file does not point to its entry: the entry cannot be fetched by its index. "
        "(A warning where the broker's next start writes the unit again.)",
        "None for a warning. For an error, copy the ledger's directory from another node, or convert the log to an "
        "ordinary one.",
        run("RB-15"),
        "RB-15",
    ),
    _check(
        "dledger-unused-field",
        Severity.NOTE,
        "channel, chainCrc or bodyCrc of an entry is not 0; no known release sets them.",
        "None: nothing reads them.",
        _ENTRIES,
        no_runbook=NO_STEP,
    ),
    _check(
        "dledger-checkpoint-ahead",
        Severity.WARNING,
        "The ledger's file checkpoint names an index after the last entry: entries that had been written are missing.",
        "Compare the end of the log with the other nodes; they may have more entries.",
        run("RB-15"),
        "RB-15",
    ),
    _check(
        "dledger-term-behind",
        Severity.WARNING,
        "The ledger's file currterm names a term below that of the last entry.",
        "The node learns the term from the others; a lone node takes it from its last entry.",
        run("RB-15"),
        "RB-15",
    ),
    _check(
        "dledger-text",
        Severity.WARNING,
        "The ledger's file checkpoint or currterm is missing or does not state its number as properties do.",
        "Compare it with the .bak file next to it.",
        run("RB-15"),
        "RB-15",
    ),
)
