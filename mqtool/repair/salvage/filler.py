"""Fills holes of a new log where records of the old one are missing, because the broker must be able to cross them.

Recovery and dispatch follow the records and end at the first invalid one; a BLANK leads to the end of the segment
only (CommitLog.recoverNormally, checkMessageAndReturnSize, DefaultMessageStore.doReput; 4.9.7, 5.5.0). So a hole inside
a segment is filled with records of its exact length. They are marked as rolled back, which keeps them out of queues and
index (CommitLogDispatcherBuildConsumeQueue, IndexService.buildIndex; 4.9.7, 5.5.0).
"""

from collections.abc import Iterator

from mqtool.formats import commit_log
from mqtool.formats.commit_log import MAGIC_V1, MIN_RECORD_SIZE, Record, SysFlag

TOPIC = b"MQTOOL_HOLE"
LARGEST = 4 << 20
"""Bytes of one filler at most; a broker reads a record as a whole."""

_HOST = bytes((127, 0, 0, 1, 0, 0, 0, 0))


def fillers(start: int, end: int, time: int) -> Iterator[bytes]:
    """Yields records that fill a range exactly.

    Args:
        start, end: physical offsets; the range is not shorter than `MIN_RECORD_SIZE`.
        time: store time of the record before or after it, ms.
    """
    at = start
    while at < end:
        size = end - at if end - at <= LARGEST else min(LARGEST, end - at - MIN_RECORD_SIZE)
        yield _filler(at, size, time)
        at += size


def _filler(physical_offset: int, size: int, time: int) -> bytes:
    topic = TOPIC[: size - MIN_RECORD_SIZE]
    body = bytes(size - MIN_RECORD_SIZE - len(topic))
    return commit_log.build_record(
        Record(
            total_size=size,
            magic_code=MAGIC_V1,
            body_crc=commit_log.body_crc(body),
            queue_id=0,
            flag=0,
            queue_offset=0,
            physical_offset=physical_offset,
            sys_flag=int(SysFlag.TRANSACTION_ROLLBACK),
            born_timestamp=time,
            born_host=_HOST,
            store_timestamp=time,
            store_host=_HOST,
            reconsume_times=0,
            prepared_transaction_offset=0,
            body_length=len(body),
            body=body,
            topic_length=len(topic),
            topic=topic,
            properties_length=0,
            properties=b"",
        )
    )
