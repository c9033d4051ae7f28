"""What `mqtool plan` prints."""

from mqtool.cli.changes import STEPS
from mqtool.cli.schema import DATA, TABLE, WIDE, Column, OutputSchema


def _text(name: str, doc: str, *, show: str = TABLE, nullable: bool = False) -> Column:
    return Column(name, "string", doc, show=show, nullable=nullable)


def _count(name: str, doc: str, *, show: str = TABLE, nullable: bool = False) -> Column:
    return Column(name, "int64", doc, show=show, nullable=nullable)


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
