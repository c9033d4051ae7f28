"""Stores in object storage: URLs with a scheme, listed once, read by ranges.

`RemotePath` has the part of `Path` that reading needs. It answers from one listing, made when the store is opened,
so opening costs a few requests however many queues there are. No file is fetched completely: each read requests a
range. Needs fsspec and a driver for the scheme, as the extra `s3` has.
"""

import posixpath
import re
import stat
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, cast

from msgspec import Struct

from mqtool.commands import with_extra
from mqtool.errors import NotAStoreError, StoreError, UsageError

_URL = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)
_PROBE = 4096
_PROBES = 64
_EXACT = 1 << 20

T = TypeVar("T")


def is_url(text: str) -> bool:
    """Whether a text is a URL in object storage: it has a scheme other than `file`."""
    return _URL.match(text) is not None and not text.lower().startswith("file://")


def file_system(url: str) -> tuple[Any, str]:
    """Returns the fsspec file system of a URL and the path in it; raises UsageError without its driver."""
    try:
        from fsspec.core import url_to_fs  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise UsageError(f"{url}: needs fsspec: {with_extra('s3')}") from error
    try:
        fs, path = url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise UsageError(f"{url}: {error}") from error
    return fs, path.rstrip("/")


def remote_glob(pattern: str) -> list[str]:
    """Returns the URLs that a pattern matches, sorted."""
    fs, path = file_system(pattern)
    return sorted(str(fs.unstrip_protocol(match)) for match in answer(pattern, lambda: fs.glob(path)))


def answer(url: str, ask: Callable[[], T]) -> T:
    """Returns the result of a driver; its errors but FileNotFoundError become StoreError."""
    try:
        return ask()
    except FileNotFoundError:
        raise
    except Exception as error:  # drivers raise what their libraries raise
        raise StoreError(f"{type(error).__name__}: {error}", url) from error


def s3_credentials(driver: Any) -> dict[str, str | None]:
    """Returns what a driver of S3 signs with, in fsspec's names, also from a profile or a role; {} for none."""
    from fsspec.asyn import sync  # noqa: PLC0415 - an extra

    driver.connect()
    credentials = sync(driver.loop, driver.session.get_credentials)
    if credentials is None:
        return {}
    key = sync(driver.loop, credentials.get_frozen_credentials)
    return {"key": key.access_key, "secret": key.secret_key, "token": key.token}


class RemoteStatus(Struct, frozen=True):
    """Result of `stat`."""

    st_size: int
    st_mtime_ns: int
    st_mode: int
    st_uid: int = 0  # objects have no owner: nothing is denied to it, as to root


class Tree:
    """The listing of everything below a URL.

    Attributes:
        files: size by path in the file system.
        directories: paths.
    """

    def __init__(self, fs: Any, root: str, url: str) -> None:
        fs.invalidate_cache()
        listing: dict[str, Any] = answer(url, lambda: fs.find(root, detail=True))
        self.files = {path: int(info["size"] or 0) for path, info in listing.items() if info.get("type") != "directory"}
        self.directories: set[str] = set()
        for path in self.files:
            parent = posixpath.dirname(path)
            while parent not in self.directories and len(parent) >= len(root):
                self.directories.add(parent)
                parent = posixpath.dirname(parent)

    @cached_property
    def children(self) -> dict[str, list[str]]:
        """Names in each directory."""
        by_directory: dict[str, list[str]] = {}
        for path in (*self.files, *self.directories):
            by_directory.setdefault(posixpath.dirname(path), []).append(posixpath.basename(path))
        return {path: sorted(names) for path, names in by_directory.items()}


class RemotePath:
    """A place in object storage, with the part of `pathlib.Path` that reading needs."""

    def __init__(self, url: str, tree: Tree | None = None) -> None:
        """Takes a URL with its scheme; answers from `tree` if there is one, and makes no request yet."""
        self._url = url.rstrip("/")
        self._tree = tree

    @cached_property
    def _place(self) -> tuple[Any, str]:
        return file_system(self._url)

    def __str__(self) -> str:
        return self._url

    def __repr__(self) -> str:
        return f"RemotePath({self._url!r})"

    def __fspath__(self) -> str:
        return self._url

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RemotePath) and str(other) == self._url

    def __lt__(self, other: object) -> bool:
        return self._url < str(other)

    def __hash__(self) -> int:
        return hash(self._url)

    def __truediv__(self, name: object) -> "RemotePath":
        return RemotePath(f"{self._url}/{name}", self._tree)

    @property
    def name(self) -> str:
        """The last part."""
        return self._url.rpartition("/")[2]

    @property
    def parent(self) -> "RemotePath":
        """The parent directory."""
        return RemotePath(self._url.rpartition("/")[0], self._tree)

    def with_name(self, name: str) -> "RemotePath":
        """Returns the place of this name in the same directory."""
        return self.parent / name

    def listed(self) -> "RemotePath":
        """Returns the same place with a new listing of everything below it; raises NotAStoreError if that is empty."""
        fs, path = self._place
        try:
            tree = Tree(fs, path, self._url)
        except FileNotFoundError as error:
            raise NotAStoreError(f"no such location: {error}", self._url) from error
        if not tree.directories:
            raise NotAStoreError("no such prefix; give the store's root (it contains commitlog/)", self._url)
        return RemotePath(self._url, tree)

    def is_file(self) -> bool:
        """Whether there is an object at this place."""
        fs, path = self._place
        return path in self._tree.files if self._tree else bool(answer(self._url, lambda: fs.isfile(path)))

    def is_dir(self) -> bool:
        """Whether there are objects below this place."""
        fs, path = self._place
        return path in self._tree.directories if self._tree else bool(answer(self._url, lambda: fs.isdir(path)))

    def exists(self) -> bool:
        """Whether there is an object at or below this place."""
        return self.is_file() or self.is_dir()

    def stat(self) -> RemoteStatus:
        """Returns size and kind, without a time; raises FileNotFoundError if nothing is at this place."""
        if self.is_dir():
            return RemoteStatus(0, 0, stat.S_IFDIR | 0o755)
        fs, path = self._place
        size = self._tree.files.get(path) if self._tree else answer(self._url, lambda: fs.info(path))["size"]
        if size is None:
            raise FileNotFoundError(self._url)
        return RemoteStatus(int(size), 0, stat.S_IFREG | 0o644)

    def iterdir(self) -> Iterator["RemotePath"]:
        """Yields the content of a directory, by name; raises FileNotFoundError if it does not exist."""
        fs, path = self._place
        if self._tree is None:
            names = sorted(
                posixpath.basename(str(entry)) for entry in answer(self._url, lambda: fs.ls(path, detail=False))
            )
        elif path in self._tree.directories:
            names = self._tree.children.get(path, [])
        else:
            raise FileNotFoundError(self._url)
        yield from (self / name for name in names)

    @property
    def path(self) -> str:
        """The URL, because entries of a listing are read like `os.DirEntry`."""
        return self._url

    def opened(self) -> "RemoteBytes":
        """Returns a reader of the object; raises StoreError if there is no object."""
        try:
            return RemoteBytes(*self._place, self._url, self.stat().st_size)
        except FileNotFoundError as error:
            raise StoreError("cannot be opened: no such object", self._url) from error


class RemoteBytes:
    """Ranged reads of one object."""

    def __init__(self, fs: Any, path: str, url: str, size: int) -> None:
        self._fs, self._path, self._url = fs, path, url
        self.size = size

    def read(self, position: int, count: int) -> bytes:
        """Returns bytes from a position, fewer than `count` only at the end; raises StoreError if refused."""
        end = min(position + count, self.size)
        if position >= end:
            return b""
        try:
            return bytes(answer(self._url, lambda: self._fs.cat_file(self._path, start=position, end=end)))
        except FileNotFoundError as error:
            raise StoreError("was deleted since it was listed; run the command again", self._url) from error

    def close(self) -> None:
        """Does nothing: nothing is kept open."""

    def data_end(self) -> int:
        """Returns a position after which only zeros were found.

        Object storage has no holes, and a broker allocates segments of a gigabyte in advance. So the end is found by
        probing: places all over the object, then around the last nonzero one. Data after zeros of more than a
        sixty-fourth of the object may be missed; reading ranges within the log does not rely on this.
        """
        low, high = 0, self.size
        while high - low > _EXACT:
            step = max(_PROBE, -(-(high - low) // min(_PROBES, max(4, (high - low) // _EXACT))))
            places = list(range(low, high, step))
            used = [at for at, data in zip(places, self._probe(places), strict=True) if any(data)]
            if not used:
                return low
            low, high = used[-1], min(used[-1] + step, high)
        return low + len(self.read(low, high - low).rstrip(b"\0"))

    def _probe(self, places: list[int]) -> list[bytes]:
        """Returns some bytes at each place, requested in parallel."""
        ends = [min(at + _PROBE, self.size) for at in places]
        data: list[bytes] = answer(self._url, lambda: self._fs.cat_ranges([self._path] * len(places), places, ends))
        return data


def as_path(text: "str | Path") -> Path:
    """Returns a path for a text; a URL becomes a `RemotePath`."""
    if not isinstance(text, str):
        return text
    path: Any = RemotePath(text) if is_url(text) else Path(text.removeprefix("file://"))
    return cast("Path", path)


def is_remote(path: Path) -> bool:
    """Whether a path is one in object storage, a `RemotePath`."""
    place: Any = path
    return isinstance(place, RemotePath)


def absolute(text: str) -> str:
    """Returns a path that does not depend on the working directory of a process; a URL is returned unchanged."""
    return text if is_url(text) else str(Path(text.removeprefix("file://")).absolute())


def store_root(text: "str | Path") -> Path:
    """Returns a store's root, listed at once in object storage; raises NotAStoreError if nothing is at the URL."""
    path: Any = as_path(text)
    return cast("Path", path.listed() if isinstance(path, RemotePath) else path)
