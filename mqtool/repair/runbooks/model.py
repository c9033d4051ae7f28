"""The parts of a runbook: its request, its case, how it detects the problem, its proposal, and its next commands."""

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cached_property
from pathlib import Path

from msgspec import Struct

from mqtool import guide
from mqtool.commands import Opened, command, new_directory
from mqtool.errors import MqtoolError, UsageError
from mqtool.recovery import Outcome, predict
from mqtool.repair.from_findings import RepairProposal
from mqtool.store.config.broker_config import ConfigSource
from mqtool.store.store import Store
from mqtool.verify import CATALOGUE, Area, Finding, Options, Verification, verify
from mqtool.verify.finding_collector import unread


class Request(Struct, frozen=True):
    """Options of a run."""

    apply: bool = False  # apply the plan; otherwise everything is checked and planned, and nothing is changed
    backup_acknowledged: bool = False  # there is a backup, or none is needed
    config: "str | Path | Mapping[str, object] | None" = None  # broker keys
    broker: str | None = None  # release that will be started, "4.9" or "5.5"; None for the one that wrote the store
    copies: tuple[Path, ...] = ()  # other copies of the same log: slaves, backups
    to: Path | None = None  # new directory, for runbooks that write outside of the store
    topics: tuple[str, ...] = ()  # names, for runbooks about topics
    at: int | None = None  # physical offset, for runbooks about one record
    before: int | None = None  # physical offset, for runbooks about the front of the log
    allow_unread: bool = False  # messages may be deleted that somebody still needs
    used: int | None = None  # per cent of the disk that are taken; None to ask the system

    def opened(self, root: Path) -> Opened:
        """Returns a store with the options of the run, for printed commands."""
        return Opened(root, self.config, self.broker)


class Case(Struct, dict=True):
    """One store as a runbook sees it. Expensive checks run at most once."""

    store: Store  # opened for reading
    request: Request  # options of the run

    @property
    def root(self) -> Path:
        """Root of the store."""
        return self.store.path

    @property
    def broker(self) -> str:
        """Release that will be started."""
        return self.request.broker or str(self.store.version.release)

    @cached_property
    def verification(self) -> Verification:
        """Result of `verify`."""
        return verify(self.store, Options(broker=self.request.broker))

    @cached_property
    def start(self) -> "Outcome | str":
        """Predicted start of the broker, or the reason why it cannot be predicted."""
        return start_of(self.root, self.broker, self.request.config)

    def findings(self, codes: Collection[str]) -> tuple[Finding, ...]:
        """Returns the findings with one of some codes."""
        return tuple(finding for finding in self.verification.findings if finding.code in codes)


def start_of(root: Path, broker: str, config: ConfigSource) -> "Outcome | str":
    """Returns the predicted start of a broker on a store, or the reason why it cannot be predicted."""
    try:
        return predict(root, broker, config)
    except MqtoolError as error:
        return str(error)


class Detection(Struct, frozen=True):
    """Whether the problem is present."""

    present: bool | None  # it is; None if not all that would show it could be read
    evidence: tuple[str, ...] = ()  # facts in words
    findings: tuple[Finding, ...] = ()  # of `verify` that indicate it, or why that is unknown


class Made(Struct, frozen=True):
    """What was written into a new directory."""

    facts: tuple[str, ...]  # in words
    complete: bool = True  # whether nothing that can be had was refused or left out
    is_lossy: bool = False  # whether it lacks messages all the same: they were lost already
    put_in_place: tuple[str, ...] = ()  # commands that put the directory in the store's place


class NewDirectory(Struct, frozen=True):
    """A new directory; the store is not changed."""

    what: str  # description in words
    make: Callable[[Path], Made]  # creates `to`
    # Whether the new directory has the messages of this store at their offsets, without its damage; otherwise it is a
    # copy, or another kind of store.
    repairs: bool = False


class Advice(Struct, frozen=True):
    """Steps that mqtool cannot carry out."""

    words: tuple[str, ...]  # what to do, one step each, the most important first
    next_steps: tuple[str, ...] = ()  # commands to type


Proposal = RepairProposal | NewDirectory | Advice


class Runbook(Struct, frozen=True, dict=True):
    """One known problem. Its page in docs/runbooks/ describes it, and contains what is not code: title and symptoms."""

    id: str  # `RB-` and two digits
    detect: Callable[[Case], Detection]  # detects the problem
    propose: Callable[[Case, Detection], Proposal]  # proposes the changes; only called if the problem is present

    @cached_property
    def _page(self) -> str:
        return guide.text_of(f"runbooks/{self.id}.md")

    @property
    def name(self) -> str:
        """The title of the page."""
        return self._page.splitlines()[0].removeprefix(f"# {self.id} ")

    @property
    def needs(self) -> str:
        """Options that it requires to be applied, from the first command of the page."""
        return self._page.splitlines()[3].partition("/data/store")[2].lstrip()

    @property
    def symptom(self) -> tuple[str, ...]:
        """What a user sees, in the broker's own words where it has some."""
        return guide.symptoms_in(self._page)

    @property
    def codes(self) -> tuple[str, ...]:
        """Codes of the findings that name this runbook."""
        return codes_of(self.id)

    @property
    def text(self) -> str:
        """The page with the codes, Markdown."""
        codes = ", ".join(f"`{code}`" for code in self.codes)
        words = f"{codes} (`mqtool help CODE` explains one)" if codes else "No code of `mqtool verify` alone shows it."
        return self._page.replace("\n## Limits\n", f"\n## Findings\n\n{words}\n\n## Limits\n")

    def page(self) -> str:
        """Returns the text and how all runbooks run."""
        _, heading, steps = guide.text_of("runbooks/README.md").partition("\n## How it runs\n")
        return self.text + heading + steps


def codes_of(runbook: str) -> tuple[str, ...]:
    """Returns the codes of the findings that name a runbook."""
    return tuple(code for code, check in CATALOGUE.items() if runbook in check.runbooks)


def by_findings(runbook: str) -> Callable[[Case], Detection]:
    """Returns a detection by the findings that name a runbook."""

    def detect(case: Case) -> Detection:
        findings = case.findings(codes_of(runbook))
        return Detection(True, words_of(findings), findings) if findings else without_findings(case, runbook)

    return detect


def without_findings(case: Case, runbook: str) -> Detection:
    """Returns that the problem of a runbook is absent, or unknown if what its findings are about could not be read."""
    areas = {CATALOGUE[code].area for code in codes_of(runbook)}
    why = unread(case.verification.findings, Area.COMMIT_LOG, *areas)
    return Detection(None if why else False, words_of(why), why)


_TOLD = 20


def words_of(findings: Iterable[Finding]) -> tuple[str, ...]:
    """Returns a line for each of the first findings, and a count of the rest."""
    lines = [f"{finding.code}: {finding.file}{_place(finding)}: {finding.evidence}" for finding in findings]
    more = len(lines) - _TOLD
    return (*lines[:_TOLD], f"and {more} more findings") if more > 0 else tuple(lines)


def _place(finding: Finding) -> str:
    return "" if finding.position is None else f" position {finding.position}"


def required_copies(case: Case) -> tuple[Path, ...]:
    """Returns the other copies of the log; raises UsageError if none was given."""
    if not case.request.copies:
        raise UsageError("this runbook compares the store with another copy of its log: give it with --with")
    return case.request.copies


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


def _options(request: Request) -> tuple[str, ...]:
    """Returns the options of a run that are its own, without `--yes`."""
    named = {"-o": request.to, "--at": request.at, "--before": request.before, "--used": request.used}
    words = [word for name, value in named.items() if value is not None for word in (name, str(value))]
    words += [word for path in request.copies for word in ("--with", str(path))]
    words += [word for topic in request.topics for word in ("--topic", topic)]
    return (*words, "--allow-unread") if request.allow_unread else tuple(words)
