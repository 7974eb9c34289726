"""JSON merge patch (RFC 7386): an object that looks like the change it makes. Pure."""

from __future__ import annotations

from typing import Any

__all__ = ["merge_patch"]


def merge_patch(target: object, patch: object) -> Any:
    """Apply a patch: null deletes, objects merge, all else replaces.

    Args:
        target: What is changed; not touched itself.
        patch: The change, any JSON value.
    """
    if not isinstance(patch, dict):
        return patch

    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)

    return merged
