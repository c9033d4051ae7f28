"""Messages on their way to the output: counted, limited, their damage told."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from mqtool.cli.message_rows import MessageRows, damage_row
from mqtool.cli.options import DamageMode
from mqtool.cli.output import Output
from mqtool.cli.progress import Progress
from mqtool.cli.report import Report
from mqtool.errors import FormatError
from mqtool.scan.damage import Damage
from mqtool.store import Message
from mqtool.store.message import explode

EVERY = 1024
"""Messages between two updates of the progress."""


@dataclass(slots=True)
class MessageStream:
    """Passes on messages and damage until a limit is reached.

    Attributes:
        report: is told all damage.
        limit: messages, None for all.
        max_bytes: of their records taken together, None for all.
        exploded: take inner batches apart.
        passed: messages so far.
    """

    report: Report
    limit: int | None = None
    max_bytes: int | None = None
    exploded: bool = False
    passed: int = 0

    def items(self, found: Iterable[Message | Damage]) -> Iterator[Message | Damage]:
        """Yields what may pass."""
        size = 0
        if self.limit == 0:
            return
        for item in found:
            if isinstance(item, Damage):
                self.report.damage(item)
                yield item
                continue
            size += item.store_size
            if self.max_bytes is not None and size > self.max_bytes:
                return
            if item.body_problem:
                self.report.body(item)
            for message in self._parts(item):
                yield message
                self.passed += 1
                if self.passed == self.limit:
                    return

    def _parts(self, message: Message) -> list[Message]:
        if not self.exploded:
            return [message]
        try:
            return explode(message)
        except FormatError as error:
            self.report.say(f"damage: inner batch at physical offset {message.physical_offset}: {error}")
            return [message]

    def write(
        self, found: Iterable[Message | Damage], rows: MessageRows, output: Output, bar: Progress, damage: DamageMode
    ) -> None:
        """Writes what may pass as rows."""
        at = None
        for item in self.items(found):
            if isinstance(item, Message):
                output.row(rows.row(item))
                at = item.physical_offset + item.store_size
                if not self.passed % EVERY:
                    bar.update(at)
            elif damage is DamageMode.ROWS:
                output.row(damage_row(item))
        if at is not None:
            bar.update(at)
