"""The page of a runbook for readers: output of `mqtool runbook show`, and docs/runbooks/."""

from mqtool.repair.runbooks.model import Runbook

_COMMON = """## How it runs

1. **detect**: `mqtool verify` and other checks of the runbook; if the symptom is absent, the runbook ends (exit code 4)
2. **explain**: what a start of the broker would do to the store now, and how many messages it would lose
3. **plan**: lists every file that would change, with its SHA-256 before and after, or the new directory
4. **gate**: takes the lock; checks that nothing writes to the store, that there is space, and a backup (`--yes`)
5. **apply**: after consent (`--yes`); builds new files, keeps old ones in `.mqtool/quarantine`, and a journal of steps
6. **verify**: verifies the whole store, checks the symptom again, and predicts the broker's startup again
7. **undo**: `mqtool undo STORE --yes` restores every byte; `mqtool discard-undo STORE --yes` deletes the old files

`--config FILE` names the broker's broker.conf: a size in it that differs from the files prevents the start. Without the
option, mqtool uses the file that it finds where brokers keep it; if it finds none, the result says that broker.conf was
not checked.

Without `--yes`, it stops after the plan; on a terminal it asks. `--protocol FILE` writes the evidence as Markdown.
"""


def _codes(runbook: Runbook) -> str:
    """Returns the codes of the findings that name the runbook."""
    codes = ", ".join(f"`{code}`" for code in runbook.codes)
    return f"{codes} (`mqtool help CODE` explains one)" if codes else "No code of `mqtool verify` shows it by itself."


def page(runbook: Runbook) -> str:
    """Returns the page as Markdown."""
    options = "".join(f" {need}" for need in runbook.needs)
    symptom = "\n".join(f"- {line}" for line in runbook.symptom)
    does = "\n".join(f"{number}. {line}" for number, line in enumerate(runbook.does, 1))
    return f"""# {runbook.id} {runbook.name}

```bash
mqtool runbook run {runbook.id} /data/store{options}
mqtool runbook run {runbook.id} /data/store{options} --yes --protocol ticket.md
```

## Symptom

{symptom}

## Cause

{runbook.cause}

## Without the runbook

{runbook.today}

## What it does

{does}

## Findings

{_codes(runbook)}

## Limits

{runbook.limits}

{_COMMON}"""
