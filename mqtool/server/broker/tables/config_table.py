"""A configuration table that is stored in a file with a data version. Source: ConfigManager, DataVersion (5.5.0)."""

import time
from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from msgspec.structs import replace

from mqtool.formats.config_files import DataVersion
from mqtool.formats.release import Release
from mqtool.server.broker.tables.config_persister import ConfigPersister

C = TypeVar("C")


def first_version(release: Release) -> DataVersion:
    """Returns the data version of a table that has not been changed. Only 5.x has a stateVersion."""
    return DataVersion(0, time.time_ns() // 1_000_000, 0 if release >= (5, 5) else None)


def next_version(version: DataVersion | None, release: Release) -> DataVersion:
    """Returns the data version after one more change."""
    new = first_version(release)
    if version is None:
        return replace(new, counter=1)
    return replace(new, counter=version.counter + 1, state_version=version.state_version or new.state_version)


class ConfigTable(ABC, Generic[C]):
    """Configurations by name. Each change increments the data version and marks the file to be written.

    Attributes:
        table: configurations by name.
        data_version: data version of the table.
    """

    def __init__(
        self, persister: ConfigPersister, file_name: str, table: dict[str, C], version: DataVersion | None
    ) -> None:
        """Registers the table's file with the persister.

        Args:
            persister: writes the file.
            file_name: name of the file in the directory `config`.
            table: the table as loaded.
            version: the data version as loaded; None if the file has none.
        """
        self.table = table
        self.data_version = version or first_version(persister.configs.release)
        self._persister = persister
        self._file_name = file_name
        persister.register(file_name, self._build)

    @abstractmethod
    def _build(self) -> bytes:
        """Returns the content of the file."""

    def delete(self, name: str) -> bool:
        """Removes an entry; returns whether it existed."""
        if self.table.pop(name, None) is None:
            return False
        self._changed()
        return True

    def _changed(self) -> None:
        self.data_version = next_version(self.data_version, self._persister.configs.release)
        self._persister.mark(self._file_name)
