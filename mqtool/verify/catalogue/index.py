"""Codes of the index."""

from functools import partial

from mqtool.verify.catalogue.check import NOT_READ, check, run
from mqtool.verify.findings import Area, Severity

_REBUILD = "mqtool plan rebuild index {store} -o {plan}"

_error = partial(check, Area.INDEX, Severity.ERROR)
_warning = partial(check, Area.INDEX, Severity.WARNING)
_unknown = partial(check, Area.INDEX, Severity.UNKNOWN)

CHECKS = (
    _error(
        "index-missing",
        "There is no index file, but the checkpoint or the configuration shows that one existed. The broker does "
        "not build one for existing messages.",
        "Rebuild the index.",
        _REBUILD,
        "RB-06",
    ),
    _error(
        "index-file-size",
        "The file is shorter or longer than its slots and entries. The broker lengthens it and misreads it.",
        "Rebuild the index.",
        _REBUILD,
        "RB-06",
    ),
    _error(
        "index-header",
        "The header contradicts the file: counts beyond its capacity, ranges that are not its entries'.",
        "Rebuild the index.",
        _REBUILD,
        "RB-06",
    ),
    _error(
        "index-slot",
        "A slot does not lead to the newest of its entries: lookups miss the entries after it.",
        "Rebuild the index.",
        _REBUILD,
        "RB-06",
    ),
    _error(
        "index-chain",
        "An entry names another predecessor than the one before it in its slot: chains end early, or run in a circle.",
        "Rebuild the index.",
        _REBUILD,
        "RB-06",
    ),
    _error(
        "index-dangling-entry",
        "An entry points into the CommitLog where no record starts.",
        "Rebuild the index.",
        _REBUILD,
        "RB-06",
    ),
    _error(
        "index-foreign-entry",
        "An entry points at a record that has no such key.",
        "Rebuild the index.",
        _REBUILD,
        "RB-06",
    ),
    _error(
        "index-wrong-time",
        "An entry's time is not its record's: lookups in a time range miss it.",
        "Rebuild the index.",
        _REBUILD,
        "RB-06",
    ),
    _error(
        "index-missing-entry",
        "Keys of messages have no entry: lookups do not find them. Causes: a lost index file, a crash (the broker "
        "deletes the last file and indexes again only the records that it scans), or damage.",
        "Rebuild the index.",
        _REBUILD,
        "RB-06",
    ),
    _warning(
        "index-ahead-of-log",
        "The index ends beyond the end of the CommitLog: the broker will not index new messages until the log has "
        "grown up to there.",
        "Move the last index file out of the store before the broker starts, and rebuild it.",
        _REBUILD,
        "RB-06",
    ),
    _warning(
        "index-stray-file",
        "index/ contains something that is not an index file. (An error where the broker refuses to start or drops "
        "the whole index; a note where it ignores it.)",
        "Move it out of the store.",
        run("RB-06"),
        "RB-06",
    ),
    _error(
        "index-order",
        "The names of two index files do not follow the order of their entries: they were swapped, or the clock was "
        "set back. The broker ends a query too early, and appends to the wrong file.",
        "Rebuild the index.",
        _REBUILD,
        "RB-06",
    ),
    _error(
        "index-not-directory",
        "There is a file where the directory of index files should be: the broker starts, but finds no message by key.",
        "Move it out of the store, then rebuild the index.",
        "mqtool plan set-aside {store} --file {name} -o {plan}",
        "RB-06",
    ),
    _unknown(
        "index-unreadable",
        "The system reported an error while reading.",
        "Rebuild the index.",
        _REBUILD,
        "RB-06",
    ),
    _unknown(
        "index-not-listed",
        "A directory of index files cannot be listed: its contents are unknown.",
        "Verify as a user who may read it; on a failing disk copy what can be read to another disk first.",
        "mqtool verify {store}",
        no_runbook=NOT_READ,
    ),
)
