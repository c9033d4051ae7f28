"""Where queues begin and end to be read, in the words of Spark's Kafka source: JSON by topic and queue."""

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from mqtool.errors import UsageError
from mqtool.export.schema import ReadRequest, RecordClass, class_of
from mqtool.export.sources import Source
from mqtool.store.store import Store

LATEST, EARLIEST = -1, -2
WORDS = {"startingOffsets": ("earliest", "latest"), "endingOffsets": ("latest",)}
"""Words that may be given in place of JSON."""
_FLAT = 8

Place = tuple[str, str, int]
"""Broker, topic and queue id."""


class QueueBounds(Struct, frozen=True):
    """A bound for each of some queues."""

    option: str  # that states it
    values: Mapping[Place, int]  # queue offsets, LATEST or EARLIEST; or ms since the epoch
    column: str = "queue_offset"  # that the values bound; or store_timestamp

    @classmethod
    def of(cls, option: str, text: str, brokers: list[str]) -> "QueueBounds":
        """Parses `{"TOPIC": {"QUEUE": VALUE}}`; raises UsageError.

        Of several stores, which have queues of the same names, each has such a value, by the names of their brokers.
        """
        by_broker: dict[str, dict[str, dict[int, int]]]
        try:
            if len(brokers) == 1:
                by_broker = {brokers[0]: msgspec.json.decode(text, type=dict[str, dict[int, int]])}
            else:
                by_broker = msgspec.json.decode(text, type=dict[str, dict[str, dict[int, int]]])
        except msgspec.MsgspecError as error:
            form = '{"TOPIC": {"QUEUE": VALUE}}' if len(brokers) == 1 else '{"BROKER": {"TOPIC": {"QUEUE": VALUE}}}'
            forms = ", ".join([*WORDS.get(option, ()), "JSON"])
            raise UsageError(f"option {option!r}: expected {forms} such as {form}, found {text!r} ({error})") from error
        values = {
            (broker, topic, queue): value
            for broker, topics in by_broker.items()
            for topic, queues in topics.items()
            for queue, value in queues.items()
        }
        if others := by_broker.keys() - set(brokers):
            raise UsageError(f"option {option!r}: no store of broker {min(others)!r}; known: {', '.join(brokers)}")
        is_time = option.endswith("ByTimestamp")
        for place, value in values.items():
            if value < (0 if is_time else EARLIEST):
                expected = "ms since the epoch" if is_time else f"a queue offset, {LATEST} or {EARLIEST}"
                raise UsageError(f"option {option!r}: expected {expected} for {_name(place)}, found {value}")
        return cls(option, values, "store_timestamp" if is_time else "queue_offset")

    def refuse(self, word: int, reason: str) -> None:
        """Raises UsageError if a value is LATEST or EARLIEST, whichever `word` is."""
        for place, value in self.values.items():
            if value == word:
                raise UsageError(f"option {self.option!r}: {word} for {_name(place)}, but {reason}")

    def resolve(self, store: Store, source: Source, read: ReadRequest, *, strict: bool) -> "QueueBounds":
        """Returns the bounds of the queues of one store, with the next queue offset in place of LATEST.

        Raises UsageError unless they name each queue that has messages to read, no queue that is not read, and, if
        `strict`, offsets that it has. Of a log without any queues nothing is known, so LATEST is refused.
        """
        known = store.queues()
        queues = {
            (source.broker, queue.topic, queue.queue_id): queue
            for queue in known
            if read.selection.matches_topic(queue.topic)
            and read.selection.queue_id in (None, queue.queue_id)
            and (read.every_class or class_of(queue.topic, 0) is RecordClass.COMMITTED)
        }
        values = {place: value for place, value in self.values.items() if place[0] == source.broker}
        if not known:
            self.refuse(LATEST, f"{source.path} has no queues")
            return QueueBounds(self.option, values, self.column)
        if missing := {place for place, queue in queues.items() if queue.min_offset < queue.max_offset} - values.keys():
            raise UsageError(
                f"option {self.option!r} lacks {_name(min(missing))} of {source.path}; name all queues that are read, "
                "or select some with topic and queueId"
            )
        if unknown := values.keys() - queues:
            raise UsageError(f"option {self.option!r}: {source.path} has no {_name(min(unknown))} among what is read")
        for place, value in values.items() if self.column == "queue_offset" else ():
            low, high = queues[place].min_offset, queues[place].max_offset
            if strict and value >= 0 and not low <= value <= high:
                raise UsageError(
                    f"option {self.option!r}: expected {low} to {high} for {_name(place)} of {source.path}, found "
                    f"{value}; set failOnDataLoss=false to read what there is"
                )
            values[place] = high if value == LATEST else value
        return QueueBounds(self.option, values, self.column)


def between(begin: QueueBounds | None, end: QueueBounds | None) -> str:
    """Returns a condition for the messages of the queues that the bounds name, from begin to end; "" without bounds."""
    tests: dict[Place, list[str]] = {}
    for bounds, sign in ((begin, ">="), (end, "<")):
        for place, value in bounds.values.items() if bounds else ():
            test = [f"{bounds.column} {sign} {value}"] if bounds and value >= 0 else []
            tests[place] = tests.get(place, []) + test
    return _either([" AND ".join([_test(place), *bounds]) for place, bounds in tests.items()])


def from_begin(begin: QueueBounds) -> str:
    """Returns a condition for all messages except those before the bounds; of queues without a bound, for all."""
    before = [f"{_test(place)} AND {begin.column} < {value}" for place, value in begin.values.items() if value >= 0]
    return f"NOT ({_either(before)})" if before else ""


def both(*conditions: str) -> str:
    """Returns the condition that all of some conditions hold; "" for one that always does."""
    given = [condition for condition in conditions if condition]
    return given[0] if len(given) == 1 else " AND ".join(f"({condition})" for condition in given)


def _test(place: Place) -> str:
    broker, topic, queue = place
    quoted = (text.replace("'", "''") for text in (broker, topic))
    return "broker = '{}' AND topic = '{}' AND queue_id = {}".format(*quoted, queue)


def _either(tests: list[str]) -> str:
    """Joins tests by OR, nested as evenly as possible, because parsers limit the depth."""
    if len(tests) <= _FLAT:
        return " OR ".join(f"({test})" for test in tests)
    half = len(tests) // 2
    return f"({_either(tests[:half])}) OR ({_either(tests[half:])})"


def _name(place: Place) -> str:
    return f"queue {place[2]} of topic {place[1]}"
