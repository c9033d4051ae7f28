"""Messages on their way to the output: counted, limited, with damage reported."""

from collections.abc import Iterable, Iterator

from msgspec import Struct

from mqtool.cli.damage_report import DamageReport
from mqtool.cli.options import DamageMode
from mqtool.cli.output import Output
from mqtool.cli.progress import Progress
from mqtool.cli.rows.message_rows import MessageRows, damage_row, undecoded_row
from mqtool.errors import FormatError
from mqtool.records.damage import Damage
from mqtool.store import Message
from mqtool.store.log.json_lines import Lines
from mqtool.store.log.message import explode

EVERY = 1024
"""Messages between two updates of the progress."""


class MessageStream(Struct):
    """Passes on messages and damage until a limit is reached."""

    report: DamageReport  # receives all damage
    limit: int | None = None  # maximum number of messages, None for all
    max_bytes: int | None = None  # maximum sum of their records' sizes, None for all
    exploded: bool = False  # split inner batches into messages
    count: int = 0  # number of messages so far
    size: int = 0  # bytes of their records, with the first one that was too many

    def _is_complete(self) -> bool:
        """Whether a limit has been reached."""
        too_long = self.max_bytes is not None and self.size > self.max_bytes
        return too_long or (self.limit is not None and self.count >= self.limit)

    def items(self, items: Iterable[Message | Damage]) -> Iterator[Message | Damage]:
        """Yields messages and damage within the limits."""
        if self._is_complete():
            return
        for item in items:
            if isinstance(item, Damage):
                self.report.damage(item)
                yield item
                continue
            self.size += item.store_size
            if self._is_complete():
                return
            for message in self._parts(item):
                yield message
                self.count += 1
                if self._is_complete():
                    return

    def _parts(self, message: Message) -> list[Message]:
        if not self.exploded:
            return [message]
        try:
            return explode(message)
        except FormatError as error:
            self.report.report(f"damage: inner batch at physical offset {message.physical_offset}: {error}")
            return [message]

    def write(
        self, items: Iterable[Message | Damage], rows: MessageRows, output: Output, bar: Progress, damage: DamageMode
    ) -> None:
        """Writes messages and damage within the limits as rows."""
        for item in self.items(items):
            if isinstance(item, Damage):
                if damage is DamageMode.ROWS:
                    output.row(damage_row(item))
                continue
            if item.body_problem and not rows.bodies.raw:
                self._undecoded(item.physical_offset, item.body_problem, output, damage)
            output.row(rows.row(item))
            if not self.count % EVERY:
                bar.update(item.physical_offset)

    def write_lines(self, items: Iterable[Lines | Damage], output: Output, bar: Progress, damage: DamageMode) -> None:
        """Writes finished lines; whoever builds them applies the limit."""
        for item in items:
            if isinstance(item, Damage):
                self.report.damage(item)
                if damage is DamageMode.ROWS:
                    output.row(damage_row(item))
                continue
            for physical_offset in item.undecoded:
                self._undecoded(physical_offset, "cannot be decompressed, it is given as stored", output, damage)
            output.lines(item.data)
            self.count += item.count
            bar.update(item.end)

    def _undecoded(self, physical_offset: int, detail: str, output: Output, damage: DamageMode) -> None:
        self.report.report(f"damage: body of the message at physical offset {physical_offset}: {detail}")
        if damage is DamageMode.ROWS:
            output.row(undecoded_row(physical_offset, detail))
