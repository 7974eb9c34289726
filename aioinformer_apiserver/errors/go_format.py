"""JSON values and types in the format of Go's error messages."""

from __future__ import annotations

import json
import re

__all__ = ["VERSION_STRUCT", "go_text", "go_type", "json_type", "restore_error"]

# The first struct that Go decodes from a body.
VERSION_STRUCT = (
    r'struct { APIVersion string "json:\"apiVersion,omitempty\""; '
    r'Kind string "json:\"kind,omitempty\"" }'
)

_UNDECODED = re.compile(
    r"json: cannot unmarshal (\w+)(?: (\S+))? into Go .* type (\S+)$"
)
_GO_KINDS = {"array": "slice", "object": "map", "number": "int64"}


def json_type(value: object) -> str:
    """Return the JSON type of a value as Go's decoder names it, such as `"array"`."""
    match value:
        case bool():
            return "bool"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case None:
            return "null"
        case _:
            return "object"


def go_type(value: object) -> str:
    """Return the Go type of a decoded JSON value, such as `"[]interface {}"`."""
    match value:
        case bool():
            return "bool"
        case int():
            return "int64"
        case float():
            return "float64"
        case str():
            return "string"
        case list():
            return "[]interface {}"
        case None:
            return "%!s(<nil>)"
        case _:
            return "map[string]interface {}"


def go_text(value: object) -> str:
    """Format a value as Go prints it: `map[a:[1 2] b:x]`, with sorted keys."""
    match value:
        case dict():
            members = (f"{key}:{go_text(value[key])}" for key in sorted(value))
            return f"map[{' '.join(members)}]"
        case list():
            return f"[{' '.join(go_text(item) for item in value)}]"
        case str():
            return value
        case None:
            return "<nil>"
        case _:
            return json.dumps(value)


def restore_error(mistake: str) -> str:
    """Convert an error about a wrong type to the one for values that are not text.

    Args:
        mistake: Error of the text decoder; other errors are returned unchanged.
    """
    found = _UNDECODED.match(mistake)
    if found is None:
        return mistake

    word, number, expected = found.groups()
    kind = _GO_KINDS.get(word, word)
    if number is not None and not number.lstrip("-").isdecimal():
        kind = "float64"

    if expected.startswith("map["):
        return f"cannot restore map from {kind}"

    if expected.startswith("[]"):
        return f"cannot restore slice from {kind}"

    if "." in expected:
        return f"cannot restore struct from: {kind}"

    if word == "number" and expected == "string":
        return f"cannot convert {kind} to string"

    return f"unrecognized type: {expected}"
