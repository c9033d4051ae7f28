"""The broker's keys that decide what recovery accepts as a record and where it begins to scan.

Source: MessageStoreConfig (4.9.7, 5.5.0).
"""

from msgspec import Struct

from mqtool.formats.release import Release

DEFAULT_RECOVER_MAX = 10
DEFAULT_HEAP = 8 << 30
"""What the broker's start script gives the JVM."""


class RecoveryRules(Struct, frozen=True, kw_only=True):
    """What recovery of the CommitLog depends on besides the store's files."""

    release: Release  # release whose rules apply
    check_crc: bool = True  # and force_property_crc: checkCRCOnRecover, forceVerifyPropCRC (5.5)
    force_property_crc: bool = False
    check_offset_on_recover: bool = False  # checkCommitLogOffsetOnRecover (5.5)
    index_enabled: bool = True  # messageIndexEnable, and indexFileWriteEnable (5.5)
    index_safe: bool = False  # messageIndexEnable and messageIndexSafe
    recheck_reput: bool = False  # recheckReputOffsetFromCq (5.5)
    # commitLogRecoverMaxNum (5.5): maximum number of segments that are tested as starting point.
    recover_max: int = DEFAULT_RECOVER_MAX
    delay_levels_ms: tuple[int, ...] = ()  # delay of levels 1, 2, …
    heap_bytes: int = DEFAULT_HEAP  # heap of the broker; an array of half of it is assumed not to fit
