"""The human version of a runbook: what `mqtool runbook show` prints and docs/runbooks/ holds."""

from mqtool.repair.runbooks.model import Runbook

_COMMON = """## How it runs

1. **detect**: `mqtool verify` and other checks of the runbook; if the symptom is absent it ends (exit code 4)
2. **explain**: what a start of the broker would do to the store as it is, and how many messages that would cost
3. **plan**: every file that would change, with its SHA-256 before and after, or the new directory
4. **gate**: the lock is free and taken, nobody writes, enough space, a backup acknowledged (`--yes`)
5. **apply**: only with `--apply`; built aside, old files kept in `.mqtool/quarantine`, every step in a journal
6. **verify**: the complete store, the symptom again, and the broker's start again
7. **undo or finalize**: `mqtool undo STORE` restores every byte; `mqtool finalize STORE --yes` discards the undo data

Without `--apply` it ends after the plan and has changed nothing. `--protocol FILE` writes the evidence as Markdown.
"""


def _codes(book: Runbook) -> str:
    """Returns the codes of verify that it is about."""
    codes = ", ".join(f"`{code}`" for code in book.codes)
    return f"{codes} (`mqtool checks CODE` explains one)" if codes else "No code of `mqtool verify` shows it by itself."


def page(book: Runbook) -> str:
    """Returns the page as Markdown."""
    options = "".join(f" {need}" for need in book.needs)
    symptom = "\n".join(f"- {line}" for line in book.symptom)
    does = "\n".join(f"{number}. {line}" for number, line in enumerate(book.does, 1))
    return f"""# {book.id} {book.name}

```console
$ mqtool runbook run {book.id} /data/store{options}
$ mqtool runbook run {book.id} /data/store{options} --apply --yes --protocol ticket.md
```

## Symptom

{symptom}

## Cause

{book.cause}

## Without the runbook

{book.today}

## What it does

{does}

## Findings

{_codes(book)}

## Limits

{book.limits}

{_COMMON}"""
