"""Cells: reading an object that may lack anything, and telling what it says.

Objects that a test arranges are not checked, so each function here bears whatever JSON
it finds where it looks, and takes what is of another type for missing.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from aioinformer.model.times import human_duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "NONE",
    "UNKNOWN",
    "UNSET",
    "access_modes",
    "age",
    "at",
    "images",
    "is_true",
    "labels_text",
    "mapping",
    "maps",
    "moment",
    "name",
    "names",
    "number",
    "quantity",
    "selector_cell",
    "selector_text",
    "shortened",
    "since",
    "strings",
    "text",
]

NONE = "<none>"
UNKNOWN = "<unknown>"
UNSET = "<unset>"

# In this order, whatever order they were given in.
_ACCESS_MODES = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}


# ------------------------------------------------------------------------ reading


def at(body: object, *path: str) -> Any:
    """Return what lies under these keys; None if nothing does."""
    for key in path:
        if not isinstance(body, dict):
            return None

        body = body.get(key)

    return body


def text(body: object, *path: str) -> str:
    """Return the string there; empty if there is none."""
    value = at(body, *path)
    return value if isinstance(value, str) else ""


def number(body: object, *path: str, missing: int = 0) -> int:
    """Return the integer there; `missing` if there is none."""
    value = at(body, *path)
    return value if isinstance(value, int) and not isinstance(value, bool) else missing


def mapping(body: object, *path: str) -> dict[str, Any]:
    """Return the object there; empty if there is none."""
    value = at(body, *path)
    return value if isinstance(value, dict) else {}


def maps(body: object, *path: str) -> list[dict[str, Any]]:
    """Return the objects of the array there."""
    value = at(body, *path)
    return [it for it in value if isinstance(it, dict)] if _is_list(value) else []


def strings(body: object, *path: str) -> list[str]:
    """Return the strings of the array there."""
    value = at(body, *path)
    return [it for it in value if isinstance(it, str)] if _is_list(value) else []


def moment(timestamp: object) -> datetime | None:
    """Read a time of RFC 3339; None if it is none."""
    if not isinstance(timestamp, str) or not timestamp:
        return None

    try:
        read = datetime.fromisoformat(timestamp)
    except ValueError:
        return None

    return read if read.tzinfo else read.replace(tzinfo=UTC)


# ------------------------------------------------------------------------ telling


def name(body: Mapping[str, Any]) -> str:
    """Return the name of an object."""
    return text(body, "metadata", "name")


def since(timestamp: object, now: datetime) -> str:
    """Tell how long ago a time was; unknown if there is none."""
    then = moment(timestamp)
    return UNKNOWN if then is None else human_duration((now - then).total_seconds())


def age(body: Mapping[str, Any], now: datetime) -> str:
    """Tell how old an object is."""
    return since(at(body, "metadata", "creationTimestamp"), now)


def names(containers: Iterable[object]) -> str:
    """List the names of containers."""
    return ",".join(text(container, "name") for container in containers)


def images(containers: Iterable[object]) -> str:
    """List the images of containers."""
    return ",".join(text(container, "image") for container in containers)


def is_true(conditions: Iterable[object], kind: str) -> bool:
    """Say whether a condition of this type is there, and true."""
    return any(
        text(it, "type") == kind and text(it, "status") == "True" for it in conditions
    )


def quantity(body: object, *path: str, missing: str = "0") -> str:
    """Return the quantity there, which may be a string or a number."""
    value = at(body, *path)
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return missing

    return str(value)


def access_modes(modes: Iterable[str]) -> str:
    """Abbreviate the access modes of a volume."""
    given = set(modes)
    return ",".join(short for mode, short in _ACCESS_MODES.items() if mode in given)


def shortened(found: list[str], *, limit: int = 3, separator: str = ",") -> str:
    """List the first of many, and say how many more there are."""
    told = separator.join(found[:limit])
    return f"{told} + {len(found) - limit} more..." if len(found) > limit else told


def labels_text(labels: Mapping[str, Any]) -> str:
    """Write labels, or a selector that is like labels, in one line."""
    told = sorted(f"{key}={value}" for key, value in labels.items())
    return ",".join(told) or NONE


def selector_text(selector: object) -> str:
    """Write a LabelSelector in one line, ordered by keys; empty if it has no terms."""
    terms = [
        (key, f"{key}={value}")
        for key, value in mapping(selector, "matchLabels").items()
    ]
    expressions = maps(selector, "matchExpressions")
    terms += [(text(it, "key"), _expression(it)) for it in expressions]
    return ",".join(term for _, term in sorted(terms, key=lambda term: term[0]))


def selector_cell(selector: object) -> str:
    """Write a LabelSelector in one line, or that there is none."""
    return selector_text(selector) or NONE


def _expression(it: dict[str, Any]) -> str:
    key, values = text(it, "key"), ",".join(sorted(strings(it, "values")))
    match text(it, "operator"):
        case "In":
            return f"{key} in ({values})"
        case "NotIn":
            return f"{key} notin ({values})"
        case "DoesNotExist":
            return f"!{key}"
        case _:
            return key


def _is_list(value: object) -> bool:
    return isinstance(value, list)
