"""CommitLog files with a wrong name, recognised by their records.

The physical offset that a record states, minus its position in the file, is the offset that the file's name should
have.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable
from itertools import accumulate
from pathlib import Path

from msgspec.structs import replace

from mqtool.errors import StoreError
from mqtool.formats import commit_log
from mqtool.records.record_search import RECORD_CODES, records_anywhere
from mqtool.store.files import MappedFile, MappedFileList, ReadFile
from mqtool.store.remote import is_remote

_MAGIC_AT = commit_log.FRAME.size - 4
_OFFSET_AT = commit_log.field_offset("physical_offset")
_AGREEING = 2
"""Records that must agree before a file whose name is a possible one is believed to belong elsewhere: the stated
offset of one record may be damaged."""


def misplaced(
    listed: MappedFileList, size: int | None, elsewhere: Iterable[Path] = ()
) -> tuple[tuple[MappedFile, ...], tuple[MappedFile, ...]]:
    """Returns the files whose records state other physical offsets than their names, with the right base.

    Args:
        listed: content of the directories of the log.
        size: bytes of a segment, None if unknown.
        elsewhere: files next to these directories that may be segments.

    Returns:
        Files whose place is free, and files whose place another file has or claims too.
    """
    files = [file for path in (*listed.strays, *elsewhere) if (file := _stray(path, size)) is not None]
    files += [file for named in listed.files if (file := _named(named, size)) is not None]
    moved = {file.path for file in files}
    taken = [file for file in listed.files if file.path not in moved]
    bases = [file.base for file in taken]
    ends = list(accumulate((file.end for file in taken), max, initial=-1))
    claims = Counter(file.base for file in files)
    free = [file for file in files if ends[bisect_left(bases, file.end)] <= file.base and claims[file.base] == 1]
    return tuple(free), tuple(file for file in files if file not in free)


def in_place(listed: MappedFileList, moved: tuple[MappedFile, ...]) -> tuple[MappedFile, ...]:
    """Returns the segments of a log with misplaced ones where their records belong."""
    paths = {file.path for file in moved}
    kept = (file for file in listed.files if file.path not in paths)
    return tuple(sorted((*kept, *moved), key=lambda file: (file.base, file.path)))


def without_misnamed(files: tuple[MappedFile, ...], size: int | None) -> tuple[MappedFile, ...]:
    """Returns segments without those that are named into the middle of another one.

    Their records, if there are any, state other offsets. A broker finds the other file for every offset in it, because
    it computes the number of a file from the offset (MappedFileQueue.findMappedFileByOffset).

    Args:
        files: by base.
        size: bytes of a segment, None if unknown.
    """
    if size is None:
        return files
    named = [file for file in files if file.base % size == 0]
    bases, ends = [file.base for file in named], [file.end for file in named]

    def is_inside(base: int) -> bool:
        number = bisect_right(bases, base) - 1
        return number >= 0 and base < ends[number]

    return tuple(file for file in files if file.base % size == 0 or not is_inside(file.base))


def _stray(path: Path, size: int | None) -> MappedFile | None:
    try:
        if not path.is_file() or not commit_log.MIN_RECORD_SIZE <= path.stat().st_size <= (size or 1 << 62):
            return None
        with ReadFile(path) as file:
            base = _base(file, size, 1)
            return None if base is None else MappedFile(path, base, file.size)
    except (OSError, StoreError):  # deleted meanwhile, or unreadable: then it is a stray and no more
        return None


def _named(named: MappedFile, size: int | None) -> MappedFile | None:
    if is_remote(named.path) or size is None or named.size != size:
        return None
    try:
        with ReadFile(named.path) as file:
            head = file.read(0, _OFFSET_AT + 8)
            if head[_MAGIC_AT : commit_log.FRAME.size] not in RECORD_CODES:
                return None
            if head[_OFFSET_AT:] == named.base.to_bytes(8, "big"):
                return None
            possible = named.base % size == 0
            base = _base(file, size, _AGREEING if possible else 1)
    except StoreError:
        return None
    return None if base in (None, named.base) else replace(named, base=base)


def _base(file: ReadFile, size: int | None, needed: int) -> int | None:
    """Returns the base of a file according to its first records; None if they do not show it."""
    bases: list[int] = []
    for position, record in records_anywhere(file):
        bases.append(record.physical_offset - position)
        if len(bases) >= needed:
            break
    base = bases[0] if bases else -1
    fits = len(bases) >= needed and len(set(bases)) == 1 and base >= 0 and (size is None or base % size == 0)
    return base if fits else None
