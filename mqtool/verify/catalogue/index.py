"""Codes of the index."""

from mqtool.verify.catalogue.check import NOT_READ, Check, run
from mqtool.verify.findings import Area, Severity

_REBUILD = "mqtool plan rebuild index {store} -o {plan}"


def _error(code: str, meaning: str, remedy: str, next_step: str, *runbooks: str, no_runbook: str = "") -> Check:
    return Check(code, Area.INDEX, Severity.ERROR, meaning, remedy, next_step, runbooks, no_runbook)


def _warning(code: str, meaning: str, remedy: str, next_step: str, *runbooks: str, no_runbook: str = "") -> Check:
    return Check(code, Area.INDEX, Severity.WARNING, meaning, remedy, next_step, runbooks, no_runbook)


CHECKS = (
    _error(
        "index-missing",
        "There is no index file though the checkpoint or the configuration says that there was. The broker does not "
        "build one for messages that are there.",
        "Build the index anew.",
        _REBUILD,
        "RB-06",
    ),
    _error(
        "index-file-size",
        "The file is shorter or longer than its slots and entries. The broker lengthens it and misreads it.",
        "Build the index anew.",
        _REBUILD,
        "RB-06",
    ),
    _error(
        "index-header",
        "The header contradicts the file: counts beyond its capacity, ranges that are not its entries'.",
        "Build the index anew.",
        _REBUILD,
        "RB-06",
    ),
    _error(
        "index-slot",
        "A slot does not lead to the newest of its entries: look-ups miss what lies behind.",
        "Build the index anew.",
        _REBUILD,
        "RB-06",
    ),
    _error(
        "index-chain",
        "An entry names another predecessor than the one before it in its slot: chains end early, or run in a circle.",
        "Build the index anew.",
        _REBUILD,
        "RB-06",
    ),
    _error(
        "index-dangling-entry",
        "An entry points into the CommitLog where no record starts.",
        "Build the index anew.",
        _REBUILD,
        "RB-06",
    ),
    _error(
        "index-foreign-entry",
        "An entry points at a record that has no such key.",
        "Build the index anew.",
        _REBUILD,
        "RB-06",
    ),
    _error(
        "index-wrong-time",
        "An entry's time is not its record's: look-ups in a time range miss it.",
        "Build the index anew.",
        _REBUILD,
        "RB-06",
    ),
    _error(
        "index-missing-entry",
        "Keys of messages have no entry: look-ups do not find them. Left by a lost index file, by a crash (the "
        "broker deletes the last file and indexes anew only what it scans), or by damage.",
        "Build the index anew.",
        _REBUILD,
        "RB-06",
    ),
    _warning(
        "index-ahead-of-log",
        "The index ends beyond the end of the CommitLog: the broker will not index new messages until the log has "
        "grown up to there.",
        "Move the last index file out of the store before the broker starts, and build it anew.",
        _REBUILD,
        "RB-06",
    ),
    _warning(
        "index-stray-file",
        "Something that is no index file lies in index/. (An error where the broker refuses to start or drops the "
        "whole index; a note where it ignores it.)",
        "Set it aside.",
        run("RB-06"),
        "RB-06",
    ),
    _error(
        "index-order",
        "The names of two index files do not follow the order of their entries: they were swapped, or the clock was "
        "set back. The broker ends a query too early, and appends to the wrong file.",
        "Build the index again.",
        _REBUILD,
        "RB-06",
    ),
    _error(
        "index-not-directory",
        "A file lies in the place of the directory of index files: the broker starts, but finds no message by key.",
        "Set it aside, then build the index again.",
        "mqtool plan set-aside {store} --file {name} -o {plan}",
        "RB-06",
    ),
    _error(
        "index-unreadable",
        "The system reported an error while reading.",
        "Build the index anew.",
        _REBUILD,
        "RB-06",
    ),
    _error(
        "index-not-listed",
        "The system does not list a directory of index files: what is in it is unknown.",
        "Verify as a user who may read it; on a failing disk copy what can be read to another disk first.",
        "mqtool verify {store}",
        no_runbook=NOT_READ,
    ),
)
