"""Configuration files of a store: loaded with their backups, saved so that a crash leaves the old or the new file.

Source: ConfigManager.load/loadBak/persist, MixAll.string2File (4.9.7, 5.5.0).
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from mqtool.engine.disk.files import Files
from mqtool.errors import ConfigFileError, FormatError
from mqtool.formats import config_files, file_names
from mqtool.formats.config_files import Topics
from mqtool.formats.config_json import Document, json_style
from mqtool.formats.release import Release
from mqtool.recovery.configuration import table_fits

_LOG = logging.getLogger(__name__)
T = TypeVar("T")


class ConfigFiles:
    """The directory `config`.

    Attributes:
        release: release whose format is written.
        style: how its files are formatted.
    """

    def __init__(self, root: Path, files: Files, *, release: Release) -> None:
        self._directory = root / file_names.CONFIG
        self._files = files
        self.style = json_style(release)
        self.release = release
        self._unusable: set[str] = set()

    def load(self, name: str, parse: Callable[[bytes], T]) -> T | None:
        """Reads a file such as topics.json, or its backup if the file is missing, empty or malformed.

        Returns None if neither exists, or both are empty. Raises ConfigFileError if neither can be parsed. A broker
        overwrites such a table sooner or later: it exits, and writes empty tables as it does, or without a backup it
        starts with an empty table. Here nothing is written.
        """
        path = self._directory / name
        broken: FormatError | None = None
        for candidate in (path, path.with_name(name + file_names.BACKUP_SUFFIX)):
            data = candidate.read_bytes() if candidate.is_file() else b""
            try:
                if data:
                    return parse(data)
            except FormatError as error:
                _LOG.warning("configuration file is broken path=%s error=%s", candidate, error)
                broken = broken or error
            if candidate == path and path.is_file():
                self._unusable.add(name)
        if broken is not None:
            raise ConfigFileError(f"is not valid, and there is no valid backup: {broken}", path) from broken
        return None

    def accepts(self, name: str, document: Document) -> bool:
        """Whether a broker of the release reads a file with these values; with others it does not start."""
        return table_fits(name, document, release=self.release)

    def save(self, name: str, data: bytes, *, durable: bool = True) -> None:
        """Writes a file; its previous content becomes its backup, unless `load` could not use it.

        With `durable` it is on disk on return, otherwise after `sync`; it survives a kill in both cases. A power cut
        in between leaves the old file, or only the old backup, or the new file.
        """
        path = self._directory / name
        self._files.make_directory(self._directory)
        new = path.with_name(name + ".new")
        self._files.write_file(new, data, sync=durable)
        if path.exists() and name not in self._unusable:
            self._files.rename(path, path.with_name(name + file_names.BACKUP_SUFFIX))
        self._files.rename(new, path)
        self._unusable.discard(name)
        if durable:
            self._files.sync_directory(self._directory)

    def sync(self, name: str) -> None:
        """Makes a file durable that was saved without."""
        self._files.sync_file(self._directory / name)
        self._files.sync_directory(self._directory)

    def topics(self) -> Topics:
        """Returns topics.json, an empty table if there is none; raises as `load`."""
        return self.load(file_names.TOPICS, config_files.parse_topics) or Topics({})

    def batch_topics(self) -> frozenset[str]:
        """Returns the topics whose queues are BatchCQ; raises as `load`."""
        return config_files.batch_topics(self.topics().topic_config_table)
