"""The result of a rebuild."""

from msgspec import Struct, field

from mqtool.rebuild.dispatch_batch import DispatchBatch
from mqtool.rebuild.listing import Listing
from mqtool.rebuild.placement import Note
from mqtool.rebuild.queue_writer import QueueName
from mqtool.records.damage import Damage
from mqtool.records.dispatch import Oddity


class Result(Struct):
    """What was read and written."""

    next_offset: int = 0  # physical offset up to which the log has been processed
    records: int = 0  # number of records read
    units: int = 0  # number written to queues, without fill units
    keys: int = 0  # number added to the index
    queues: int = 0  # number of queues written
    index_files: list[str] = field(default_factory=list)  # names, oldest first
    damage: Listing[Damage] = field(default_factory=Listing)  # ranges of the log without a record
    damaged_bytes: int = 0  # total bytes in them
    # Units whose placement was unusual, with their queue.
    notes: Listing[tuple[QueueName, Note]] = field(default_factory=Listing)
    oddities: Listing[Oddity] = field(default_factory=Listing)  # records that a broker could not dispatch as they are
    # Queues whose topic is not usable as a directory name; they got no files.
    unwritable: Listing[QueueName] = field(default_factory=Listing)

    def add_read(self, batch: DispatchBatch) -> None:
        """Counts what was read of the log for a batch."""
        self.records += batch.records
        for damage in batch.damage:
            self.damage.add(damage)
            self.damaged_bytes += damage.end - damage.start
        self.next_offset = max(self.next_offset, batch.end)

    @property
    def is_complete(self) -> bool:
        """Whether every record of the log was readable and has its unit at the queue offset that it states."""
        return not (self.damage or self.notes or self.oddities or self.unwritable)
