"""Looks up messages by key through the index files, like the broker's queryMessage.

Source: IndexService.queryOffset, DefaultMessageStore.queryMessage (4.9.7, 5.5.0).
"""

import contextlib

from mqtool.errors import StoreError
from mqtool.formats import index_file, java
from mqtool.records.index_lookup import query_offsets
from mqtool.store.index.index_file import IndexFile
from mqtool.store.log.commit_log import CommitLog
from mqtool.store.log.message import Message, from_record

DEFAULT_MAX_QUERY = 64
"""Default of maxMsgsNumBatch: the broker never returns more."""


def query_message(
    log: CommitLog,
    files: list[IndexFile],
    topic: str,
    key: str,
    max_num: int = DEFAULT_MAX_QUERY,
    begin: int = 0,
    end: int = java.LONG_MAX,
) -> list[Message]:
    """Returns the messages with a key, by physical offset.

    As in the broker, a hash collision returns a message with another key too: compare `keys` and `unique_key`.
    Records that are missing or damaged are left out. The broker asks up to three times while it finds no message, each
    time the same, since only a message that it finds changes the question.

    Args:
        log: contains the records.
        files: oldest first.
        topic, key: what was indexed; for a tag of 5.5 the key is "T#" and the tag.
        max_num: maximum number of messages; of more the newest are returned.
        begin, end: store times in ms, both inclusive.
    """
    messages = []
    key_hash = index_file.key_hash(index_file.key_text(topic, key))
    for offset in sorted(query_offsets(files, key_hash, max_num, begin, end)):
        with contextlib.suppress(StoreError):
            messages.append(from_record(log.record(offset)))
    return messages
