"""What `mqtool diff` prints."""

from mqtool.cli.schema import DATA, TABLE, Column, OutputSchema


def _text(name: str, doc: str, *, nullable: bool = False) -> Column:
    return Column(name, "string", doc, show=TABLE, nullable=nullable)


def _count(name: str, doc: str, *, nullable: bool = False) -> Column:
    return Column(name, "int64", doc, show=TABLE, nullable=nullable)


_REGION = (
    _count("start", "physical offset of the first byte, of a whole record where there is one"),
    _count("end", "physical offset after the last byte"),
    _count("bytes", "how many of them differ"),
    _count("messages_a", "sound records of A in it"),
    _count("messages_b", "sound records of B in it"),
    _count("damaged_a", "bytes of A in it without a valid record"),
    _count("damaged_b", "bytes of B in it without a valid record"),
    _text("detail", "what is wrong with the damaged side"),
)

_ALONE = (
    _text("side", "a or b: who has it"),
    _text("kind", "front (the other begins later), end (the other ends sooner), gap (the other lacks a segment)"),
    _count("start", "physical offset of the first byte"),
    _count("end", "physical offset after the last byte"),
    _count("messages", "sound records that start in it"),
)

_TAIL = (
    _text("side", "a or b"),
    _text("kind", "clean (nothing), torn (an unfinished record), stale (records of an earlier life), garbage"),
    _count("start", "physical offset after the last record"),
    _count("length", "bytes up to the last that is not zero"),
    _count("same", "how many of them, from the first, the other side has at the same place"),
    _text("detail", "in words"),
)

_LOG = (
    _count("min_a", "first physical offset of A", nullable=True),
    _count("max_a", "physical offset after the last record of A", nullable=True),
    _count("min_b", "first physical offset of B", nullable=True),
    _count("max_b", "physical offset after the last record of B", nullable=True),
    _count("common_start", "from here both have the same bytes", nullable=True),
    _count("common_end", "up to here", nullable=True),
    _count("diverges_at", "first record that is not the same, or where one side ends; null if none", nullable=True),
    _count("first_byte", "first byte that differs where both have any", nullable=True),
    _count("same_bytes", "that both have"),
    _count("different_bytes", "that both have, and not the same"),
    _count("filler_bytes", "that differ behind a BLANK, where brokers leave anything; no difference"),
    _count("messages_a", "sound records of A in the regions"),
    _count("messages_b", "sound records of B in the regions"),
    _count("region_count", "regions in all"),
    Column("regions", "array", "what both have, and not the same; the first 1000", show=TABLE, fields=_REGION),
    Column("alone", "array", "what only one side has", show=TABLE, fields=_ALONE),
    Column("tails", "array", "what lies behind the last record; makes no difference", show=TABLE, fields=_TAIL),
)

_QUEUE = (
    _text("topic", "name"),
    Column("queue_id", "integer", "of the topic", show=TABLE),
    _count("min_a", "min offset of A; null if the queue is not there", nullable=True),
    _count("max_a", "max offset of A", nullable=True),
    _count("min_b", "min offset of B", nullable=True),
    _count("max_b", "max offset of B", nullable=True),
    _count("messages_a", "messages that only A has"),
    _count("messages_b", "messages that only B has"),
    _count("different", "units of both that are not the same"),
    _count("first_different", "queue offset of the first of them", nullable=True),
    Column("only_a", "array", "first and last queue offset of each run, both included", items="any", show=DATA),
    Column("only_b", "array", "the same for B", items="any", show=DATA),
)

_OFFSET = (
    _text("group", "consumer group"),
    _text("topic", "name"),
    Column("queue_id", "integer", "of the topic", show=TABLE),
    _count("offset_a", "next queue offset that it will read by A; null if there is none", nullable=True),
    _count("offset_b", "by B", nullable=True),
    _count("ahead", "how far B is ahead of A", nullable=True),
)

DIFF = OutputSchema(
    "diff",
    1,
    "what two stores do not have in common",
    (
        _text("verdict", "in one line"),
        _text("a", "one store, as given"),
        _text("b", "the other"),
        Column("equal", "boolean", "nothing differs, and all could be compared", show=TABLE),
        Column("log", "object", "the CommitLogs; null if not asked for", nullable=True, show=TABLE, fields=_LOG),
        _count("queues_compared", "how many"),
        Column("queues", "array", "queues that are not the same", show=TABLE, fields=_QUEUE),
        _count("offsets_compared", "consumer offsets: how many"),
        Column("offsets", "array", "consumer offsets that are not the same", show=TABLE, fields=_OFFSET),
        Column("not_compared", "array", "what could not be looked at, in words", show=TABLE),
    ),
    single=True,
)
