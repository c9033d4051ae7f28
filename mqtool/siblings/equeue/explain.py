"""Predicts what a start of EQueue's broker does to the messages of a store, as values and in one sentence."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from mqtool.siblings.equeue import serve
from mqtool.siblings.equeue.serve import Unserved
from mqtool.siblings.equeue.settings import EQueueSettings, settings_of
from mqtool.siblings.equeue.start import Refusal, Start, start
from mqtool.siblings.equeue.store import EQueueStore, StoredMessage

MAX_UNSERVED = 10_000
"""Unserved entries of one queue that are listed; a damaged header can claim any number of them."""


@dataclass(slots=True)
class Explanation:
    """Result of the prediction.

    Attributes:
        refusal: why the broker does not start, None if it does.
        clears_root: it deletes everything below the root.
        write_position: global position at which it continues to write; None if it does not start.
        overwritten: positions of valid messages after the data end that it finds; they are lost without an error.
        missing: names of message chunks that are missing, though later ones or queue entries show that they were there:
            their messages are lost, and where the newest is missing, entries point to what is written next.
        unserved: by (topic, queue id): entries that lead consumers to nothing, or to a message with another place. The
            last of `MAX_UNSERVED` represents those after it, which are not followed.
        silent: what it does without logging or an error.
    """

    refusal: Refusal | None = None
    clears_root: bool = False
    write_position: int | None = None
    overwritten: list[int] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    unserved: dict[tuple[str, int], list[Unserved]] = field(default_factory=dict)
    silent: list[str] = field(default_factory=list)

    @property
    def is_harmless(self) -> bool:
        """Whether it starts, no message chunk is missing, and nothing is lost by the start."""
        return self.refusal is None and not self.clears_root and not self.overwritten and not self.missing

    @property
    def verdict(self) -> str:
        """The result in one sentence."""
        if self.refusal is not None:
            found = f"{self.refusal.exception}: {self.refusal.path}: {self.refusal.message}"
            return f"does not start ({found}); {self.refusal.remedy}"
        if self.clears_root:
            return f"starts, and {self.silent[-1]}"
        lost = f"{len(self.overwritten)} valid message(s) after it are lost" if self.overwritten else "nothing is lost"
        if self.missing:
            lost += f"; the messages of {', '.join(self.missing)} are lost: the file is missing"
        return f"starts and continues at position {self.write_position}; {lost}"


def explain(root: Path, settings: EQueueSettings | None = None) -> Explanation:
    """Foretells a start; nothing is written.

    Args:
        root: the store.
        settings: of the broker that will start; by default those that the chunk headers speak for.

    Raises:
        NotAStoreError, UnsupportedFormatError, StoreError: it cannot be read.
    """
    with EQueueStore(root) as store:
        chosen = settings or settings_of(root, store.listing)
        shape = store.shape
        found = start(root, chosen, shape)
        answer = Explanation(found.refusal, found.clears_root, silent=found.notes)
        answer.missing = [one.file_name for one in store.missing_chunks()]
        try:
            if found.refusal is None and not found.clears_root:
                answer.write_position = found.messages[max(found.messages)].global_end
                answer.overwritten = _overwritten(store, found)
                for key, queue in found.queues.items():
                    answer.unserved[key] = _listed(serve.unserved(found, queue, chosen, shape))
        finally:
            found.close()
    return answer


def _listed(unserved: Iterator[Unserved]) -> list[Unserved]:
    """Returns as many entries as are listed."""
    entries = list(islice(unserved, MAX_UNSERVED))
    if len(entries) == MAX_UNSERVED:
        words = "this entry and those after it are not followed: too many lead to no message"
        entries[-1] = Unserved(entries[-1].queue_offset, None, "queue", None, words)
    return entries


def _overwritten(store: EQueueStore, found: Start) -> list[int]:
    """Returns positions of valid messages in the last chunk that the broker's scan of it does not reach."""
    last = found.messages[max(found.messages)]
    if last.file is None or last.completed:
        return []
    path = last.file.path
    return [
        message.position
        for message in store.messages()
        if isinstance(message, StoredMessage) and message.chunk.path == path and message.frame.start >= last.data_end
    ]
