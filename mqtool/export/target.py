"""The target of an export: a local directory, or an object store through fsspec. Callers do not need to know which.

Paths are relative to the target's root, with `/`. `replace` and `move` are atomic for one file; `commit` makes
changes of several files atomic. In an object store (s3://, gs://, hdfs://, memory:// …) an object appears completely
or not at all, so `replace` is one write; `move` copies inside the store and leaves the removal to its caller. Both are
safe to repeat, also by two runs at once. Errors of its driver become StoreErrors.
"""

import errno
import fcntl
import posixpath
import shutil
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from inspect import signature
from pathlib import Path
from typing import IO, Any, Protocol

from mqtool.errors import ExportError, StoreError, StoreLockedError, UsageError
from mqtool.jobs.atomic import NewFile, replace_file, sync_directory
from mqtool.store.remote import answer, file_system, s3_credentials

_OBJECT_STORES = ("s3", "s3a", "gs", "gcs", "abfs", "abfss", "az")
"""Schemes of stores that cannot rename and have no directories."""
AT_ONCE = 16
"""Requests in flight where many are made; s3fs opens ten connections."""
_DELTA_OPTIONS = {
    "s3": {
        "key": "aws_access_key_id",
        "secret": "aws_secret_access_key",
        "token": "aws_session_token",
        "anon": "aws_skip_signature",
    },
    "gs": {"token": "google_service_account"},
    "abfs": {
        "account_name": "azure_storage_account_name",
        "account_key": "azure_storage_account_key",
        "sas_token": "azure_storage_sas_token",
        "tenant_id": "azure_storage_tenant_id",
        "client_id": "azure_storage_client_id",
        "client_secret": "azure_storage_client_secret",
    },
}
"""By scheme, the names that deltalake has for what can be configured in fsspec."""


class Target(Protocol):
    """The operations that an export needs."""

    url: str

    def create(self, path: str) -> IO[bytes]:
        """Opens a new file for writing, creating its directories as needed; its contents are durable after `close`."""

    def replace(self, path: str, data: bytes) -> None:
        """Writes a complete small file, durably; readers see the old contents or the new."""

    def write_new(self, path: str, data: bytes) -> bool:
        """Writes a complete small file, durably, unless one exists; returns whether the file is this one."""

    def read(self, path: str) -> bytes | None:
        """Returns a small file's bytes; None if it does not exist."""

    def open(self, path: str) -> IO[bytes]:
        """Opens a file for reading."""

    def ends(self, sizes: Mapping[str, int], count: int) -> list[bytes]:
        """Returns the last bytes, at most `count`, of each of some files, whose sizes are given by path."""

    def move(self, files: Mapping[str, str]) -> list[str]:
        """Moves files to new paths, except those moved before; returns the new paths of files that are in neither.

        What is moved may also stay in its old place, until its directory is removed.
        """

    def sizes(self, path: str) -> dict[str, int]:
        """Returns the bytes of each file below a directory, by path; none if it does not exist."""

    def names(self, path: str) -> list[str]:
        """Returns the names in a directory, sorted; none if it does not exist."""

    def remove(self, path: str) -> None:
        """Removes a file, or a directory with its contents, if it exists."""

    def lock(self, path: str) -> AbstractContextManager[bool]:
        """Excludes other exports where the target has locks; its value is whether it does."""


def target_of(url: str) -> Target:
    """Returns the target for a path or URL; raises UsageError if the path is a file."""
    if "://" in url and not url.startswith("file://"):
        return RemoteTarget(url)
    return LocalTarget(url.removeprefix("file://"))


class LocalTarget:
    """A directory of this machine, or one that all workers mount."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._root = Path(url)
        if self._root.exists() and not self._root.is_dir():
            raise UsageError(f"{url}: is a file; give a directory for the export")

    def create(self, path: str) -> IO[bytes]:
        """See `Target`."""
        where = self._root / path
        where.parent.mkdir(parents=True, exist_ok=True)
        file: Any = NewFile(where)
        return file

    def replace(self, path: str, data: bytes) -> None:
        """See `Target`."""
        where = self._root / path
        where.parent.mkdir(parents=True, exist_ok=True)
        replace_file(where, data)

    def write_new(self, path: str, data: bytes) -> bool:
        """See `Target`; the lock excludes others between the check and the write."""
        if (self._root / path).exists():
            return False
        self.replace(path, data)
        return True

    def read(self, path: str) -> bytes | None:
        """See `Target`."""
        try:
            return (self._root / path).read_bytes()
        except FileNotFoundError:
            return None

    def open(self, path: str) -> IO[bytes]:
        """See `Target`."""
        return (self._root / path).open("rb")

    def ends(self, sizes: Mapping[str, int], count: int) -> list[bytes]:
        """See `Target`."""
        ends = []
        for path, size in sizes.items():
            with self.open(path) as file:
                file.seek(max(0, size - count))
                ends.append(file.read())
        return ends

    def move(self, files: Mapping[str, str]) -> list[str]:
        """See `Target`; a directory is synced once, not for each file."""
        places = {self._root / source: self._root / to for source, to in files.items()}
        directories = {place.parent for place in places.values()}
        for directory in directories:
            directory.mkdir(parents=True, exist_ok=True)
        for source, place in places.items():
            with suppress(FileNotFoundError):
                source.rename(place)
        for directory in directories:
            sync_directory(directory)
        return [to for to in files.values() if not (self._root / to).exists()]

    def sizes(self, path: str) -> dict[str, int]:
        """See `Target`."""
        files = (file for file in (self._root / path).rglob("*") if file.is_file())
        return {file.relative_to(self._root).as_posix(): file.stat().st_size for file in files}

    def names(self, path: str) -> list[str]:
        """See `Target`."""
        try:
            return sorted(entry.name for entry in (self._root / path).iterdir())
        except FileNotFoundError:
            return []

    def remove(self, path: str) -> None:
        """See `Target`."""
        where = self._root / path
        if where.is_dir():
            shutil.rmtree(where)
        else:
            where.unlink(missing_ok=True)

    @contextmanager
    def lock(self, path: str) -> Iterator[bool]:
        """See `Target`; raises StoreLockedError if another process exports into the same directory."""
        where = self._root / path
        where.parent.mkdir(parents=True, exist_ok=True)
        with where.open("wb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise StoreLockedError("another export is writing here; wait for it", self._root) from error
            yield True


class RemoteTarget:
    """A prefix in an object store."""

    def __init__(self, url: str) -> None:
        """Opens the file system; raises UsageError if no driver is installed for this kind of URL."""
        self.url = url
        self._fs, self._root = file_system(url)

    def _path(self, path: str) -> str:
        return posixpath.join(self._root, path) if path else self._root

    def _make_parent(self, where: str) -> None:
        """Makes the directory of a file, as in HDFS; drivers of object stores would create a missing bucket instead."""
        if self.scheme not in _OBJECT_STORES:
            self._fs.makedirs(posixpath.dirname(where), exist_ok=True)

    @property
    def scheme(self) -> str:
        """The scheme of the URL, in lower case."""
        return self.url.partition("://")[0].lower()

    def delta_options(self) -> dict[str, str]:
        """Returns the endpoint and the credentials of the driver, as options of deltalake.

        For S3, those that the driver has found, also in a profile or a role. For others, those of fsspec's
        configuration; driver and deltalake read the same variables of the environment.
        """
        given = dict(self._fs.storage_options)
        names = next((names for scheme, names in _DELTA_OPTIONS.items() if self.scheme.startswith(scheme)), {})
        if self.scheme.startswith("s3") and not ({"key", "anon"} & given.keys()):
            given |= answer(self.url, lambda: s3_credentials(self._fs))
        options = {name: str(given[key]) for key, name in names.items() if given.get(key) is not None}
        if self.scheme.startswith("s3"):
            service = self._fs.s3.meta
            if service.region_name not in (None, "aws-global"):
                options["aws_region"] = service.region_name
            if ".amazonaws.com" not in service.endpoint_url:
                options |= {"aws_endpoint_url": service.endpoint_url, "aws_allow_http": "true"}
        return options

    def require_prefix(self) -> None:
        """Raises ExportError if the URL is that of an object; StoreError if the bucket is missing or not accessible."""
        try:
            entries: list[str] = answer(self.url, lambda: self._fs.ls(self._root, detail=False, refresh=True))
        except FileNotFoundError as error:
            if error.__cause__ is not None:  # an answer of the service; of a prefix without objects it has none
                raise StoreError(f"{error}; create the bucket, or correct the URL", self.url) from error
            return
        if entries == [self._root] and self._fs.isfile(self._root):
            raise ExportError("is an object; give a prefix for the export", self.url)

    def create(self, path: str) -> IO[bytes]:
        """See `Target`."""

        def made() -> IO[bytes]:
            self._make_parent(self._path(path))
            opened: IO[bytes] = self._fs.open(self._path(path), "wb")
            return opened

        return answer(self.url, made)

    def replace(self, path: str, data: bytes) -> None:
        """See `Target`."""

        def replaced() -> None:
            self._make_parent(self._path(path))
            self._fs.pipe_file(self._path(path), data)

        answer(self.url, replaced)

    def write_new(self, path: str, data: bytes) -> bool:
        """See `Target`.

        Whoever writes first wins, by a conditional write. For drivers and services without conditional writes (s3fs
        before 2024.12, for example) two writes within the same moment may both seem to win.
        """

        def written() -> None:
            where = self._path(path)
            self._make_parent(where)
            if not self._create(where, data) and not self._fs.exists(where):
                self._fs.pipe_file(where, data)

        try:
            answer(self.url, written)
        except (StoreError, FileNotFoundError):
            if self.read(path) is None:
                raise
        return self.read(path) == data  # also if a driver repeated a request whose answer was lost

    def _create(self, where: str, data: bytes) -> bool:
        """Writes an object that must not exist; returns False if driver or service has no conditional writes."""
        if "mode" not in signature(self._fs.pipe_file).parameters:
            return False
        try:
            self._fs.pipe_file(where, data, mode="create")
        except OSError as error:
            if error.errno == errno.ENOSYS:
                return False
            raise
        return True

    def read(self, path: str) -> bytes | None:
        """See `Target`."""
        try:
            return bytes(answer(self.url, lambda: self._fs.cat_file(self._path(path))))
        except FileNotFoundError:
            return None

    def open(self, path: str) -> IO[bytes]:
        """See `Target`."""
        opened: IO[bytes] = answer(self.url, lambda: self._fs.open(self._path(path), "rb"))
        return opened

    def ends(self, sizes: Mapping[str, int], count: int) -> list[bytes]:
        """See `Target`; one request for each file, in parallel."""
        paths, starts = [self._path(path) for path in sizes], [max(0, size - count) for size in sizes.values()]
        stops = list(sizes.values())
        data: list[bytes] = answer(
            self.url, lambda: self._fs.cat_ranges(paths, starts, stops, batch_size=AT_ONCE, on_error="raise")
        )
        return data

    def move(self, files: Mapping[str, str]) -> list[str]:
        """See `Target`; object stores copy, in parallel, and other stores rename."""
        staging = posixpath.commonpath([posixpath.dirname(source) for source in files])
        staged = self.sizes(staging)
        places = {self._path(source): self._path(to) for source, to in files.items() if source in staged}

        def moved() -> None:
            if self.scheme in _OBJECT_STORES:
                self._fs.copy(list(places), list(places.values()), on_error="ignore", batch_size=AT_ONCE)
                return
            for source, place in places.items():
                self._make_parent(place)
                with suppress(FileNotFoundError):  # another run moved it in the meantime
                    self._fs.mv(source, place)

        answer(self.url, moved)
        left = self.sizes(staging)  # what another run did not remove in the meantime was copied
        others = [to for source, to in files.items() if source not in left]
        return [to for to in others if not answer(self.url, partial(self._fs.exists, self._path(to)))]

    def sizes(self, path: str) -> dict[str, int]:
        """See `Target`."""
        self._fs.invalidate_cache()
        try:
            entries: dict[str, Any] = answer(self.url, lambda: self._fs.find(self._path(path), detail=True))
        except FileNotFoundError:
            return {}
        return {posixpath.relpath(name, self._root): int(entry["size"]) for name, entry in entries.items()}

    def names(self, path: str) -> list[str]:
        """See `Target`."""
        self._fs.invalidate_cache()
        try:
            entries: list[Any] = answer(self.url, lambda: self._fs.ls(self._path(path), detail=False))
        except FileNotFoundError:
            return []
        return sorted({posixpath.basename(name.rstrip("/")) for name in entries} - {""})

    def remove(self, path: str) -> None:
        """See `Target`."""

        def removed() -> None:
            self._fs.invalidate_cache()
            if self._fs.exists(self._path(path)):
                self._fs.rm(self._path(path), recursive=True)

        with suppress(FileNotFoundError):  # another run removed it in the meantime
            answer(self.url, removed)

    @contextmanager
    def lock(self, path: str) -> Iterator[bool]:  # noqa: ARG002 - part of the protocol
        """Excludes nobody, because object stores have no locks; `write_new` lets only one of two runs commit."""
        self.require_prefix()
        yield False
