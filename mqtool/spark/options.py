"""The options of the data source, parsed into a request."""

import json
from collections.abc import Mapping
from datetime import UTC
from difflib import get_close_matches
from itertools import chain

from msgspec import Struct
from msgspec.structs import replace

from mqtool import words
from mqtool.choices import Trust
from mqtool.errors import UsageError
from mqtool.export import schema
from mqtool.export.plan import MAX_TASKS
from mqtool.export.schema import ALL_COLUMNS, BY_NAME, Body, ReadRequest, Table, check_columns
from mqtool.export.sources import Source, resolve
from mqtool.scan.messages import Where
from mqtool.spark.kafka import KAFKA, VIEW, source_of_column
from mqtool.spark.offsets import EARLIEST, LATEST, WORDS, QueueBounds, between, both
from mqtool.store.log.selection import Selection

FORMAT = "rocketmq-store"
"""Name of the source for `spark.read.format`."""

BATCH_BYTES, BATCH_ROWS = 4 << 20, 8192
"""Larger batches take more JVM memory and are not faster."""
SPLIT_BYTES = 128 << 20

KNOWN = (
    "path",
    "paths",
    "store",
    "config",
    "topics",
    "topic",
    "queueId",
    "startOffset",
    "endOffset",
    "startTime",
    "endTime",
    "include",
    "columns",
    "body",
    "redact",
    "mode",
    "where",
    "trust",
    "table",
    "damageColumn",
    "splitSize",
    "minPartitions",
    "failOnDataLoss",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "includeHeaders",
    "maxBytesPerTrigger",
    "maxOffsetsPerTrigger",
)

_COUNTERPARTS = {
    "subscribe": "use topic",
    "subscribepattern": "use topics, with globs such as Order*",
    "assign": "use topic and queueId",
    "minoffsetspertrigger": "a micro-batch has what is new; use trigger(processingTime=…)",
    "maxtriggerdelay": "use trigger(processingTime=…)",
    "maxrecordsperpartition": "use splitSize",
    "groupidprefix": "there is no consumer group: the checkpoint has the position",
    "startingoffsetsbytimestampstrategy": "a queue without a message from that time on has no rows",
}
"""Options of Spark's Kafka source and what there is instead."""
_FILES_ARE_READ = "files are read, not a broker: give load(PATH)"
_BEGIN = ("startOffset", "startTime", "startingTimestamp", "startingOffsets", "startingOffsetsByTimestamp")
_END = ("endOffset", "endTime", "endingTimestamp", "endingOffsets", "endingOffsetsByTimestamp")


class SourceOptions(Struct, frozen=True):
    """The request of a `load()`; sent to every task."""

    sources: tuple[Source, ...]  # the stores
    read: ReadRequest  # which messages, and columns of an export
    columns: tuple[str, ...] = ALL_COLUMNS  # of the table messages: those, or columns of Kafka that are made from them
    table: Table = Table.MESSAGES  # which of the tables of an export
    damage_column: str | None = None  # name of a column that reports damage among the messages, or None
    split_bytes: int = SPLIT_BYTES  # log bytes of a task
    min_partitions: int = 0  # about how many tasks there are at least
    fail_on_data_loss: bool = True  # a stream fails if the log lost messages that it had not read yet
    from_latest: bool = False  # a new stream begins at the end of the log
    begin: QueueBounds | None = None  # and end: where queues begin and end to be read
    end: QueueBounds | None = None
    max_bytes: int | None = None  # approximate bytes of log in a micro-batch; None for no limit
    max_rows: int | None = None  # messages in a micro-batch; None for no limit
    condition: str = ""  # in SQL syntax (`scan.conditions`); every row of the table messages meets it. "" for none.
    trust: frozenset[Trust] = frozenset()  # what, besides the log, may be used to skip records

    @property
    def where(self) -> Where:
        """The parsed condition. The text is what is sent to tasks, because Arrow expressions cannot be pickled."""
        return Where.parsed(self.condition)

    def for_stream(self) -> "SourceOptions":
        """Returns the options; raises UsageError if they suit only a batch query."""
        if self.end is not None:
            raise UsageError(f"option {self.end.option!r}: a stream has no end; leave it out")
        if (self.read.selection.end, self.read.selection.end_time) != (None, None):
            raise UsageError("options 'endOffset', 'endTime', 'endingTimestamp': a stream has no end; leave them out")
        return self

    def for_batch(self) -> "SourceOptions":
        """Returns the options with the bounds in the condition; raises UsageError if they suit only a stream."""
        if self.from_latest:
            raise UsageError("option 'startingOffsets': a batch query cannot begin at latest; only a stream can")
        if self.begin is not None:
            self.begin.refuse(LATEST, "only a stream can begin at latest")
        return replace(self, condition=both(self.condition, between(self.begin, self.end)))


def parse(options: Mapping[str, str]) -> SourceOptions:
    """Parses the options of a `load()`.

    Raises UsageError for an unknown option, or an invalid value, NotAStoreError if a glob matches nothing.
    """
    given = {name.lower(): str(value) for name, value in dict(options).items()}
    if {"owner", "provider"} <= set(given):  # Spark 4.3 gives the reader of such a table no options at all
        raise UsageError(
            "a permanent table would lose these options in Spark: write CREATE TEMPORARY VIEW … USING …; to keep the "
            "messages, write CREATE TABLE … USING parquet AS SELECT … of that view"
        )
    _require_known(given)
    values = _Values(given)
    values.require_one_of(_BEGIN, "begin")
    values.require_one_of(_END, "end")
    sources = tuple(source.absolute() for source in resolve(values.paths(), given.get("config")))
    table = Table(values.one_of("table", [str(table) for table in Table]))
    columns = values.columns()
    read = _read(values, columns)
    brokers = [source.broker for source in sources]
    end = values.bounds("endingOffsets", brokers) or values.bounds("endingOffsetsByTimestamp", brokers)
    if end is not None:
        end.refuse(EARLIEST, "nothing ends before it begins")
    begin = values.bounds("startingOffsets", brokers) or values.bounds("startingOffsetsByTimestamp", brokers)
    if table is not Table.MESSAGES and (begin or end):
        raise UsageError(f"bounds of queues apply to the table messages, not to {table}; use startOffset and endOffset")
    return SourceOptions(
        sources,
        read,
        columns,
        table,
        _damage_column(given.get("damagecolumn"), table),
        values.size("splitSize") or SPLIT_BYTES,
        values.count("minPartitions", MAX_TASKS) or 0,
        values.one_of("failOnDataLoss", ["true", "false"]) == "true",
        given.get("startingoffsets", "").lower() == "latest",
        begin,
        end,
        values.size("maxBytesPerTrigger"),
        values.count("maxOffsetsPerTrigger"),
        _condition(given.get("where", ""), table, read),
        values.trust(),
    )


def _require_known(given: Mapping[str, str]) -> None:
    """Raises UsageError for an unknown option, with what it may have been meant to be."""
    known = {name.lower(): name for name in KNOWN}
    for name in (name for name in given if name not in known):
        near = [known[match] for match in get_close_matches(name, known, 1)]
        if name.startswith(("kafka.", "kafkaconsumer.", "fetchoffset.")):
            hint = _FILES_ARE_READ
        elif name in _COUNTERPARTS:
            hint = _COUNTERPARTS[name]
        else:
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(KNOWN)}"
        raise UsageError(f"unknown option {name!r}; {hint}")


def _condition(condition: str, table: Table, read: ReadRequest) -> str:
    if not condition.strip():
        return ""
    if table is not Table.MESSAGES:
        raise UsageError(f"option 'where' applies to the table messages, not to {table}; leave it out")
    hidden = sorted((Where.parsed(condition).columns or frozenset(BY_NAME)) & read.redact)
    if hidden:
        raise UsageError(f"option 'where': column {hidden[0]!r} is redacted, so no condition can match it")
    return condition


def _damage_column(name: str | None, table: Table) -> str | None:
    if name is not None and (not name.strip() or name.lower() in BY_NAME):
        raise UsageError(f"option 'damageColumn': expected a name that no column has, found {name!r}")
    if name is not None and table is not Table.MESSAGES:
        raise UsageError(f"option 'damageColumn' applies to the table messages, not to {table}; leave it out")
    return name


def _read(values: "_Values", columns: tuple[str, ...]) -> ReadRequest:
    selection = Selection.of(
        start=values.integer("startOffset"),
        end=values.integer("endOffset"),
        queue_id=values.integer("queueId"),
        topics=values.names("topics") + values.names("topic"),
        begin_time=values.time("startTime") if values.has("startTime") else values.time("startingTimestamp"),
        end_time=values.time("endTime") if values.has("endTime") else values.time("endingTimestamp"),
    )
    hidden = schema.closure(values.names("redact"))
    return ReadRequest(
        selection,
        check_columns(map(source_of_column, columns)),
        values.one_of("include", ["committed", "all"]) == "all",
        Body(values.one_of("body", [str(body) for body in Body])),
        hidden,
        schema.new_salt() if hidden else b"",
        values.one_of("mode", ["permissive", "failfast"]) == "failfast",
        BATCH_BYTES,
        BATCH_ROWS,
    )


def narrowed(options: SourceOptions, columns: tuple[str, ...]) -> SourceOptions:
    """Returns the options for reading fewer columns."""
    return replace(options, read=replace(options.read, columns=columns))


class _Values:
    """Typed access to the options, whose keys are in lower case."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._given = options

    def has(self, name: str) -> bool:
        """Whether an option is given."""
        return name.lower() in self._given

    def require_one_of(self, names: tuple[str, ...], what: str) -> None:
        """Raises UsageError if two options say where to begin or end; offsets and times of the log may be combined."""
        given = [name for name in names if self.has(name)]
        if len(given) > 1 and given != list(names[:2]):
            raise UsageError(f"options {given[0]!r} and {given[1]!r} both say where to {what}; leave one out")

    def columns(self) -> tuple[str, ...]:
        """Returns the columns to show: of an export, of Kafka, or all of Kafka's source."""
        names = self.names("columns") if self.has("columns") else ALL_COLUMNS
        headers = ("headers",) if self.one_of("includeHeaders", ["false", "true"]) == "true" else ()
        if headers and not {"kafka", *KAFKA}.intersection(names):
            raise UsageError("option 'includeHeaders' applies to columns=kafka; the column properties has the same")
        shown = ((*VIEW, *headers) if name == "kafka" else (name,) for name in names)
        return tuple(dict.fromkeys(chain.from_iterable(shown)))

    def bounds(self, name: str, brokers: list[str]) -> QueueBounds | None:
        """Returns bounds of queues; None for the words."""
        text = self._given.get(name.lower())
        return None if text is None or text.lower() in WORDS.get(name, ()) else QueueBounds.of(name, text, brokers)

    def count(self, name: str, maximum: int | None = None) -> int | None:
        """Returns a number of at least 1."""
        number = self.integer(name)
        if number is not None and (number < 1 or (maximum is not None and number > maximum)):
            raise UsageError(f"option {name!r}: expected 1 {f'to {maximum}' if maximum else 'or more'}, found {number}")
        return number

    def paths(self) -> list[str]:
        """Returns all paths: `load(one)`, `load([some])`, or option `store`."""
        paths = [self._given[name] for name in ("path", "store") if name in self._given]
        try:
            paths.extend(json.loads(self._given.get("paths", "[]")))
        except ValueError as error:
            raise UsageError(f"option 'paths': expected a JSON list: {error}") from error
        if not paths:
            raise UsageError(
                "no path: use load(PATH) or option 'store'; a table that CREATE TABLE made has no options: use CREATE "
                "TEMPORARY VIEW"
            )
        return paths

    def names(self, name: str) -> tuple[str, ...]:
        """Returns a comma-separated list."""
        return tuple(part.strip() for part in self._given.get(name, "").split(",") if part.strip())

    def trust(self) -> frozenset[Trust]:
        """Returns what is trusted."""
        known = [str(choice) for choice in Trust if choice is not Trust.BODIES]
        for name in self.names("trust"):
            if name not in known:
                raise UsageError(f"option 'trust': expected {' or '.join(known)}, found {name!r}")
        return frozenset(map(Trust, self.names("trust")))

    def one_of(self, name: str, values: list[str]) -> str:
        """Returns one of the allowed values; the first if the option is not set."""
        value = self._given.get(name.lower(), values[0]).lower()
        if value not in values:
            raise UsageError(f"option {name!r}: expected {' or '.join(values)}, found {value!r}")
        return value

    def integer(self, name: str) -> int | None:
        """Returns an integer."""
        text = self._given.get(name.lower())
        try:
            return None if text is None else int(text)
        except ValueError as error:
            raise UsageError(f"option {name!r}: expected a whole number, found {text!r}") from error

    def size(self, name: str) -> int | None:
        """Returns a number of bytes of 1 or more, as `words.parse_size` reads it."""
        text = self._given.get(name.lower())
        size = None if text is None else words.parse_size(text)
        if text is not None and not size:
            raise UsageError(f"option {name!r}: expected bytes, e.g. 67108864 or 64m, found {text!r}")
        return size

    def time(self, name: str) -> int | None:
        """Returns ms since the epoch, as `words.parse_time` reads them; UTC if no zone is given."""
        text = self._given.get(name.lower())
        time = None if text is None else words.parse_time(text, UTC)
        if text is not None and time is None:
            raise UsageError(f"option {name!r}: expected ms or RFC 3339, found {text!r}")
        return time
