"""Managed fields of a scale: the one field of its owner that it shows. Pure.

A write through the subresource `scale` is one of a Scale, whose `spec.replicas` stands
for a field of the owner. A real server translates the entries there and back, and loses
something on the way, which is done alike here: what is written through a scale carries
no time, and where nobody owns the field before, nobody does afterwards.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from aioinformer_apiserver.patches.elements import field_element
from aioinformer_apiserver.patches.entries import decoded, encoded, of_versions
from aioinformer_apiserver.patches.fieldsets import FieldSet

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from aioinformer_apiserver.patches.entries import Entries

__all__ = ["SCALE_VERSION", "from_scale", "to_scale"]

SCALE_VERSION = "autoscaling/v1"

_REPLICAS = FieldSet.of(("f:spec", "f:replicas"))


def to_scale(
    managed: object, replicas: Sequence[str], versions: Collection[str]
) -> list[dict[str, Any]]:
    """Return the managed fields that a Scale has.

    Args:
        managed: Those of its owner.
        replicas: The field that the Scale shows, such as `("spec", "replicas")`.
        versions: The versions of the owner's kind; entries of others do not count.

    Raises:
        ValueError: If an entry is malformed.
    """
    path = _path(replicas)
    entries = of_versions(decoded(managed), versions)
    holders = {key: it for key, it in entries.items() if path in it.fields}
    return encoded(
        {
            key: replace(entry, api_version=SCALE_VERSION, fields=_REPLICAS)
            for key, entry in holders.items()
        }
    )


def from_scale(
    managed: object,
    scaled: object,
    replicas: Sequence[str],
    *,
    api_version: str,
    versions: Collection[str] = (),
) -> list[dict[str, Any]]:
    """Return the managed fields of an object that was written through its scale.

    Args:
        managed: Those that it had.
        scaled: Those of the Scale, after the write.
        replicas: The field that the Scale shows, such as `("spec", "replicas")`.
        api_version: In which version of the object.
        versions: Other versions of its kind; entries of yet others are dropped.

    Raises:
        ValueError: If an entry is malformed.
    """
    path = _path(replicas)
    entries = of_versions(decoded(managed), {api_version, *versions})
    mine = FieldSet.of(path)
    left = decoded(scaled)
    found: Entries = {}
    for key, entry in entries.items():
        if path not in entry.fields or left.pop(key, None) is not None:
            found[key] = entry
        elif entry.fields - mine:
            found[key] = replace(entry, fields=entry.fields - mine)

    for key, entry in left.items():
        if ("f:spec", "f:replicas") in entry.fields:
            time = entries[key].time if key in entries else ""
            found[key] = replace(entry, api_version=api_version, fields=mine, time=time)

    return encoded(found)


def _path(replicas: Sequence[str]) -> tuple[str, ...]:
    return tuple(map(field_element, replicas))
