"""The order of a list after a strategic merge patch. Pure.

What the patch names comes in the patch's order. What only the server has keeps its order,
and goes as far to the front as its place among the others in the old list allows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioinformer_apiserver.errors import statuses
from aioinformer_apiserver.errors.go_format import go_text

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["checked_order", "ordered", "without_marked"]


def ordered(
    items: Sequence[Any], wanted: Sequence[Any], old: Sequence[Any], key: str
) -> list[Any]:
    """Order the items of a merged list.

    Args:
        items: The list.
        wanted: The order that the patch asks for, by values or by items with the key.
        old: The list before.
        key: The field by which its items are told apart; empty for plain values.
    """
    ranks, places = _places(wanted, key), _places(old, key)
    named = [it for it in items if _identity(it, key) in ranks]
    others = [it for it in items if _identity(it, key) not in ranks]
    named.sort(key=lambda it: ranks[_identity(it, key)])
    others.sort(key=lambda it: places.get(_identity(it, key), len(places)))
    return _zipped(others, named, places, key)


def checked_order(given: Sequence[Any], wanted: Sequence[Any], key: str) -> None:
    """Check that a patch lists its items in the order that it asks for itself.

    Args:
        given: The items of the patch.
        wanted: The order.
        key: The field by which items are told apart; empty for plain values.

    Raises:
        ApiError: 500, if an item is not in the order, or at another place.
    """
    if not given or not wanted:
        return

    ranks = iter([_identity(it, key) for it in wanted])
    # Looking an item up uses the iterator up to it, so the order counts as well.
    if not all(_identity(it, key) in ranks for it in without_marked(given)):
        message = f"The order in patch list:\n{go_text(list(given))}\n doesn't match "
        message += f"$setElementOrder list:\n{go_text(list(wanted))}\n"
        raise statuses.failure(500, "", message)


def without_marked(items: Sequence[Any]) -> list[Any]:
    """Return the items of a list that carry no directive."""
    return [it for it in items if not (isinstance(it, dict) and "$patch" in it)]


def _zipped(
    others: list[Any], named: list[Any], places: dict[str, int], key: str
) -> list[Any]:
    """Merge two ordered lists: one of the others goes first only if it stood before."""
    result: list[Any] = []
    left, right = 0, 0
    while left < len(others) and right < len(named):
        here = places.get(_identity(others[left], key))
        there = places.get(_identity(named[right], key))
        if here is not None and there is not None and here < there:
            result.append(others[left])
            left += 1
        else:
            result.append(named[right])
            right += 1

    return [*result, *others[left:], *named[right:]]


def _places(items: Sequence[Any], key: str) -> dict[str, int]:
    """Say where each item stands first."""
    places: dict[str, int] = {}
    for place, item in enumerate(items):
        places.setdefault(_identity(item, key), place)

    return places


def _identity(item: Any, key: str) -> str:
    """Return what tells an item apart, in a form that is hashable."""
    value = item.get(key) if key and isinstance(item, dict) else item
    return f"{type(value).__name__}:{go_text(value)}"
