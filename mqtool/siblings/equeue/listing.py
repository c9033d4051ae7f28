"""Lists the files of an EQueue store: chunk files in the broker's order, queues, settings, and unexpected files.

The broker settings that determine the files are not recorded in the store; chunk headers imply them.
"""

import json
import re
from collections import Counter
from pathlib import Path

from msgspec import Struct

from mqtool.errors import FormatError, NotAStoreError, UnreadableError
from mqtool.formats import equeue
from mqtool.formats.java import to_int32
from mqtool.store.files import ReadFile, is_regular, list_directory, read_file, require_directory, subdirectories


class QueueSetting(Struct, frozen=True):
    """The content of queue.setting; a missing or empty file has the default values."""

    producer_visible: bool = True
    consumer_visible: bool = True
    is_deleted: bool = False


class QueueFiles(Struct, frozen=True):
    """The folder of one queue."""

    topic: str  # name of the parent folder
    queue_id: int  # number that is the folder's name
    # the folder that the broker reads, whose name is the number in its shortest form. It may be absent.
    directory: Path
    chunks: tuple[Path, ...]  # chunk files in the broker's order


class Listing(Struct, frozen=True):
    """The files and folders below a root."""

    root: Path  # the root directory
    messages: tuple[Path, ...]  # message chunk files in the broker's order
    queues: tuple[QueueFiles, ...]  # folders of queues, sorted by topic and queue id
    # folders whose name should be a queue id but is not a 32-bit number; the broker does not start with one
    bad_folders: tuple[Path, ...]
    # folders whose name is a number in another form, such as 007; the broker reads folder 7 instead
    unread_folders: tuple[Path, ...]
    strays: tuple[Path, ...]  # files in chunk folders that are not chunks


def is_store(path: Path) -> bool:
    """Whether a directory contains message or queue chunks; UnreadableError or OSError if the system does not say."""
    return any(_chunks(path / equeue.MESSAGE_CHUNKS, equeue.MESSAGE_PREFIX)[0]) or (
        (path / equeue.QUEUE_CHUNKS).is_dir() and bool(_queues(path / equeue.QUEUE_CHUNKS)[0])
    )


def list_store(root: Path) -> Listing:
    """Lists the files of a store; raises NotAStoreError if the path is not a directory, or contains no chunks."""
    require_directory(root)
    messages, strays = _chunks(root / equeue.MESSAGE_CHUNKS, equeue.MESSAGE_PREFIX)
    queues, bad, unread = _queues(root / equeue.QUEUE_CHUNKS)
    if not messages and not queues:
        raise NotAStoreError(f"holds neither {equeue.MESSAGE_CHUNKS} nor {equeue.QUEUE_CHUNKS}", root)
    for queue in queues:
        strays += _chunks(queue.directory, equeue.QUEUE_PREFIX)[1]
    kept = tuple(stray for stray in strays if stray.name != equeue.QUEUE_SETTING)
    return Listing(root, messages, queues, bad, unread, kept)


def setting(directory: Path) -> QueueSetting:
    """Reads the queue.setting file of a queue; FormatError if it is not a JSON object of booleans.

    The broker does not start with such a file.
    """
    path = directory / equeue.QUEUE_SETTING
    text = read_file(path) if path.is_file() else b""
    if not text:
        return QueueSetting()
    try:
        document = json.loads(text.decode("utf-8-sig"))
        values = [document.get(name, False) for name in ("ProducerVisible", "ConsumerVisible", "IsDeleted")]
    except (ValueError, AttributeError, RecursionError) as error:
        raise FormatError(f"{path}: expected a JSON object: {error}", layout=equeue.QUEUE_SETTING) from error
    if not all(isinstance(value, bool) for value in values):
        raise FormatError(f"{path}: expected booleans, found {values}", layout=equeue.QUEUE_SETTING)
    names = [name for name in ("ProducerVisible", "ConsumerVisible") if name not in document]
    return QueueSetting(
        *(
            True if name in names else value
            for name, value in zip(("ProducerVisible", "ConsumerVisible", ""), values, strict=True)
        )
    )


def consume_offsets(path: Path) -> dict[str, dict[str, dict[str, int]]] | None:
    """Reads consume-offsets.json or its backup: group → topic → queue → last consumed queue offset.

    None if the file is missing or empty: the broker then has no offsets. FormatError if it is not JSON of this form.
    """
    text = read_file(path) if path.is_file() else b""
    if not text:
        return None
    try:
        document = json.loads(text.decode("utf-8-sig"))
        return {
            str(group): {
                str(topic): {str(queue): int(offset) for queue, offset in queues.items()}
                for topic, queues in topics.items()
            }
            for group, topics in document.items()
        }
    except (ValueError, AttributeError, TypeError, OverflowError, RecursionError) as error:
        raise FormatError(f"{path}: expected offsets by group, topic and queue: {error}", layout=path.name) from error


def _chunks(directory: Path, prefix: str) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """Returns the chunk files in the broker's order, and all other files except temporary ones.

    The broker deletes the temporary files when it starts.
    """
    chunks: list[Path] = []
    strays: list[Path] = []
    for entry in list_directory(directory):
        if not is_regular(entry):
            continue
        is_chunk = equeue.is_chunk_name(entry.name, prefix) and not entry.name.endswith(equeue.TEMPORARY_SUFFIX)
        (chunks if is_chunk else strays).append(Path(entry.path))
    return tuple(sorted(chunks, key=lambda path: path.name.lower())), tuple(strays)


def is_integer(name: str) -> bool:
    """Whether .NET's int.Parse accepts the form of a number, of whatever size."""
    return re.fullmatch("[\t-\r ]*[+-]?[0-9]+[\t-\r ]*", name) is not None


def _queue_id(name: str) -> int | None:
    """Returns the number that int.Parse reads from a folder's name (DefaultQueueStore.LoadQueues); None if it fails."""
    number = int(name) if is_integer(name) else None
    return number if number is not None and number == to_int32(number) else None


def _queues(directory: Path) -> tuple[tuple[QueueFiles, ...], tuple[Path, ...], tuple[Path, ...]]:
    """Returns the queues, and the folders that are `Listing.bad_folders` and `Listing.unread_folders`."""
    queues: dict[tuple[str, int], QueueFiles] = {}
    bad, unread = [], []
    for topic in subdirectories(directory):
        for queue in subdirectories(Path(topic.path)):
            number = _queue_id(queue.name)
            if number is None:
                bad.append(Path(queue.path))
                continue
            path = Path(topic.path) / str(number)
            if queue.name != path.name:
                unread.append(Path(queue.path))
            queues[topic.name, number] = QueueFiles(topic.name, number, path, _chunks(path, equeue.QUEUE_PREFIX)[0])
    return tuple(queues[key] for key in sorted(queues)), tuple(bad), tuple(unread)


class EQueueSettings(Struct, frozen=True):
    """Values of BrokerSetting (EQueue 2.6.3)."""

    message_chunk_size: int = 1 << 30  # data bytes of a message chunk
    queue_chunk_entries: int = 1_000_000  # number of entries of a queue chunk
    max_record_size: int = equeue.MAX_RECORD_SIZE  # maximum size of a message record in bytes
    broker_name: str = "DefaultBroker"  # name of the broker, which is part of message ids

    @property
    def queue_chunk_size(self) -> int:
        """Data bytes of a queue chunk."""
        return self.queue_chunk_entries * equeue.ENTRY_SIZE


def settings_of(root: Path, listing: Listing | None = None) -> EQueueSettings:
    """Returns the settings that most of a store's chunk headers imply; default values if there are no chunks."""
    listed = listing or list_store(root)
    message = _capacity(listed.messages)
    queue = _capacity(tuple(path for queue in listed.queues for path in queue.chunks))
    defaults = EQueueSettings()
    return EQueueSettings(
        message or defaults.message_chunk_size,
        (queue or defaults.queue_chunk_size) // equeue.ENTRY_SIZE or 1,
    )


def _capacity(paths: tuple[Path, ...]) -> int:
    sizes: Counter[int] = Counter()
    for path in paths:
        try:
            with ReadFile(path) as file:
                head = file.read(0, equeue.HEADER_SIZE)
        except UnreadableError:  # the others tell
            continue
        if len(head) == equeue.HEADER_SIZE and (header := equeue.HEADER.parse(head)).is_valid:
            sizes[header.capacity] += 1
    return sizes.most_common(1)[0][0] if sizes else 0
