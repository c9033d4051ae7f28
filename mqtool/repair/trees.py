"""Moves files between their places, and removes directories of mqtool."""

import os
from pathlib import Path

from mqtool.repair.files import RepairFiles
from mqtool.repair.fingerprints import fingerprint
from mqtool.repair.paths import QUARANTINE, STAGING, home_of, inside
from mqtool.repair.plan import Step


class Places:
    """The three places of each file of a change.

    Attributes:
        home: directory of mqtool below the root.
    """

    def __init__(self, root: Path, time: str, files: RepairFiles) -> None:
        self.home = home_of(root)
        self._root = root
        self._time = time
        self._files = files

    def target(self, step: Step) -> Path:
        """Returns the file's place in the store."""
        return inside(self._root, step.path)

    def staged(self, step: Step) -> Path:
        """Returns where the new file waits."""
        return self.home / STAGING / step.path

    def kept(self, step: Step) -> Path:
        """Returns where the old file is kept."""
        return self.home / QUARANTINE / self._time / step.path

    def swap_in(self, step: Step) -> None:
        """Replaces the old file by the new one, unless that is done already. Durable on return."""
        target, staged, kept = self.target(step), self.staged(step), self.kept(step)
        if step.before is not None and not kept.exists():
            self._files.keep(target, kept)
            self._files.sync_directory(kept.parent)
        if step.after is None:
            if target.exists():
                self._files.remove(target)
        elif staged.exists():
            self._files.rename(staged, target)
            self._files.sync_directory(staged.parent)
        self._files.sync_directory(target.parent)

    def is_foreign(self, step: Step) -> bool:
        """Whether the file in the store is neither the old nor the new one: another process has written it."""
        states = [state for state in (step.before, step.after) if state is not None]
        actual = fingerprint(self.target(step), full=any(state.sha256 is not None for state in states))
        return actual is not None and not any(state.fits(actual) for state in states)

    def is_swapped(self, step: Step) -> bool:
        """Whether `swap_in` has begun; only meaningful while files are swapped or restored."""
        return self.kept(step).exists() if step.before is not None else not self.staged(step).exists()

    def swap_out(self, step: Step, *, any_content: bool = False) -> None:
        """Restores the old file, unless that is done already. Durable on return.

        Args:
            step: of the change.
            any_content: delete a file that the change created even if its content is not the planned one. Only for
                the process that swapped it in, before it releases the lock.
        """
        target, kept = self.target(step), self.kept(step)
        if kept.exists():
            if target.exists() and target.samefile(kept):
                self._files.remove(kept)  # renaming one name of a file to the other would leave both
            else:
                self._files.rename(kept, target)
                self._files.sync_directory(target.parent)
            self._files.sync_directory(kept.parent)
        elif (
            step.before is None
            and target.exists()
            and self.is_swapped(step)
            and (any_content or not self.is_foreign(step))
        ):
            self._files.remove(target)
            self._files.sync_directory(target.parent)


def remove_tree(path: Path, files: RepairFiles) -> int:
    """Removes a directory of mqtool with everything in it. Links are removed, not followed.

    Returns:
        Bytes on disk that this freed.
    """
    freed = 0
    for directory, _, names in os.walk(path, topdown=False):
        for name in names:
            file = Path(directory) / name
            status = file.lstat()
            freed += status.st_blocks * 512 if status.st_nlink == 1 else 0
            files.remove(file)
        for entry in os.scandir(directory):
            if entry.is_symlink():
                files.remove(Path(entry.path))
        files.remove_directory(Path(directory))
    return freed


def make_like_parent(path: Path, files: RepairFiles) -> None:
    """Creates a directory and its parents durably, with mode and owner of the directory above."""
    missing = [parent for parent in (path, *path.parents) if not parent.exists()]
    files.make_directory(path)
    for directory in reversed(missing):
        files.imitate(directory, directory.parent)
