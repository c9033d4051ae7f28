"""Topic names of many records as numbers. There are few distinct topics, so each is decoded once."""

from functools import cached_property

from mqtool import native
from mqtool.formats import index_file, java


class TopicTable:
    """Numbers topics in the order in which they are first seen.

    Attributes:
        names: topic of each number, decoded as Java does.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self._numbers: dict[str, int] = {}

    def number_of(self, name: str) -> int:
        """Returns the number of a topic, a new one if it has none."""
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = len(self.names)
            self.names.append(name)
        return number

    @cached_property
    def slots(self) -> "native.logs.TopicSlots":
        """The topics by their bytes as `native.logs` takes them; `learn` adds one."""
        return native.logs.TopicSlots()

    def learn(self, raw: bytes) -> None:
        """Adds a new topic to `slots`, by its bytes."""
        name = java.decode_utf8(raw)
        before = index_file.key_text(name, ""), index_file.tag_key_text(name, "")
        self.slots.learn(raw, self.number_of(name), *(java.string_hash(text) & 0xFFFFFFFF for text in before))
