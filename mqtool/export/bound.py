"""How far a log can be read: the bound that planning fixes.

A broker that runs copies each record into its file without a lock that a reader could see. The last record may
therefore be there in part, framing first. After a crash it may stay so, and recovery will cut it off.
"""

from mqtool.export.cuts import Cuts
from mqtool.scan.damage import Damage, DamageKind
from mqtool.store import Store

_LOOK_BACK = 8 << 20


def log_end(store: Store, cuts: Cuts) -> int:
    """Returns the physical offset after the last record that is whole.

    In a store that was not stopped in order, records at the very end with a wrong CRC are not whole yet, or never
    will be; in one that was, they are damage and stay inside.
    """
    log = store.commit_log
    end = log.max_offset
    index = log.segment_at(end - 1)
    if store.clean_stop or index is None:
        return end
    segment = log.segments[index]
    near = max(segment.base, end - _LOOK_BACK)
    cut = cuts.first_at(near, end) if near > segment.base else None
    start = 0 if cut is None else cut.physical_offset - segment.base
    unfinished = end
    for item in log.walk(index, start=start, check_crc=True):
        if isinstance(item, Damage) and item.kind is DamageKind.BAD_CRC:
            unfinished = min(unfinished, item.start)
        else:
            unfinished = end
    return unfinished
