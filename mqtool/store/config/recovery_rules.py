"""The rules of a broker's recovery from its configuration; a key that is not given has the release's default.

Source: MessageStoreConfig (4.9.7, 5.5.0).
"""

from functools import partial

from mqtool.formats.release import Release
from mqtool.formats.service_records import DELAY_LEVELS, parse_delay_levels
from mqtool.records.record_check import DEFAULT_HEAP, DEFAULT_RECOVER_MAX, RecoveryRules
from mqtool.store.config.broker_config import BrokerConfig


def recovery_rules(config: BrokerConfig, release: Release, heap: int | None = None) -> RecoveryRules:
    """Returns the rules of a release under a configuration; 4.9 ignores keys that it does not know.

    Args:
        config: the broker's keys.
        release: release that is started.
        heap: bytes of its heap, None for the default of the start script.

    Raises:
        UsageError: messageDelayLevel is not a list of delays.
    """
    flag = partial(config.flag_or_default, release=release)
    recover_max = config.integer("commitLogRecoverMaxNum")
    delays = parse_delay_levels(config.text("messageDelayLevel") or DELAY_LEVELS)
    index = flag("messageIndexEnable", default=True)
    return RecoveryRules(
        release=release,
        check_crc=flag("checkCRCOnRecover", default=True),
        force_property_crc=flag("forceVerifyPropCRC", since=(5, 5)),
        check_offset_on_recover=flag("checkCommitLogOffsetOnRecover", since=(5, 5)),
        index_enabled=index and flag("indexFileWriteEnable", default=True, since=(5, 5)),
        index_safe=index and flag("messageIndexSafe"),
        recheck_reput=flag("recheckReputOffsetFromCq", since=(5, 5)),
        recover_max=recover_max if recover_max is not None and recover_max > 0 else DEFAULT_RECOVER_MAX,
        delay_levels_ms=delays,
        heap_bytes=heap or DEFAULT_HEAP,
    )
