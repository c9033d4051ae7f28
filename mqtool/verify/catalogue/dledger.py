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
        "Take the ledger's directory of another node, or convert the log to an ordinary one.",
        run("RB-15"),
        "RB-15",
    ),
    _check(
        "dledger-term-order",
        Severity.ERROR,
        "The term of an entry is below that of an entry before it.",
        "Take the ledger's directory of another node, or convert the log to an ordinary one.",
        run("RB-15"),
        "RB-15",
    ),
    _check(
        "dledger-index-unit",
        Severity.ERROR,
        "A unit of the ledger's index file does not say where its entry is: the entry cannot be fetched by its index.",
        "Take the ledger's directory of another node, or convert the log to an ordinary one.",
        run("RB-15"),
        "RB-15",
    ),
    _check(
        "dledger-unused-field",
        Severity.NOTE,
        "channel, chainCrc or bodyCrc of an entry is not 0; no known release sets them.",
        "None is needed: nothing reads them.",
        _ENTRIES,
        no_runbook=NO_STEP,
    ),
    _check(
        "dledger-checkpoint-ahead",
        Severity.WARNING,
        "The ledger's file checkpoint names an index behind the last entry: entries that had been written are gone.",
        "Look at the end of the log; other nodes may have more.",
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
        "The ledger's file checkpoint or currterm is absent or is no text of name=value lines.",
        "Compare with the .bak file beside it.",
        run("RB-15"),
        "RB-15",
    ),
)
