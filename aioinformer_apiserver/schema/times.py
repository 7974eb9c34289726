"""Times: how the server reads and writes them, and what it says of others."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache

__all__ = ["canonical_time"]

_SECONDS = "2006-01-02T15:04:05Z07:00"
_MICROSECONDS = "2006-01-02T15:04:05.000000Z07:00"

# The elements of Go's layout that these two are made of, and what each accepts.
_ELEMENTS = re.compile(r"2006|01|02|15|04|05|\.000000|Z07:00|.")
_ACCEPTED = {
    "2006": r"\d{4}",
    "01": r"\d{2}",
    "02": r"\d{2}",
    "15": r"\d{2}",
    "04": r"\d{2}",
    "05": r"\d{2}",
    ".000000": r"\.\d{6}",
    "Z07:00": r"Z|[+-]\d{2}:\d{2}",
}
_RANGES = {
    "01": (1, 12, "month"),
    "15": (0, 23, "hour"),
    "04": (0, 59, "minute"),
    "05": (0, 59, "second"),
}


@lru_cache(maxsize=4096)
def canonical_time(text: str, *, micro: bool = False) -> str:
    """Write a time as the server stores it: in UTC, to the second.

    Args:
        text: In the form of RFC 3339, in any zone.
        micro: To the microsecond, as in a Lease; then it must be given so.

    Raises:
        ValueError: If it is no such time; the message is the server's.
    """
    layout = _MICROSECONDS if micro else _SECONDS
    _check(text, layout)
    try:
        moment = datetime.fromisoformat(text).astimezone(UTC)
    except ValueError:
        raise ValueError(f'parsing time "{text}": day out of range') from None

    shown = moment.strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0")
    return f"{shown}.{moment.microsecond:06}Z" if micro else f"{shown}Z"


def _check(text: str, layout: str) -> None:
    """Walk through the layout element by element, as Go does."""
    rest = text
    for element in _ELEMENTS.findall(layout):
        accepted = _ACCEPTED.get(element, re.escape(element))
        found = re.match(accepted, rest)
        if not found:
            raise ValueError(
                f'parsing time "{text}" as "{layout}": '
                f'cannot parse "{rest}" as "{element}"'
            )

        low, high, name = _RANGES.get(element, (0, 0, ""))
        if name and not low <= int(found[0]) <= high:
            raise ValueError(f'parsing time "{text}": {name} out of range')

        if element == "Z07:00" and found[0][1:3] > "24":
            why = "time zone offset hour out of range"
            raise ValueError(f'parsing time "{text}": {why}')

        rest = rest[found.end() :]
        if element == "05" and layout == _SECONDS:
            # A fraction is accepted after the seconds even where none is written.
            rest = re.sub(r"^[.,]\d+", "", rest)

    if rest:
        raise ValueError(f'parsing time "{text}": extra text: "{rest}"')
