"""How Go writes JSON values in its messages, which clients and people get to read."""

from __future__ import annotations

import json

__all__ = ["VERSION_STRUCT", "go_text", "go_type", "json_type"]

# What Go reads from a body first of all.
VERSION_STRUCT = (
    r'struct { APIVersion string "json:\"apiVersion,omitempty\""; '
    r'Kind string "json:\"kind,omitempty\"" }'
)


def json_type(value: object) -> str:
    """Return what Go's decoder calls the type of a JSON value, such as `"array"`."""
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
    """Return the Go type that a decoded JSON value has, such as `"[]interface {}"`."""
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
    """Write a value as Go prints it: `map[a:[1 2] b:x]`, its keys sorted."""
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
