"""What `plan`, `apply`, `undo` and `finalize` print."""

from mqtool.cli.schema import DATA, TABLE, WIDE, Column, OutputSchema


def _text(name: str, doc: str, *, show: str = TABLE, nullable: bool = False) -> Column:
    return Column(name, "string", doc, show=show, nullable=nullable)


def _count(name: str, doc: str, *, show: str = TABLE, nullable: bool = False) -> Column:
    return Column(name, "int64", doc, show=show, nullable=nullable)


STEPS = Column(
    "steps",
    "array",
    "what becomes of which file",
    show=TABLE,
    fields=(
        _text("action", "create, replace or set-aside"),
        _text("path", "file, below the store"),
        _count("before", "bytes now; null where there is no file", nullable=True),
        _count("after", "bytes then; null where the file goes", nullable=True),
        _text("sha256_before", "of the file now", show=DATA, nullable=True),
        _text("sha256_after", "of the file then", show=DATA, nullable=True),
    ),
)

PLAN = OutputSchema(
    "plan",
    1,
    "what a plan will do",
    (
        _text("store", "root of the store"),
        _text("plan", "file with the plan"),
        Column("changes", "array", "what was asked for", items="any", show=DATA),
        Column("complete", "boolean", "false if damage keeps something from being made or mended", show=TABLE),
        _count("files", "how many files change"),
        _count("space", "bytes that are needed beside what is there"),
        _text("digest", "SHA-256 that tells an edited plan", show=WIDE),
        STEPS,
        Column("notes", "array", "worth knowing before it is carried out", show=TABLE),
        Column(
            "left",
            "array",
            "findings that are still there after it (repair, --from)",
            show=TABLE,
            fields=(
                _text("code", "see `mqtool checks`"),
                _text("file", "below the store"),
                _text("remedy", "what to do about it"),
            ),
        ),
        Column("gates", "array", "what must hold when it is carried out, beside unchanged files", show=WIDE),
        _text("next_step", "the command to type"),
    ),
    single=True,
)

NEXT_STEPS = Column("next_steps", "array", "commands to type, in this order or to choose from", show=TABLE)

APPLY = OutputSchema(
    "apply",
    2,
    "what carrying a plan out came to",
    (
        _text("store", "root of the store"),
        Column("dry_run", "boolean", "gates were tried, nothing was written", show=TABLE),
        Column("already", "boolean", "it had been carried out before; nothing was done now", show=TABLE),
        _count("files", "how many files changed, or would"),
        _text("quarantine", "directory with the old files", nullable=True),
        _text("journal", "what was done, and the way back", nullable=True),
        _text(
            "status",
            "of the whole store by verify: clean, dirty, corrupt, unknown; null if it was not asked",
            nullable=True,
        ),
        _count("errors", "findings of verify that are errors", nullable=True),
        _count("warnings", "findings of verify that are warnings", nullable=True),
        Column("codes", "array", "codes of these errors and warnings", show=TABLE),
        STEPS,
        NEXT_STEPS,
    ),
    single=True,
)


def _end(name: str, doc: str) -> OutputSchema:
    return OutputSchema(
        name,
        1,
        doc,
        (
            _text("store", "root of the store"),
            Column("dry_run", "boolean", "gates were tried, nothing was written", show=TABLE),
            _count("files", "how many files were concerned, or would be"),
            _count("freed", "bytes of disk space freed, or that would be"),
            NEXT_STEPS,
        ),
        single=True,
    )


UNDO = _end("undo", "what taking a change back came to")
FINALIZE = _end("finalize", "what giving the way back up came to")
