"""Selects messages and names: globs, then cheap tests on columns, then exact tests on the rest."""

import re
import sys
from collections.abc import Iterable
from fnmatch import translate
from functools import cached_property
from glob import escape

import numpy as np
from msgspec import Struct

from mqtool.errors import UsageError
from mqtool.formats import java, properties
from mqtool.formats.commit_log import SysFlag
from mqtool.records.frames import Frames
from mqtool.store.log.message import Message, is_batch, parts_of


def _literal(glob: str) -> str | None:
    """Returns the only name that a glob matches, None if it has wildcards."""
    name = re.sub(r"\[([*?[])\]", r"\1", glob)
    return name if escape(name) == glob else None


def literal_names(globs: Iterable[str]) -> set[str]:
    """Returns the names that globs without wildcards match."""
    return {name for glob in globs if (name := _literal(glob)) is not None}


class Globs:
    """Names that match at least one glob, case-sensitively. Without a glob every name matches.

    A glob without wildcards costs one set look-up, so thousands of names can be given.
    """

    def __init__(self, globs: Iterable[str] | None) -> None:
        """Takes the globs; None means no glob."""
        names, patterns = set(), []
        for glob in globs or ():
            name = _literal(glob)
            if name is None:
                patterns.append(translate(glob))
            else:
                names.add(name)
        self._names = frozenset(names)
        self._pattern = re.compile("|".join(patterns)) if patterns else None

    @property
    def is_everything(self) -> bool:
        """Whether every name matches."""
        return not self._names and self._pattern is None

    def matches(self, name: str) -> bool:
        """Whether a name matches."""
        if name in self._names or self.is_everything:
            return True
        return self._pattern is not None and self._pattern.match(name) is not None


class Selection(Struct, frozen=True, dict=True):
    """Conditions that must all hold; an empty one always holds."""

    start: int | None = None  # and end: physical offsets, half-open
    end: int | None = None
    topics: tuple[str, ...] = ()  # globs (`*`, `?`, `[…]`); one must match
    queue_id: int | None = None  # of the topic
    tags: tuple[str, ...] = ()  # one must equal TAGS
    keys: tuple[str, ...] = ()  # one must be a word of KEYS or the unique key
    unique_keys: tuple[str, ...] = ()  # one must equal UNIQ_KEY
    properties: tuple[tuple[str, str], ...] = ()  # name to value, all must be equal
    begin_time: int | None = None  # and end_time: store timestamps in ms, half-open
    end_time: int | None = None
    grep: bytes | None = None  # regular expression to find in the decoded body
    limit: int | None = None  # maximum number of messages

    @classmethod
    def of(cls, **conditions: object) -> "Selection":
        """Creates a selection from keyword arguments, also single strings and mappings; raises UsageError."""
        for name in ("topics", "tags", "keys", "unique_keys"):
            value = conditions.get(name) or ()
            conditions[name] = (value,) if isinstance(value, str) else tuple(value)  # type: ignore[arg-type]
        pairs = conditions.get("properties") or ()
        conditions["properties"] = tuple(pairs.items() if isinstance(pairs, dict) else pairs)  # type: ignore[arg-type]
        grep = conditions.get("grep")
        if isinstance(grep, str):
            conditions["grep"] = grep.encode()
        try:
            selection = cls(**conditions)  # type: ignore[arg-type]
        except TypeError as error:
            raise UsageError(f"unknown selection: {error}") from error
        selection._check()
        return selection

    def _check(self) -> None:
        for low, high, what in ((self.start, self.end, "offsets"), (self.begin_time, self.end_time, "times")):
            if low is not None and high is not None and low > high:
                raise UsageError(f"the range of {what} ends before it begins: {low} to {high}")
        if self.limit is not None and self.limit < 0:
            raise UsageError(f"limit must not be negative, found {self.limit}")
        if self.limit is not None and self.limit > sys.maxsize:
            raise UsageError(f"limit must not be above {sys.maxsize}, found {self.limit}")
        try:
            _ = self._grep
        except re.error as error:
            reason = (self.grep or b"").decode("utf-8", "replace")
            raise UsageError(f"{reason!r} is not a regular expression: {error}") from error

    @cached_property
    def _grep(self) -> re.Pattern[bytes] | None:
        return re.compile(self.grep, re.DOTALL) if self.grep is not None else None

    @cached_property
    def _globs(self) -> Globs:
        return Globs(self.topics)

    def matches_topic(self, topic: str) -> bool:
        """Whether one of the globs matches."""
        return self._globs.matches(topic)

    @property
    def needs_properties(self) -> bool:
        """Whether the column tests are not sufficient."""
        return bool(self.tags or self.keys or self.unique_keys or self.properties or self.grep is not None)

    def narrow(self, frames: Frames, *, inner_batches: bool = False) -> Frames:
        """Returns the frames that pass all column tests and a byte search in the properties.

        With `inner_batches`, inner batches are returned without the byte search: each of their messages has own
        properties.
        """
        keep = np.ones(len(frames), bool)
        if self.queue_id is not None:
            keep &= frames.column("queue_id") == self.queue_id
        if self.begin_time is not None:
            keep &= frames.column("store_timestamp") >= self.begin_time
        if self.end_time is not None:
            keep &= frames.column("store_timestamp") < self.end_time
        kept = frames if keep.all() else frames.select(keep)
        if self.topics and len(kept):
            codes, topics = kept.coded_topics
            kept = kept.select(np.array([self.matches_topic(topic) for topic in topics], bool)[codes])
        needles = self._needles()
        if not needles or not len(kept):
            return kept
        contains = _contains(kept, needles)
        if inner_batches:
            contains |= (kept.column("sys_flag") & SysFlag.INNER_BATCH) != 0
        return kept.select(contains)

    def _needles(self) -> list[tuple[bytes, ...]]:
        """Returns tuples of byte strings; the stored properties must contain at least one of each tuple."""
        choices = [words for words in (self.tags, self.keys, self.unique_keys) if words]
        needles = [tuple(java.encode_utf8(word) for word in words) for words in choices]
        needles.extend((java.encode_utf8(f"{name}\x01{value}"),) for name, value in self.properties)
        return needles

    def matching(self, message: Message) -> list[Message]:
        """Returns the messages of a record that pass the exact tests.

        Those of an inner batch are tested one by one. If none passes, the record itself is tested.
        """
        if not self.needs_properties or not is_batch(message):
            return [message] if self.matches(message) else []
        parts = [part for part in parts_of(message) if self.matches(part)]
        return parts or ([message] if self.matches(message) else [])

    def matches(self, message: Message) -> bool:
        """Whether a message passes the tests for which `narrow` is only a pre-filter."""
        values = message.properties
        if self.tags and message.tags not in self.tags:
            return False
        if self.unique_keys and message.unique_key not in self.unique_keys:
            return False
        if self.keys and not set(self.keys) & {*message.keys, values.get(properties.UNIQUE_KEY)}:
            return False
        if any(values.get(name) != value for name, value in self.properties):
            return False
        return self._grep is None or self._grep.search(message.body) is not None


def _contains(frames: Frames, needles: list[tuple[bytes, ...]]) -> np.ndarray:
    contains = (
        all(any(needle in stored for needle in words) for words in needles)
        for stored in frames.properties_of(np.arange(len(frames)))
    )
    return np.fromiter(contains, bool, len(frames))
