"""Cells: helpers that read fields of incomplete objects, and format them.

Objects that a test adds are not validated. So each function accepts any JSON, and
treats values of another type as missing.
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

# Shown in this order, independent of the order given.
_ACCESS_MODES = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}


# ------------------------------------------------------------------------ reading


def at(body: object, *path: str) -> Any:
    """Return the value at these keys; None if there is none."""
    for key in path:
        if not isinstance(body, dict):
            return None

        body = body.get(key)

    return body


def text(body: object, *path: str) -> str:
    """Return the string at these keys; empty if there is none."""
    value = at(body, *path)
    return value if isinstance(value, str) else ""


def number(body: object, *path: str, missing: int = 0) -> int:
    """Return the integer at these keys; `missing` if there is none."""
    value = at(body, *path)
    return value if isinstance(value, int) and not isinstance(value, bool) else missing


def mapping(body: object, *path: str) -> dict[str, Any]:
    """Return the object at these keys; empty if there is none."""
    value = at(body, *path)
    return value if isinstance(value, dict) else {}


def maps(body: object, *path: str) -> list[dict[str, Any]]:
    """Return the objects in the array at these keys."""
    value = at(body, *path)
    return [it for it in value if isinstance(it, dict)] if _is_list(value) else []


def strings(body: object, *path: str) -> list[str]:
    """Return the strings in the array at these keys."""
    value = at(body, *path)
    return [it for it in value if isinstance(it, str)] if _is_list(value) else []


def moment(timestamp: object) -> datetime | None:
    """Parse an RFC 3339 time; return None for anything else."""
    if not isinstance(timestamp, str) or not timestamp:
        return None

    try:
        read = datetime.fromisoformat(timestamp)
    except ValueError:
        return None

    return read if read.tzinfo else read.replace(tzinfo=UTC)


# ------------------------------------------------------------------------ formatting


def name(body: Mapping[str, Any]) -> str:
    """Return the name of an object."""
    return text(body, "metadata", "name")


def since(timestamp: object, now: datetime) -> str:
    """Format the time since a timestamp; unknown if there is none."""
    then = moment(timestamp)
    return UNKNOWN if then is None else human_duration((now - then).total_seconds())


def age(body: Mapping[str, Any], now: datetime) -> str:
    """Format the age of an object."""
    return since(at(body, "metadata", "creationTimestamp"), now)


def names(containers: Iterable[object]) -> str:
    """Join the names of containers."""
    return ",".join(text(container, "name") for container in containers)


def images(containers: Iterable[object]) -> str:
    """Join the images of containers."""
    return ",".join(text(container, "image") for container in containers)


def is_true(conditions: Iterable[object], kind: str) -> bool:
    """Return whether a condition of this type is true."""
    return any(
        text(it, "type") == kind and text(it, "status") == "True" for it in conditions
    )


def quantity(body: object, *path: str, missing: str = "0") -> str:
    """Return the quantity at these keys, which may be a string or a number."""
    value = at(body, *path)
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return missing

    return str(value)


def access_modes(modes: Iterable[str]) -> str:
    """Abbreviate the access modes of a volume."""
    given = set(modes)
    return ",".join(short for mode, short in _ACCESS_MODES.items() if mode in given)


def shortened(found: list[str], *, limit: int = 3, separator: str = ",") -> str:
    """Join the first items, and add the number of the others."""
    shown = separator.join(found[:limit])
    return f"{shown} + {len(found) - limit} more..." if len(found) > limit else shown


def labels_text(labels: Mapping[str, Any]) -> str:
    """Format labels, or a selector with the form of labels, in one line."""
    shown = sorted(f"{key}={value}" for key, value in labels.items())
    return ",".join(shown) or NONE


def selector_text(selector: object) -> str:
    """Format a LabelSelector in one line, ordered by keys; empty without terms."""
    terms = [
        (key, f"{key}={value}")
        for key, value in mapping(selector, "matchLabels").items()
    ]
    expressions = maps(selector, "matchExpressions")
    terms += [(text(it, "key"), _expression(it)) for it in expressions]
    return ",".join(term for _, term in sorted(terms, key=lambda term: term[0]))


def selector_cell(selector: object) -> str:
    """Format a LabelSelector in one line; `<none>` without terms."""
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
