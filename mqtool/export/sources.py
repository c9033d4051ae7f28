"""The stores of an export: resolves paths and globs as users write them, names stores, refuses the same log twice."""

import glob
import hashlib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from msgspec import Struct

from mqtool.errors import NotAStoreError, UsageError
from mqtool.store import Store, open_store
from mqtool.store.config import broker_config
from mqtool.store.paths import real_path
from mqtool.store.remote import absolute, is_url, remote_glob

_MEANINGLESS = ("store", "rocketmq", "data", "rocketmqlogs")

_BYTES = 4096


class Source(Struct, frozen=True):
    """One store."""

    broker: str  # its name in the column `broker`
    path: str  # of its root
    config: str | None = None  # path of a broker.conf, or None

    def absolute(self) -> "Source":
        """Returns the same store with paths that processes with other working directories find, too."""
        config = None if self.config is None else absolute(self.config)
        return Source(self.broker, absolute(self.path), config)

    def open(self, *, needs_log: bool = True) -> Store:
        """Opens the store.

        `needs_log` refuses, by a StoreError, a store that has no log, but files that are derived from one: an empty
        answer would be wrong.
        """
        return open_store(self.path, self.config, needs_log=needs_log)


def resolve(arguments: Iterable[str | Path], config: str | Path | None = None) -> list[Source]:
    """Returns the stores that arguments name: `PATH`, `NAME=PATH`, or a glob of roots.

    A broker.conf applies to all of them; it also names the broker if there is only one store. Raises UsageError if two
    stores have the same name, or a store is given twice, NotAStoreError if a glob matches nothing.
    """
    config = None if config is None else str(config)
    named_paths: list[tuple[str | None, str]] = []
    for argument in arguments:
        name, path = _named(str(argument))
        named_paths.extend((name, expanded) for expanded in _expand(path))
    if not named_paths:
        raise UsageError("name at least one store")
    _require_distinct([path for _, path in named_paths])
    configured = broker_config.load(config).text("brokerName") if config and len(named_paths) == 1 else None
    sources = [Source(name or configured or name_of(path), path, config) for name, path in named_paths]
    repeated = [name for name, count in Counter(source.broker for source in sources).items() if count > 1]
    if repeated:
        paths = ", ".join(source.path for source in sources if source.broker == repeated[0])
        raise UsageError(f"two stores have the name {repeated[0]!r} ({paths}); give NAME=PATH for each")
    return sources


def _named(argument: str) -> tuple[str | None, str]:
    name, equals, path = argument.partition("=")
    return (name, path) if equals and name and "/" not in name and ":" not in name else (None, argument)


def _expand(path: str) -> list[str]:
    if not glob.has_magic(path) or (not is_url(path) and Path(path).exists()):
        return [path]
    paths = remote_glob(path) if is_url(path) else sorted(glob.glob(path))  # noqa: PTH207 - patterns may be absolute
    if not paths:
        raise NotAStoreError("no directory matches", path)
    return paths


def _require_distinct(paths: list[str]) -> None:
    seen: dict[str, str] = {}
    for path in paths:
        real = path.rstrip("/") if is_url(path) else str(real_path(Path(path)))
        if real in seen:
            raise UsageError(f"{path} and {seen[real]} are the same store; name it once")
        seen[real] = path


def name_of(path: str) -> str:
    """Returns the last meaningful component of a path: `/data/broker-a/store` gives broker-a."""
    full_path = PurePosixPath(path) if is_url(path) else real_path(Path(path))
    parts = [part for part in full_path.parts if part != "/"]
    return next((part for part in reversed(parts) if part.lower() not in _MEANINGLESS), "broker")


def require_different_logs(stores: list[Store]) -> None:
    """Raises UsageError if two stores contain the same segment: copies, or master and slave."""
    seen: dict[tuple[int, bytes], Store] = {}
    for store in stores:
        for segment in store.commit_log.segments:
            head = store.commit_log.read(segment.base, _BYTES)
            if not any(head):
                continue
            key = segment.base, hashlib.blake2b(head, digest_size=16).digest()
            other = seen.setdefault(key, store)
            if other is not store:
                raise UsageError(
                    f"{other.path} and {store.path} contain the same log (segment {segment.path.name}): "
                    "they are copies, or master and slave; export one of them"
                )
