"""Names chosen by globs, as topics are on the command line and in plans."""

import re
from collections.abc import Iterable
from fnmatch import translate
from glob import escape


class Globs:
    """Names that match one of some globs; case counts. Without a glob every name does.

    A glob that only one name matches costs one look into a set, so that thousands of names can be given.
    """

    def __init__(self, globs: Iterable[str] | None) -> None:
        """Takes the globs; None is as none."""
        names, patterns = set(), []
        for glob in globs or ():
            name = re.sub(r"\[([*?[])\]", r"\1", glob)
            if escape(name) == glob:
                names.add(name)
            else:
                patterns.append(translate(glob))
        self._names = frozenset(names)
        self._pattern = re.compile("|".join(patterns)) if patterns else None

    @property
    def is_everything(self) -> bool:
        """Whether every name matches."""
        return not self._names and self._pattern is None

    def matches(self, name: str) -> bool:
        """Whether a name is chosen."""
        if name in self._names or self.is_everything:
            return True
        return self._pattern is not None and self._pattern.match(name) is not None
