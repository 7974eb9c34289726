"""Differences of JSON values: JSON patches (RFC 6902), and merges. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioinformer import json_codec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["json_patch", "merge_changes"]

MAX_OPERATIONS = 5_000
"""Number of operations from which whole fields are replaced. API servers refuse patches
of more than 10,000 operations."""

MERGE_KEYS = (
    "name",
    "containerPort",
    "devicePath",
    "ip",
    "mountPath",
    "port",
    "topologyKey",
    "type",
    "uid",
)
"""Fields by which Kubernetes recognizes the items of its lists."""


def json_patch(
    before: Mapping[str, Any], after: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return the operations that change one object into another.

    Items in the middle of a list that were inserted or removed are single operations.

    Example:
        >>> json_patch({"a": 1, "b/c": [1, 2, 3]}, {"a": 1, "b/c": [1, 3]})
        [{'op': 'remove', 'path': '/b~1c/1'}]
    """
    operations = list(_of_objects("", before, after))
    if len(operations) <= MAX_OPERATIONS:
        return operations

    return list(_of_objects("", before, after, whole=True))


def merge_changes(original: Any, before: Any, after: Any) -> Any:
    """Apply the difference of two values to a third one, which has more fields.

    A typed model knows only some fields of an object. Its changes are those between its
    JSON before and after a function ran; all other fields of the object stay. So they do
    in items of lists that have moved. An item that changed, too, is recognized by its
    `MERGE_KEYS`, or by its place in a list of the same length.

    Args:
        original: Value with all fields; not changed.
        before: The model's JSON for the original.
        after: The model's JSON after the changes.
    """
    if _same(before, after):
        return original

    if isinstance(original, dict) and isinstance(before, dict):
        return _merge_objects(original, before, after)

    if isinstance(original, list) and isinstance(before, list):
        return _merge_lists(original, before, after)

    return after


def _merge_objects(original: dict[str, Any], before: dict[str, Any], after: Any) -> Any:
    if not isinstance(after, dict):
        return after

    merged = {
        key: value
        for key, value in original.items()
        if key in after or key not in before
    }
    for key, value in after.items():
        if key in before and key in original:
            merged[key] = merge_changes(original[key], before[key], value)
        elif key not in before or not _same(before[key], value):
            merged[key] = value  # a default of the model is no change

    return merged


def _merge_lists(original: list[Any], before: list[Any], after: Any) -> Any:
    if not isinstance(after, list) or len(original) != len(before):
        return after

    return [
        item if place is None else merge_changes(original[place], before[place], item)
        for item, place in zip(after, _places(before, after), strict=True)
    ]


def _places(before: list[Any], after: list[Any]) -> list[int | None]:
    """Return the place that each item of a list had before; None for new items.

    An item may have moved, changed, or both. Of items that match equally, the one at the
    same place counts.
    """
    found: list[int | None] = [None] * len(after)
    left = dict.fromkeys(range(len(before)))
    for identity in (_whole, _merge_key):
        new = {
            it: identity(after[it]) for it, place in enumerate(found) if place is None
        }
        places: dict[bytes, dict[int, None]] = {}
        for place in left:
            places.setdefault(identity(before[place]), {})[place] = None

        places.pop(b"", None)
        here = [it for it, text in new.items() if it in places.get(text, ())]
        for index in [*here, *new]:
            same = places.get(new[index])
            if found[index] is None and same:
                place = index if index in same else next(iter(same))
                found[index] = place
                del same[place], left[place]

    if len(before) == len(after):
        for index in left:
            if found[index] is None:  # it has another name, or items have none
                found[index] = index

    return found


def _whole(item: Any) -> bytes:
    return json_codec.dumps(item, option=json_codec.OPT_SORT_KEYS)


def _merge_key(item: Any) -> bytes:
    """Return the identity of an item for Kubernetes; empty if it has none."""
    if not isinstance(item, dict):
        return b""

    keys = {it: item[it] for it in MERGE_KEYS if it in item}
    return _whole(keys) if keys else b""


# ------------------------------------------------------------ the patch


def _of_objects(
    path: str,
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    *,
    whole: bool = False,
) -> Iterator[dict[str, Any]]:
    for key, value in before.items():
        place = f"{path}/{_escaped(key)}"
        if key not in after:
            yield {"op": "remove", "path": place}
        elif whole and not _same(value, after[key]):
            yield {"op": "replace", "path": place, "value": after[key]}
        elif not whole:
            yield from _of_values(place, value, after[key])

    for key, value in after.items():
        if key not in before:
            yield {"op": "add", "path": f"{path}/{_escaped(key)}", "value": value}


def _of_values(path: str, before: Any, after: Any) -> Iterator[dict[str, Any]]:
    if isinstance(before, dict) and isinstance(after, dict):
        yield from _of_objects(path, before, after)
    elif isinstance(before, list) and isinstance(after, list):
        yield from _of_lists(path, before, after)
    elif not _same(before, after):
        yield {"op": "replace", "path": path, "value": after}


def _of_lists(
    path: str, before: list[Any], after: list[Any]
) -> Iterator[dict[str, Any]]:
    shorter = min(len(before), len(after))
    start = 0
    while start < shorter and _same(before[start], after[start]):
        start += 1

    end = 0
    while end < shorter - start and _same(before[-1 - end], after[-1 - end]):
        end += 1

    # Between the equal items at both ends.
    both = shorter - start - end
    for index in range(start, start + both):
        yield from _of_values(f"{path}/{index}", before[index], after[index])

    # From the last one: each removal moves the items after it.
    for index in reversed(range(start + both, len(before) - end)):
        yield {"op": "remove", "path": f"{path}/{index}"}

    for index in range(start + both, len(after) - end):
        yield {"op": "add", "path": f"{path}/{index}", "value": after[index]}


def _escaped(key: str) -> str:
    """Escape a key for a JSON pointer."""
    return key.replace("~", "~0").replace("/", "~1")


def _same(one: Any, other: Any) -> bool:
    """Compare JSON values. In Python 1, 1.0 and True are equal, in JSON they differ."""
    if type(one) is not type(other):
        return False

    if isinstance(one, dict):
        return one.keys() == other.keys() and all(
            _same(value, other[key]) for key, value in one.items()
        )

    if isinstance(one, list):
        return len(one) == len(other) and all(map(_same, one, other))

    return bool(one == other)
