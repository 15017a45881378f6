"""Times of the command line: dates and times of UTC, or how long before the end of the captures."""

from __future__ import annotations

import re
from datetime import UTC, datetime

UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_SECOND_NS = 1_000_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def read_time(told: str, last_ns: int | None) -> int:
    """Nanoseconds since 1970 of ``2026-01-31``, ``2026-01-31T12:00:00Z`` or ``24h``; `ValueError` with a reason.

    Without a time zone it is UTC.  A length counts back from ``last_ns``, the end of the captures: the clock of today
    says nothing about them.
    """
    length = re.fullmatch(r"(\d{1,9})([smhdw])", told.strip())
    if length is not None:
        if last_ns is None:
            raise ValueError("nothing was captured, so that there is no end to count back from")
        return max(0, last_ns - int(length[1]) * UNITS[length[2]] * _SECOND_NS)
    try:
        found = datetime.fromisoformat(told.strip())
    except ValueError:
        raise ValueError(f"{told!r} is no time: 2026-01-31, 2026-01-31T12:00:00Z, or 24h before the end") from None
    found = found.replace(tzinfo=UTC) if found.tzinfo is None else found
    since = found - _EPOCH
    return (since.days * 86_400 + since.seconds) * _SECOND_NS + since.microseconds * 1_000
