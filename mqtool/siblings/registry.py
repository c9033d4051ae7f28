"""The supported kinds of stores: the commands for each, and how a path is recognised."""

import re
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from mqtool.formats import file_names
from mqtool.siblings import Table

if TYPE_CHECKING:
    from mqtool.siblings.base import OpenedStore


COMMANDS = ("info", "dump", "get", "find", "verify", "explain-start", "rebuild", "salvage", "export")
"""Verbs that are commands; the other verbs are functions of the kind's package."""

VERBS = (*COMMANDS, "write")

_DEPTH = 4
"""Number of parent directories of a file that are checked for being the store's root."""


class Kind(Struct, frozen=True):
    """One kind of store."""

    name: str  # stable name
    package: str  # package with `TABLES`, and its module `kind` with `KIND`, a class; imported when needed
    summary: str  # description for users
    verbs: tuple[str, ...]  # the supported ones of `VERBS`, as commands or as functions of the package
    page: str  # its page in docs/formats
    files: str = ""  # regular expression for names of files that `dump` prints one by one; "" if there are none

    def recognises(self, path: Path) -> bool:
        """Whether a path is a store of this kind, or a file of one. Reads only names and first bytes."""
        return self._class.recognises(path)

    def open(self, path: Path) -> "OpenedStore":
        """Opens a store for reading.

        Raises NotAStoreError, StoreError or UnsupportedFormatError if the store cannot be read.
        """
        return self._class(path)

    @property
    def tables(self) -> tuple[Table, ...]:
        """The tables of this kind of store; `dump` prints the first one by default."""
        tables: tuple[Table, ...] = import_module(self.package).TABLES
        return tables

    @property
    def _class(self) -> "type[OpenedStore]":
        kind: type[OpenedStore] = import_module(f"{self.package}.kind").KIND
        return kind


KINDS = (
    Kind(
        "equeue",
        "mqtool.siblings.equeue",
        "EQueue's chunk store (.NET): message chunks and queue chunks",
        VERBS,
        "equeue.md",
        "(message|queue)-chunk-[0-9]+",
    ),
    Kind(
        "tfchunk",
        "mqtool.siblings.tfchunk",
        "EventStore's log of TFChunk files with its checkpoints",
        ("info", "dump", "get", "find", "verify", "salvage", "export"),
        "tfchunk.md",
        "chunk-[0-9]+[.][0-9]+",
    ),
    Kind(
        "tiered",
        "mqtool.siblings.tiered",
        "RocketMQ's tiered storage (POSIX provider): a directory of segments by queue",
        ("info", "dump", "get", "find", "verify", "export"),
        "tiered.md",
    ),
)


def store_of_file(path: Path) -> tuple[Kind, Path] | None:
    """Returns kind and root of the store to which a file belongs; None if it belongs to none of these kinds."""
    kinds = [kind for kind in KINDS if re.fullmatch(kind.files, path.name)]
    if not kinds or not path.is_file():
        return None
    roots = path.absolute().parents[:_DEPTH]
    return next(((kind, root) for root in roots for kind in kinds if kind.recognises(root)), None)


def recognise(path: Path) -> Kind | None:
    """Returns the kind of store at a path; None if it is none of `KINDS` (it may be RocketMQ's own)."""
    if (path / file_names.COMMIT_LOG).is_dir():
        return None  # checked first, so that a command on RocketMQ's own store loads no other kind
    return next((kind for kind in KINDS if kind.recognises(path)), None)


def root_near(path: Path) -> tuple[Kind, Path] | None:
    """Returns kind and root of the store at a path, in its directory `store`, or around it; None if there is none."""
    for root in (path, path / "store", *path.parents[:_DEPTH]):
        kind = recognise(root)
        if kind is not None:
            return kind, root
    return None
