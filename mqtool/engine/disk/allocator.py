"""Creates segments and makes pages ahead of the writer, in a separate thread.

Two things cost the writer time: creating the next segment, and the pages that do not exist yet when it first writes to
them, through a mapping or by system calls. Both are made in advance. Segments created and not used are deleted when the
store is closed; after a kill an empty next segment is left, as after a kill of the broker. Source:
AllocateMappedFileService, DefaultMappedFile.warmMappedFile (4.9.7, 5.5.0).
"""

import contextlib
import logging
import threading

from mqtool.engine.disk.files import ClosedFileError, Files
from mqtool.engine.disk.mapped_files import MappedFile, MappedFileQueue

_LOG = logging.getLogger(__name__)

FIRST_STEP = 1 << 18
"""Initial number of bytes prepared ahead; doubled with each request."""

MIN_MISSING = 4
"""Pages are requested once this part of those ahead is used, so that more is ready before it is needed."""


class Allocator:
    """Prepares the segments of the CommitLog, and up to `ahead` bytes of pages, which it locks in memory with `lock`.

    Without a thread (`start` was not called) files and pages are prepared when they are needed.
    """

    def __init__(self, files: Files, queue: MappedFileQueue, ahead: int, *, lock: bool = False) -> None:
        self._files = files
        self._queue = queue
        self._ahead = ahead
        self._lock_pages = lock
        self._step = min(FIRST_STEP, ahead)
        self._next: MappedFile | None = None
        self._due: MappedFile | None = None
        self._mapped = True
        self._next_is_due = False
        self._wake = threading.Condition()
        self._thread: threading.Thread | None = None
        self._making = threading.Lock()

    def start(self) -> None:
        """Starts the thread."""
        self._thread = threading.Thread(target=self._run, name="mqtool-allocate", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread and removes the file that was created ahead and not used."""
        thread, self._thread = self._thread, None
        if thread is not None:
            with self._wake:
                self._wake.notify_all()
            thread.join()
        unused, self._next = self._next, None
        if unused is not None:
            unused.destroy(self._files)

    def next_file(self) -> MappedFile:
        """Makes the next file the queue's last file: the one created ahead, or a new one."""
        full = self._queue.last
        with self._making:
            prepared, self._next = self._next, None
            # A broker that was started on the open store has deleted it; bytes written into it would be lost.
            if prepared is not None and not prepared.file.is_in_place:
                _LOG.error("next file was removed by another process; created again path=%s", prepared.file.path)
                prepared.file.close()
                prepared = None
            if prepared is not None and prepared.file_from_offset == self._queue.next_base(0):
                file = self._queue.add(prepared)
            else:
                file = self._queue.create()
        if full is not None and self._lock_pages:
            with contextlib.suppress(ClosedFileError):  # retention was faster
                full.file.unlock()
        if self._thread is not None:
            with self._wake:
                self._next_is_due = True
                self._wake.notify()
        return file

    def reserve(self, file: MappedFile, end: int, *, mapped: bool) -> int:
        """Ensures that a segment can be written up to `end`, and schedules the pages after it.

        Returns the position up to which no further call is needed. `mapped` is False if the segment is written by
        system calls, not through the mapping. Raises OSError if the disk is full.
        """
        if end > file.reserved:
            with self._making:
                file.reserve(min(file.size, max(end, file.reserved + min(self._step, FIRST_STEP))))
        if self._thread is None or file.reserved == file.size:
            return file.reserved
        threshold = self._step - self._step // MIN_MISSING
        if file.reserved - end > threshold:
            return file.reserved - threshold
        self._step = min(self._ahead, 2 * self._step)
        with self._wake:
            self._due, self._mapped = file, mapped
            self._wake.notify()
        return file.reserved

    def _run(self) -> None:
        """One piece of pages, which the writer needs first, and the next segment in turns."""
        while self._wait():
            file, self._due = self._due, None
            if file is not None:
                self._prepare(file)
            if self._next_is_due:
                self._next_is_due = False
                self._make_next()

    def _wait(self) -> bool:
        """Waits until there is something to do; returns False if the thread is to end."""
        with self._wake:
            while self._thread is not None and self._due is None and not self._next_is_due:
                self._wake.wait()
        return self._thread is not None

    def _prepare(self, file: MappedFile) -> None:
        """Makes pages ahead of the writer; after the last ones of a segment, the first ones of the next.

        Ignores errors, which the writer will get when it reaches those pages.
        """
        with contextlib.suppress(OSError):
            self._make_pages(file)
            if file.reserved == file.size and self._next is not None and not self._next.reserved:
                self._make_pages(self._next)

    def _make_pages(self, file: MappedFile) -> None:
        """Reserves blocks and makes pages as far as they should be ahead of the writer by now."""
        start, target = file.reserved, min(file.size, file.wrote + self._step)
        if not file.available or target <= start:
            return
        file.file.reserve(start, target)
        if self._mapped:
            file.file.populate(start, target, lock=self._lock_pages)
        else:
            file.file.read_ahead(start, target)
        with self._making:
            file.reserved = max(file.reserved, target)
        if min(file.size, file.wrote + self._step) - target > self._step // MIN_MISSING:  # the writer went on
            with self._wake:
                self._due = self._due or file

    def _make_next(self) -> None:
        queue = self._queue
        base = queue.next_base(0)
        path = queue.path_for(base)
        try:
            self._files.make_directory(path.parent)
            file = self._files.create(path, queue.file_size)
            self._files.sync_directory(path.parent)
        except OSError as error:
            _LOG.warning("next file cannot be preallocated path=%s error=%s", path, error)
            return
        mapped_file = MappedFile(file, base)
        with self._making:
            if self._next is not None or queue.next_base(0) != base:
                return
            self._next = mapped_file
