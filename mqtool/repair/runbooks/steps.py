"""The commands to type after a run, with the options that the run was given."""

from pathlib import Path

from mqtool.commands import Opened, command, new_directory
from mqtool.repair.runbooks.model import Case, Request


def run_again(runbook_id: str, root: Path, request: Request, *more: object) -> str:
    """Returns the command that runs a runbook with the same options and further ones."""
    return command("runbook", "run", runbook_id, request.opened(root), _options(request), more)


def explain_start(case: Case) -> str:
    """Returns the command that predicts the start of the run's release on its store."""
    return command("explain-start", Opened(case.root, case.request.config, case.broker))


def match(root: Path, request: Request) -> str:
    """Returns the command that lists the runbooks that a store needs, in order."""
    return command("runbook", "match", request.opened(root))


def with_directory(runbook_id: str, root: Path, request: Request) -> str:
    """Returns the command that applies a runbook that creates a new directory."""
    more: tuple[object, ...] = () if request.to else ("-o", new_directory(root))
    return run_again(runbook_id, root, request, *more, "--yes")


def after_directory(directory: Path, broker: str) -> tuple[str, ...]:
    """Returns the commands that check a new store and predict a broker's start on it."""
    return command("verify", directory), command("explain-start", directory, "--release", broker)


def after_change(root: Path, request: Request, broker: str, *, repaired: bool) -> tuple[str, ...]:
    """Returns the commands to choose from after a change in place: undo it, or check it and free the space."""
    if not repaired:
        return command("undo", root, "--yes"), match(root, request)
    start = command("explain-start", Opened(root, request.config, broker))
    return start, command("undo", root, "--yes"), command("discard-undo", root, "--yes")


def _options(request: Request) -> tuple[str, ...]:
    """Returns the options of a run that are its own, without `--yes`."""
    named = {"-o": request.to, "--at": request.at, "--before": request.before}
    words = [word for name, value in named.items() if value is not None for word in (name, str(value))]
    words += [word for path in request.copies for word in ("--with", str(path))]
    words += [word for topic in request.topics for word in ("--topic", topic)]
    return (*words, "--allow-unread") if request.allow_unread else tuple(words)
