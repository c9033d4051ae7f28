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


def next_verify(root: Path, request: Request) -> str:
    """Returns the command that names the one thing to do next."""
    return command("verify", request.opened(root))


def with_directory(runbook_id: str, root: Path, request: Request) -> str:
    """Returns the command that applies a runbook that creates a new directory."""
    more: tuple[object, ...] = () if request.to else ("-o", new_directory(root))
    return run_again(runbook_id, root, request, *more, "--yes")


def after_directory(directory: Path, config: object, broker: str) -> tuple[str, ...]:
    """Returns the commands that check a new store and predict a broker's start on it."""
    return command("verify", Opened(directory, config)), command("explain-start", Opened(directory, config, broker))


def after_change(root: Path, request: Request, broker: str, *, repaired: bool) -> tuple[str, ...]:
    """Returns the commands to choose from after a change in place: undo it, or check it and free the space."""
    if not repaired:
        return command("undo", root, "--yes"), next_verify(root, request)
    start = command("explain-start", Opened(root, request.config, broker))
    return start, command("undo", root, "--yes"), command("discard-undo", root, "--yes")


def _options(request: Request) -> tuple[str, ...]:
    """Returns the options of a run that are its own, without `--yes`."""
    named = {"-o": request.to, "--at": request.at, "--before": request.before}
    words = [word for name, value in named.items() if value is not None for word in (name, str(value))]
    words += [word for path in request.copies for word in ("--with", str(path))]
    words += [word for topic in request.topics for word in ("--topic", topic)]
    return (*words, "--allow-unread") if request.allow_unread else tuple(words)
