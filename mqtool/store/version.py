"""Detects which release wrote a store, from traces that only some releases leave."""

import contextlib
from pathlib import Path

from msgspec import Struct

from mqtool.errors import StoreError
from mqtool.formats import checkpoint as checkpoint_format
from mqtool.formats import file_names
from mqtool.formats.checkpoint import Checkpoint
from mqtool.formats.release import Release, assumed_release
from mqtool.store.files import read_file
from mqtool.store.metadata import Metadata


class Version(Struct, frozen=True):
    """A release line and the evidence for it.

    Attributes:
        line: "4.9", "5.1" (5.1.1 to 5.3), "5.5", "5" (some 5.x) or None if nothing shows it.
        evidence: in words.
    """

    line: str | None
    evidence: str

    @property
    def release(self) -> Release:
        """The known release whose rules are assumed for the store: 4.9 or 5.5."""
        return assumed_release(self.line)


def detect(root: Path, metadata: Metadata, checkpoint: Checkpoint | None, first_properties: bytes | None) -> Version:
    """Detects the release from the evidence, the newest release's first.

    Args:
        root: the store.
        metadata: of its config/ directory.
        checkpoint: parsed, None if missing.
        first_properties: stored properties of any record, None if there is none.
    """
    if checkpoint and checkpoint.logics_physical_offset:
        return Version("5.5", "checkpoint has the sixth field, logicsPhysicalOffset")
    if (root / file_names.ROCKSDB_STORE).is_dir():
        return Version("5.5", f"{file_names.ROCKSDB_STORE}/ exists")
    offsets = metadata.offset_tables.offsets
    if offsets and offsets.pull_offset_table is not None:
        return Version("5.5", "consumer offsets hold a pullOffsetTable")
    if checkpoint and checkpoint.confirm_physical_offset:
        return Version("5.1", "checkpoint has the fifth field, confirmPhyOffset")
    if _has_state_version(metadata):
        return Version("5", "configuration files carry a stateVersion")
    for name in (file_names.ABORT_BACKUP, file_names.TIMER_WHEEL, f"{file_names.CONFIG}/{file_names.TIMER_CHECKPOINT}"):
        if _exists(root / name):
            return Version("5", f"{name} exists")
    if metadata.topics_file or metadata.groups_file:
        return Version("4.9", "configuration files carry no stateVersion")
    if first_properties and not first_properties.endswith(b"\x02"):
        return Version("4.9", "properties do not end in 0x02 (4.9.1 to 4.9.8, 5.0 and 5.1.0 to 5.1.4)")
    if checkpoint and checkpoint == Checkpoint(*_first_three(checkpoint)) and any(_first_three(checkpoint)):
        return Version("4.9", "checkpoint has only the three fields of 4.x")
    return Version(None, "unknown from the store")


def _exists(path: Path) -> bool:
    with contextlib.suppress(OSError):  # its directory may not be searched: then it proves nothing
        return path.exists()
    return False


def had_log(checkpoint: Checkpoint | None, *, has_derived_files: bool) -> bool:
    """Whether a store without a segment had a log: its checkpoint states a flush, or queues or index have files."""
    flushed = checkpoint is not None and (checkpoint.physic_msg_timestamp > 0 or checkpoint.logics_msg_timestamp > 0)
    return flushed or has_derived_files


def read_checkpoint(path: Path) -> Checkpoint | None:
    """Returns the parsed checkpoint, None if it is missing or unreadable."""
    try:
        return checkpoint_format.parse(read_file(path))
    except StoreError:
        return None


def _first_three(checkpoint: Checkpoint) -> tuple[int, int, int]:
    return (checkpoint.physic_msg_timestamp, checkpoint.logics_msg_timestamp, checkpoint.index_msg_timestamp)


def _has_state_version(metadata: Metadata) -> bool:
    files = (metadata.topics_file, metadata.groups_file, metadata.offset_tables.offsets, metadata.delay_file)
    versions = [file.data_version for file in files if file is not None]
    return any(version is not None and version.state_version is not None for version in versions)
