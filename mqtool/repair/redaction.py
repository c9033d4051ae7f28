"""Blanks bodies in place. Lengths do not change; checksums are updated."""

import hashlib
from collections import defaultdict
from pathlib import Path

from msgspec.structs import replace

from mqtool.errors import CorruptionError, UnsupportedFormatError, UsageError
from mqtool.formats import commit_log, file_names, java, properties
from mqtool.formats.commit_log import Record, SysFlag
from mqtool.repair.changes import Redact
from mqtool.repair.staged_files import StagedFiles
from mqtool.store.copies import copy_file
from mqtool.store.files import list_directory
from mqtool.store.store import Store

BLANK = b" "
"""What every byte of a redacted body becomes."""

_COMPRESSION = int(SysFlag.COMPRESSED) | commit_log.COMPRESSION_MASK
_SEPARATOR = bytes((properties.VALUE_END,))


def redact(store: Store, change: Redact, out: Path, staged: StagedFiles) -> None:
    """Blanks the bodies of records."""
    patches: dict[int, list[tuple[int, bytes]]] = defaultdict(list)
    log = store.commit_log
    if not change.physical_offsets:
        raise UsageError("nothing to redact: no message was chosen")
    for offset in sorted(set(change.physical_offsets)):
        try:
            record = log.record_at(offset)
        except CorruptionError as error:
            raise UsageError(f"expected the physical offset of a message: {error}") from error
        where = f"{java.decode_utf8(record.topic)}/{record.queue_id}@{record.queue_offset}"
        number = log.segment_at(offset)
        assert number is not None
        if not record.body.strip(BLANK):
            staged.notes.append(f"physical offset {offset}, {where}: there is nothing to blank")
            continue
        patches[number].append((offset - log.segments[number].base, redacted(record)))
        digest = hashlib.sha256(record.body).hexdigest()
        staged.notes.append(f"physical offset {offset}, {where}: body of {len(record.body)} bytes, sha256 {digest}")
    for number, of_segment in patches.items():
        path = log.segments[number].path
        name = staged.name(path)
        copy_file(path, out / name, of_segment)
        staged.put(name, out / name, keep_time=True)
    staged.notes.append(
        "the quarantine keeps the old bodies until its undo data is discarded; keys and properties, "
        "slaves, backups and exports keep theirs"
    )
    if list_directory(store.path / file_names.COMPACTION):
        staged.notes.append(f"{file_names.COMPACTION}/ may hold copies of messages of compacted topics")


def redacted(record: Record) -> bytes:
    """Returns a record with a blank body of the same length.

    The COMPRESSED flag is cleared, because the new body is not compressed: a consumer that cannot decompress one
    message drops all messages that came with it (MessageDecoder.decode, 4.9.7 and 5.5.0).

    Raises:
        UnsupportedFormatError: the body contains a batch of messages.
    """
    if record.sys_flag & SysFlag.INNER_BATCH:
        raise UnsupportedFormatError(
            f"physical offset {record.physical_offset}: its body is a batch of messages; "
            "redact knows bodies of single messages only"
        )
    body = BLANK * len(record.body)
    redacted_record = replace(
        record, body=body, body_crc=commit_log.body_crc(body), sys_flag=record.sys_flag & ~_COMPRESSION
    )
    data = commit_log.build_record(redacted_record)
    return properties.renew_crc32(data) if record.properties.endswith(_SEPARATOR) else data
