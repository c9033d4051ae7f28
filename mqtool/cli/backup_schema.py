"""What `mqtool backup` and `mqtool restore` print."""

from mqtool.cli.schema import TABLE, WIDE, Column, OutputSchema


def _text(name: str, doc: str, *, show: str = TABLE, nullable: bool = False) -> Column:
    return Column(name, "string", doc, show=show, nullable=nullable)


def _count(name: str, doc: str, *, show: str = TABLE, nullable: bool = False) -> Column:
    return Column(name, "int64", doc, show=show, nullable=nullable)


def _flag(name: str, doc: str) -> Column:
    return Column(name, "boolean", doc, show=TABLE)


_LOG_END = _count("log_end", "physical offset up to which the log was taken; null if all of it was", nullable=True)
_NOTES = Column("notes", "array", "worth knowing", show=TABLE)

BACKUP = OutputSchema(
    "backup",
    1,
    "what a backup came to",
    (
        _text("store", "root of the store"),
        _text("backup", "directory with the backups"),
        _text("snapshot", "its name: when it was begun, UTC"),
        _flag("live", "a broker held the store meanwhile"),
        _LOG_END,
        _flag("resumed", "an earlier run had not come to its end"),
        _flag("checked", "everything was read back"),
        _count("files", "in the snapshot"),
        _count("bytes", "that were read"),
        _count("pieces", "of files, in the snapshot"),
        _count("new_pieces", "of these not there before"),
        _count("stored", "bytes that the new ones take"),
        _text("manifest", "what it consists of", show=WIDE),
        _NOTES,
        _text("next_step", "the command to type"),
    ),
    single=True,
)

RESTORE = OutputSchema(
    "restore",
    1,
    "what a snapshot holds, and what bringing it back came to",
    (
        _text("backup", "directory with the backups"),
        _text("snapshot", "its name: when it was begun, UTC"),
        _text("of", "root of the store that it is of"),
        _flag("live", "a broker held that store meanwhile"),
        _LOG_END,
        _text("target", "root of the new store; null if none was made", nullable=True),
        _flag("checked", "every byte was proved"),
        _count("files", "in the snapshot"),
        _count("bytes", "of all of them, zeros included"),
        _text("verify", "state that `mqtool verify` gives the new store; null if none was made", nullable=True),
        Column("snapshots", "array", "all that are whole, oldest first", show=TABLE),
        _NOTES,
    ),
    single=True,
)
