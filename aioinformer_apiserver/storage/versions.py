"""Versions: in which order those of one API group stand. Pure."""

from __future__ import annotations

import re

__all__ = ["version_order"]

_NAME = re.compile(r"v([1-9]\d*)(?:(alpha|beta)([1-9]\d*))?")
_MATURITY = {"": 0, "beta": 1, "alpha": 2}


def version_order(name: str) -> tuple[bool, int, int, int, str]:
    """Return the key that sorts versions: stable ones first, and newer ones first.

    Example:
        >>> sorted(["v1beta1", "v1", "x", "v10", "v2", "v2beta1"], key=version_order)
        ['v10', 'v2', 'v1', 'v2beta1', 'v1beta1', 'x']
    """
    found = _NAME.fullmatch(name)
    if found is None:
        return True, 0, 0, 0, name

    major, maturity, minor = found.groups(default="")
    return False, _MATURITY[maturity], -int(major), -int(minor or 0), ""
