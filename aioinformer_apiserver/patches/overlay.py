"""Overlays: what an applied body makes of the live one. Pure.

What is applied wins; what is only live stays. Lists that are not atomic are merged item
by item, in the order of what is applied, with the live items kept at their place.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, Any

from aioinformer_apiserver.patches.grains import Grain, child_of, element_of, grain_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from aioinformer_apiserver.schema.nodes import Schema

__all__ = ["interleaved", "overlaid"]


def overlaid(
    schema: Schema, live: Mapping[str, Any], applied: Mapping[str, Any]
) -> dict[str, Any]:
    """Merge an applied body into the live one.

    Args:
        schema: Of whole objects.
        live: The object as it is; it is not changed.
        applied: What it shall have; its lists have no two items of one key.

    Raises:
        ValueError: If a list has items that cannot be told apart.
    """
    return _maps(schema, live, applied)


def interleaved(
    live: Sequence[str], applied: Sequence[str]
) -> Iterator[tuple[str, int]]:
    """Order the items of a merged list.

    Applied items keep their order. A live item that is not applied stays behind the
    nearest live item before it, as far as the others of that are still in order.

    Args:
        live: The steps to the live items.
        applied: The steps to the applied ones, each only once.

    Yields:
        Where an item comes from, `"live"` or `"applied"`, and its place there. Items of
        both come from the applied ones.
    """
    wanted, known = set(applied), set(live)
    shared = deque(it for it in applied if it in known)
    left, right = 0, 0
    while left < len(live) or right < len(applied):
        head = live[left] if left < len(live) else None
        if head is not None and head not in wanted:
            yield "live", left
            left += 1
        elif head is not None and not (shared and head == shared[0]):
            left += 1  # it comes later, or has come already
        else:
            yield "applied", right
            if shared and applied[right] == shared[0]:
                shared.popleft()

            left += head == applied[right]
            right += 1


def _maps(
    schema: Schema | None, live: Mapping[str, Any], applied: Mapping[str, Any]
) -> dict[str, Any]:
    merged = dict(live)
    for name, value in applied.items():
        if name in live:
            merged[name] = _merged(child_of(schema, name), live[name], value)
        else:
            merged[name] = value

    return merged


def _merged(schema: Schema | None, live: Any, applied: Any) -> Any:
    before, after = grain_of(schema, live), grain_of(schema, applied)
    if before is after is Grain.MAP:
        return _maps(schema, live, applied)

    if before is after is Grain.LIST:
        assert schema is not None
        return _lists(schema, live, applied) or applied

    # A null says nothing about what is owned by its parts.
    return live if applied is None and before is not Grain.LEAF and live else applied


def _lists(schema: Schema, live: list[Any], applied: list[Any]) -> list[Any]:
    before = [element_of(schema, item) for item in live]
    after = [element_of(schema, item) for item in applied]
    counts = Counter(before)
    by_element = dict(zip(before, live, strict=True))
    merged = []
    for origin, place in interleaved(before, after):
        if origin == "live":
            merged.append(live[place])
        elif counts[after[place]] == 1:
            mine = by_element[after[place]]
            merged.append(_merged(schema.items, mine, applied[place]))
        else:
            merged.append(applied[place])

    return merged
