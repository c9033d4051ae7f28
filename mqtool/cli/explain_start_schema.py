"""The output of `mqtool explain-start`: the JSON object, and the view that tables show of it."""

from mqtool.cli.schema import TABLE, Column, OutputSchema


def _text(name: str, doc: str, *, nullable: bool = False) -> Column:
    return Column(name, "string", doc, show=TABLE, nullable=nullable)


def _number(name: str, doc: str, *, nullable: bool = False) -> Column:
    return Column(name, "int64", doc, show=TABLE, nullable=nullable)


def _flag(name: str, doc: str) -> Column:
    return Column(name, "boolean", doc, show=TABLE)


def _texts(name: str, doc: str) -> Column:
    return Column(name, "array", doc, show=TABLE)


def _map(name: str, doc: str) -> Column:
    return Column(name, "object", doc, items="any", nullable=True)


_FILES = (
    _texts("deleted", "files that are gone"),
    _texts("created", "new files; index/<new-N> gets the clock's name"),
    _texts("changed", "files with other bytes"),
)
_EFFORT = (
    _number("scanned_bytes", "bytes of records that recovery and the first dispatch read"),
    _number("scanned_records", "records that recovery tests"),
    _number("dispatched_records", "records that are given to queues and index"),
    Column("minutes", "array", "at least, at most: all in memory, or from a slow disk", items="number"),
)

EXPLAIN_START = OutputSchema(
    "explain-start",
    1,
    "what a broker would do to a store",
    (
        _text("path", "the store's root directory"),
        _text("release", "of the broker: 4.9 or 5.5"),
        _text("release_evidence", "why this release: given, or what it was detected or assumed from"),
        _text("verdict", "in one line; begins with unknown: where files cannot be read that decide it"),
        _flag("clean_stop", "there is no abort file: recovered normally"),
        _number("exit", "exit code of the process; null if it keeps running or hangs", nullable=True),
        _text("refusal", "the broker's own words", nullable=True),
        _text("hung", "where the start never ends", nullable=True),
        Column(
            "after_start",
            "object",
            "physical offsets; null if it does not come so far",
            nullable=True,
            show=TABLE,
            fields=(_number("min", "of the log's first byte"), _number("max", "after its last")),
        ),
        _number("scan_from", "physical offset at which recovery begins to scan", nullable=True),
        _number("cut_at", "physical offset at which the log ends by the scan", nullable=True),
        _map("queues", "by topic/queue: min, max and next offset; null unless it runs"),
        _map("lost", "by topic/queue: ranges of queue offsets that are provable now and not delivered then"),
        _number("readable", "messages that consumers get intact", nullable=True),
        _map("repeated", "by topic/queue: ranges of queue offsets that are delivered more than once"),
        Column(
            "index_after",
            "array",
            "index files: name or new, begin and end physical offset, used slots, entry counter",
            items="any",
        ),
        Column(
            "abort_after",
            "boolean",
            "the abort file is there after an orderly stop; null if unknown",
            show=TABLE,
            nullable=True,
        ),
        Column("files", "object", "what is different after the start and an orderly stop", show=TABLE, fields=_FILES),
        _texts("why", "the rules that were applied"),
        _texts("accepted", "what is wrong and taken without a word"),
        _texts("undecided", "what the files do not decide"),
        Column(
            "effort", "object", "how much there is to do; null if unknown", show=TABLE, fields=_EFFORT, nullable=True
        ),
        _texts("next_steps", "commands to type if it would not start, or messages would be lost"),
    ),
    single=True,
)

VIEW = OutputSchema(
    "explain-start.view",
    1,
    "what a broker would do to a store, for readers",
    (
        _text("verdict", "in one line"),
        _text("store", "root, and how it was closed"),
        _text("broker", "the release that would be started"),
        _text("log", "bounds after the start"),
        _text("scan", "from where to where recovery reads"),
        _text("index", "index files afterwards"),
        _text("time", "how long it may take"),
        _texts("next_steps", "commands to type if it would not start, or messages would be lost"),
        Column(
            "lost",
            "array",
            "messages that consumers no longer get",
            show=TABLE,
            fields=(_text("queue", "topic/queue"), _number("messages", "how many"), _text("offsets", "queue offsets")),
        ),
        _texts("deleted", "files that are gone"),
        _texts("created", "new files"),
        _texts("changed", "files with other bytes"),
        _texts("why", "the rules that were applied"),
        _texts("accepted", "what is wrong and taken without a word"),
        _texts("undecided", "what the files do not decide"),
        Column(
            "queues",
            "array",
            "bounds after the start",
            show=TABLE,
            fields=(
                _text("queue", "topic/queue"),
                _number("min", "first offset served"),
                _number("max", "after the last"),
                _number("next", "what the next message gets", nullable=True),
            ),
        ),
    ),
    single=True,
)
