"""Names selected by globs, such as topics on the command line and in plans."""

import re
from collections.abc import Iterable
from fnmatch import translate
from glob import escape


def _literal(glob: str) -> str | None:
    """Returns the only name that a glob matches, None if it has wildcards."""
    name = re.sub(r"\[([*?[])\]", r"\1", glob)
    return name if escape(name) == glob else None


def literal_names(globs: Iterable[str]) -> set[str]:
    """Returns the names that globs without wildcards match."""
    return {name for glob in globs if (name := _literal(glob)) is not None}


class Globs:
    """Names that match at least one glob, case-sensitively. Without a glob every name matches.

    A glob without wildcards costs one set look-up, so thousands of names can be given.
    """

    def __init__(self, globs: Iterable[str] | None) -> None:
        """Takes the globs; None means no glob."""
        names, patterns = set(), []
        for glob in globs or ():
            name = _literal(glob)
            if name is None:
                patterns.append(translate(glob))
            else:
                names.add(name)
        self._names = frozenset(names)
        self._pattern = re.compile("|".join(patterns)) if patterns else None

    @property
    def is_everything(self) -> bool:
        """Whether every name matches."""
        return not self._names and self._pattern is None

    def matches(self, name: str) -> bool:
        """Whether a name matches."""
        if name in self._names or self.is_everything:
            return True
        return self._pattern is not None and self._pattern.match(name) is not None
