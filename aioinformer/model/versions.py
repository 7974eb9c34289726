"""Resource versions: which of them can be compared, and by what number."""

from __future__ import annotations

__all__ = ["version_number"]

# Versions are unsigned 64-bit numbers, which have 20 digits at most. What is longer is
# no number: `int()` refuses to read more than some thousand digits.
LONGEST_VERSION = 20


def version_number(version: str) -> int:
    """A decimal version as a number; -1 for any other, which cannot be compared."""
    if len(version) <= LONGEST_VERSION and version.isdecimal():
        return int(version)

    return -1
