"""The time zone in which a run reads and prints times: UTC, or the one named by `--tz`."""

from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache

from mqtool.errors import UsageError

DEFAULT = "UTC"
LOCAL = "local"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND_LENGTH = len("1970-01-01T00:00:00")


def parse_zone(name: str) -> tzinfo | None:
    """Returns a zone by its name in the IANA time zone database; None for this machine's own zone.

    Raises:
        UsageError: there is no such zone.
    """
    if name == LOCAL:
        return None
    if name == DEFAULT:
        return UTC
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    except (OSError, ValueError, LookupError):
        raise UsageError(
            f"--tz {name}: no such time zone; expected {DEFAULT}, {LOCAL} or a name like Europe/Berlin"
        ) from None


class _SelectedZone:
    """The zone of this run."""

    zone: tzinfo | None = UTC


def choose(name: str) -> str:
    """Sets the zone of this run; returns its name, as callbacks of options do."""
    _SelectedZone.zone = parse_zone(name)
    return name


def selected() -> tzinfo | None:
    """Returns the zone of this run; None for this machine's own zone."""
    return _SelectedZone.zone


def moment(milliseconds: int, *, exact: bool = True) -> str:
    """Returns RFC 3339 in the zone of this run, with milliseconds if exact; the number itself if it is out of range."""
    try:
        second, offset = _second(milliseconds // 1000, _SelectedZone.zone)
    except (OverflowError, ValueError, OSError):
        return str(milliseconds)
    return f"{second}.{milliseconds % 1000:03d}{offset}" if exact else f"{second}{offset}"


@lru_cache(maxsize=1024)
def _second(seconds: int, zone: tzinfo | None) -> tuple[str, str]:
    """Returns a second without its offset from UTC, and the offset."""
    instant = _EPOCH + timedelta(seconds=seconds)
    text = (instant if zone is UTC else instant.astimezone(zone)).isoformat()
    offset = text[_SECOND_LENGTH:]
    return text[:_SECOND_LENGTH], "Z" if zone is UTC else offset
