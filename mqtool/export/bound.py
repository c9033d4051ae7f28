"""Determines how far a log can be read: the upper bound that planning fixes.

A running broker copies each record into its file without a lock that a reader could see. The last record may
therefore be incomplete, with only its beginning written. After a crash it may remain incomplete, and recovery will
cut it off.
"""

from mqtool.errors import StoreError
from mqtool.records.damage import Damage, DamageKind
from mqtool.store import Store
from mqtool.store.log.cuts import Cuts

_LOOK_BACK = 8 << 20


def log_end(store: Store, cuts: Cuts) -> int:
    """Returns the physical offset after the last complete record.

    In a store that was not shut down cleanly, records at the very end with a wrong CRC, or with zeros where their
    properties should end, are treated as incomplete and excluded. After a clean shutdown they are damage, and
    included.
    """
    log = store.commit_log
    end = log.max_offset
    index = log.segment_at(end - 1)
    if store.clean_stop or index is None:
        return end
    segment = log.segments[index]
    near = max(segment.base, end - _LOOK_BACK)
    cut = cuts.first_at(near, end) if near > segment.base else None
    start = 0 if cut is None else cut.start - segment.base
    complete_end = end
    for item in log.walk_segment(index, start=start):
        if isinstance(item, Damage):
            complete_end = min(complete_end, item.start) if item.kind is DamageKind.BAD_CRC else end
            continue
        last = item.base + int(item.positions[-1])
        complete_end = last if last + int(item.sizes[-1]) >= end and _ends_in_zeros(store, last) else end
    return complete_end


def _ends_in_zeros(store: Store, physical_offset: int) -> bool:
    """Whether the end of a record has not been copied yet: brokers write no topic and no properties that end in NUL."""
    try:
        record = store.commit_log.record(physical_offset)
    except StoreError:
        return True
    return record.topic.endswith(b"\0") or record.properties.endswith(b"\0")
