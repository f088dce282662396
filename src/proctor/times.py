"""Times as ISO text, in UTC."""

from datetime import UTC, datetime


def parse_utc(text: str | None) -> datetime | None:
    """Parse a time; None if it is not one."""
    try:
        moment = datetime.fromisoformat(text or "")
        # One without an offset is in UTC everywhere, whatever the machine's zone.
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


def render_utc(moment: datetime, timespec: str = "milliseconds") -> str:
    """Format a time that is in UTC, as in `2026-11-15T10:00:00.000Z`."""
    return moment.isoformat(timespec=timespec).replace("+00:00", "Z")
