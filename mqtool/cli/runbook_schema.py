"""What `mqtool runbook` prints."""

from mqtool.cli.schema import DATA, TABLE, WIDE, Column, OutputSchema


def _text(name: str, doc: str, *, show: str = TABLE, nullable: bool = False) -> Column:
    return Column(name, "string", doc, show=show, nullable=nullable)


def _flag(name: str, doc: str, *, nullable: bool = False) -> Column:
    return Column(name, "boolean", doc, show=TABLE, nullable=nullable)


RUNBOOK_LIST = OutputSchema(
    "runbook-list",
    1,
    "the runbooks",
    (
        _text("id", "what `run` takes"),
        _text("name", "the trouble"),
        _text("symptom", "the first of them"),
        _text("needs", "options that it needs to be carried out", show=WIDE),
    ),
)

RUNBOOK_MATCH = OutputSchema(
    "runbook-match",
    1,
    "a runbook that fits, in the order in which to run them",
    (
        _text("id", "which"),
        _text("name", "the trouble"),
        _text("why", "codes of verify, facts, or the words of its symptom"),
        _text("next_step", "the command to type"),
    ),
)

RUNBOOK_PAGE = OutputSchema(
    "runbook-page",
    1,
    "the page of a runbook",
    (_text("id", "which"), _text("name", "the trouble"), _text("page", "Markdown")),
    single=True,
)

RUNBOOK = OutputSchema(
    "runbook",
    2,
    "what a run of a runbook came to",
    (
        _text("runbook", "id"),
        _text("name", "the trouble"),
        _text("store", "root of the store"),
        _text("broker", "release that the start was worked out for"),
        _text("begun", "RFC 3339"),
        _flag("present", "the trouble is there"),
        _flag("applied", "something was carried out"),
        _flag("mended", "the trouble is gone; null if nothing was carried out", nullable=True),
        Column(
            "physically_gone",
            "int64",
            "messages of which the store held no intact record when the run began; null if that is not known",
            show=TABLE,
            nullable=True,
        ),
        Column(
            "lost_by_start",
            "int64",
            "messages that consumers lose if the broker is started instead, those that are gone among them; null if it "
            "does not come to run",
            show=TABLE,
            nullable=True,
        ),
        Column(
            "lost_after",
            "int64",
            "of the messages that were known, those that they lose when it is started now; null if that is not known",
            show=TABLE,
            nullable=True,
        ),
        _text("made", "the new directory", nullable=True),
        Column(
            "steps",
            "array",
            "in order",
            show=TABLE,
            fields=(
                _text("name", "detect, explain, plan, gate, apply or verify"),
                _text("status", "done, refused, skipped or failed"),
                _text("summary", "in words"),
                Column("evidence", "array", "facts, one each", show=DATA),
            ),
        ),
        Column(
            "plan", "object", "of a change in place, as `mqtool plan` writes it", items="any", show=DATA, nullable=True
        ),
        Column("next_steps", "array", "commands to type, in this order or to choose from", show=TABLE),
    ),
    single=True,
)
