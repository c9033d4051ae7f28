"""How far a run has come, in a file that is replaced as a whole."""

import json
from pathlib import Path
from typing import Any

from mqtool.errors import StoreError, UsageError
from mqtool.jobs.atomic import leftovers, replace_file
from mqtool.store.named_files import require_regular

_VERSION = 1


class StateFile:
    """The notes of one run.

    Attributes:
        path: of the file.
    """

    def __init__(self, path: Path, fingerprint: dict[str, Any]) -> None:
        """Reads and writes nothing yet.

        Args:
            fingerprint: what must be the same when the run is resumed, as JSON.

        Raises:
            UsageError: at the path is a directory, a FIFO or a device.
        """
        require_regular(path)
        self.path = path
        self._fingerprint = json.loads(json.dumps(fingerprint))

    def save(self, state: dict[str, Any]) -> None:
        """Replaces the file.

        Raises:
            StoreError: the system refuses.
        """
        whole = {"version": _VERSION, "of": self._fingerprint, "state": state}
        try:
            replace_file(self.path, json.dumps(whole).encode())
        except OSError as error:
            raise StoreError(f"cannot be written: {error.strerror}", self.path) from error

    def load(self) -> dict[str, Any] | None:
        """Returns what was saved, None if nothing was.

        Raises:
            UsageError: the file is of another run, or not of a run at all.
            StoreError: it cannot be read.
        """
        whole = self.replaceable()
        if whole is None:
            return None
        if whole.get("of") != self._fingerprint:
            raise UsageError(f"{self.path}: notes of another run: store, selection and settings must be the same")
        state: dict[str, Any] = whole["state"]
        return state

    def replaceable(self) -> dict[str, Any] | None:
        """Returns the notes that are there, of whatever run, None if there are none.

        Raises:
            UsageError: the file is something else, which would be lost.
            StoreError: it cannot be read.
        """
        try:
            whole = json.loads(self.path.read_text("utf-8"))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreError(f"cannot be read: {error.strerror}", self.path) from error
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{self.path}: expected the notes of a stopped run, found something else") from error
        if not isinstance(whole, dict) or whole.get("version") != _VERSION or "state" not in whole:
            raise UsageError(f"{self.path}: expected the notes of a stopped run of this release")
        return whole

    def remove(self) -> None:
        """Removes the file; there may be none."""
        for path in (self.path, *leftovers(self.path)):
            path.unlink(missing_ok=True)
