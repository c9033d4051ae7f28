"""ConsumeQueueExt: the extension of a queue, with filter bit maps and the tags codes that the addresses replace.

Source: ConsumeQueueExt (4.9.7, 5.5.0).
"""

from pathlib import Path

from mqtool.engine.disk.files import Files
from mqtool.engine.disk.mapped_file_queue import MappedFileQueue
from mqtool.errors import FormatError
from mqtool.formats import consume_queue as layout
from mqtool.formats.consume_queue import LONGEST_EXT_UNIT, ConsumeQueueExtUnit
from mqtool.store.files import list_mapped_files
from mqtool.store.queues.get_message import next_file

_CLOSED = layout.END_OF_EXT_FILE.to_bytes(2, "big", signed=True)


class ConsumeQueueExt:
    """The extension of one queue. Only the dispatcher writes.

    Attributes:
        files: its files; offsets there count their bytes, including the padding at the end of each file.
    """

    def __init__(self, files: Files, directory: Path, file_size: int) -> None:
        self.directory = directory
        self._files = files
        self.files = MappedFileQueue(files, (directory,), file_size, names_at_flush=True)
        self._start = 0

    def clear(self) -> None:
        """Deletes the files that a queue of the same name left when a start cut all of it."""
        for file in list_mapped_files(self.directory).files:
            self._files.remove(file.path)

    def put(self, tags_code: int, store_timestamp: int, bit_map: bytes) -> int:
        """Appends a unit.

        In the page cache on return.

        Returns:
            Its address, for the ConsumeQueue unit's tags code; the tags code itself if no unit can be that long.

        Raises:
            OSError: it was not written.
        """
        unit = layout.make_ext_unit(tags_code, store_timestamp, bit_map)
        if unit.size > min(LONGEST_EXT_UNIT, self.files.file_size - layout.EXT_END_BLANK_SIZE):
            return tags_code
        file = self.files.last
        if file is None or file.is_full:
            file = self.files.create(self._start)
        if unit.size > file.size - file.wrote - layout.EXT_END_BLANK_SIZE:
            file.file.write(file.wrote, _CLOSED)
            file.wrote = file.committed = file.size
            file = self.files.create()
        offset = file.file_from_offset + file.wrote
        file.append(layout.build_ext_unit(unit))
        return layout.ext_address(offset)

    def get(self, address: int) -> ConsumeQueueExtUnit | None:
        """Returns the unit at an address, None if there is none."""
        offset = layout.ext_offset(address)
        file = self.files.find(offset) if offset >= 0 else None
        if file is None:
            return None
        data = file.read(offset - file.file_from_offset, LONGEST_EXT_UNIT)
        try:
            return layout.parse_ext_unit(data)
        except FormatError:
            return None

    def load(self, newest: int | None) -> None:
        """Opens the files and sets the end after the last unit that the queue refers to.

        If that unit is damaged or missing, all files are kept and units go to a new file: a unit at an address that the
        queue already contains would give another message's tags to the filters. The broker writes at such addresses.

        Args:
            newest: address of that unit; None if the queue refers to none: then the extension becomes empty.

        Raises:
            LayoutError: a file has another size than the options state.
        """
        self.files.load()
        end = 0
        if newest is not None:
            offset, unit = layout.ext_offset(newest), self.get(newest)
            if unit is not None:
                end = offset + unit.size
            else:
                end, self._start = self.files.max_offset, next_file(offset, self.files.file_size)
        self.files.truncate(end)

    def close(self) -> None:
        """Closes its files."""
        self.files.close()
