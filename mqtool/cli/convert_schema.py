"""What `mqtool convert` prints."""

from mqtool.cli.rebuild_schema import DAMAGE
from mqtool.cli.schema import TABLE, WIDE, Column, OutputSchema

CONVERT = OutputSchema(
    "convert",
    1,
    "what a conversion made",
    (
        Column("what", "string", "the conversion", show=TABLE),
        Column("source", "string", "root of the store that was read", show=TABLE),
        Column("target", "string", "root of the new store", show=TABLE),
        Column("complete", "boolean", "everything was there and has its place in the new store", show=TABLE),
        Column("status", "string", "of the new store, as `verify` sees it: clean, dirty, corrupt, unknown", show=TABLE),
        Column("records", "int64", "of the new log; null where the log was copied", show=TABLE, nullable=True),
        Column("units", "int64", "of all queues of the new store", show=TABLE),
        Column("start", "int64", "physical offset of the new log's first byte", show=WIDE),
        Column("end", "int64", "physical offset after the new log's last record", show=WIDE),
        Column("unresolved", "int64", "references to records that were no longer there, kept as they are", show=WIDE),
        Column("left_behind", "array", "names in the source's root that the new store does not have", show=TABLE),
        Column("differences", "array", "units that the queues and the log do not agree on, in words", show=TABLE),
        DAMAGE,
    ),
    single=True,
)
