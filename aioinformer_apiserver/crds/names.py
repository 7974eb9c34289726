"""Names: which of those that a definition asks for it gets. Pure.

Two definitions of one group cannot share a name. Whoever came first keeps it, and the
other one is not served until the name is free.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioinformer_apiserver.crds.conditions import Condition, holds

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["judged_names"]

# The order in which they are told, and so in which the last conflict wins.
_PLURAL, _SINGULAR, _SHORT = "Plural", "Singular", "ShortNames"
_KIND, _LIST_KIND = "Kind", "ListKind"


def judged_names(
    body: Mapping[str, Any], others: Iterable[Mapping[str, Any]]
) -> tuple[dict[str, Any], list[Condition]]:
    """Decide which names a definition gets.

    Args:
        body: The definition.
        others: All other definitions of its group.

    Returns:
        The accepted names, and the conditions `NamesAccepted` and `Established`. The
        latter does not become true here: that is one step later.
    """
    wanted = body["spec"]["names"]
    got = dict((body.get("status") or {}).get("acceptedNames") or {})
    resources, kinds = _taken(others)
    conflict: Condition | None = None
    for field, label, taken in (
        ("plural", _PLURAL, resources),
        ("singular", _SINGULAR, resources),
        ("shortNames", _SHORT, resources),
        ("kind", _KIND, kinds),
        ("listKind", _LIST_KIND, kinds),
    ):
        problem = _conflict(wanted.get(field), got.get(field), taken)
        if problem:
            conflict = Condition("NamesAccepted", "False", f"{label}Conflict", problem)
        else:
            got[field] = wanted.get(field)

    got["categories"] = wanted.get("categories")
    free = Condition("NamesAccepted", "True", "NoConflicts", "no conflicts found")
    accepted = conflict or free
    return _in_order(got), [accepted, *_established(body, accepted)]


def _established(body: Mapping[str, Any], accepted: Condition) -> list[Condition]:
    """Return the condition `Established`; nothing if it is true, as it stays so."""
    if holds(body, "Established"):
        return []

    if accepted.status == "True":
        why = "the initial names have been accepted"
        return [Condition("Established", "False", "Installing", why)]

    why = "not all names are accepted"
    return [Condition("Established", "False", "NotAccepted", why)]


def _taken(others: Iterable[Mapping[str, Any]]) -> tuple[set[str], set[str]]:
    """Return the names of resources, and of kinds, that others have got."""
    resources, kinds = set[str](), set[str]()
    for other in others:
        names = (other.get("status") or {}).get("acceptedNames") or {}
        resources |= {names.get("plural") or "", names.get("singular") or ""}
        resources |= set(names.get("shortNames") or ())
        kinds |= {names.get("kind") or "", names.get("listKind") or ""}

    return resources - {""}, kinds - {""}


def _conflict(wanted: Any, got: Any, taken: set[str]) -> str:
    """Say why a name (or list of names) cannot be had; empty if it can."""
    if wanted == got:
        return ""

    if not isinstance(wanted, list):
        return f'"{wanted}" is already in use' if wanted in taken else ""

    new = [name for name in wanted if name not in (got or ()) and name in taken]
    told = [f'"{name}" is already in use' for name in new]
    return told[0] if len(told) == 1 else f"[{', '.join(told)}]" if told else ""


def _in_order(names: Mapping[str, Any]) -> dict[str, Any]:
    fields = ("plural", "singular", "shortNames", "kind", "listKind", "categories")
    kept = {field: names.get(field) for field in fields}
    # These two are written even where there is none.
    always = {"plural": kept["plural"] or "", "kind": kept["kind"] or ""}
    return {
        key: value
        for key, value in {**kept, **always}.items()
        if value or key in always
    }
