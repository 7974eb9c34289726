"""Places: where in an object a value is, and how the server names that.

A place is a chain from the inside out, `(parent, piece, struct)`, so that walking costs
one tuple a level; names are made only when there is something to say. `struct` is set
where the piece is a field of a Go struct, and empty for list items and keys of maps;
after a dot it names another struct that was included there, and is part of the path.
"""

from __future__ import annotations

from typing import TypeAlias

from aioinformer_apiserver.errors.statuses import quoted

__all__ = ["Mismatch", "Place", "mismatch", "path_of", "unknown_field"]

Place: TypeAlias = "tuple[Place, str | int, str] | None"

_WORDS = {
    dict: "object",
    list: "array",
    str: "string",
    bool: "bool",
    int: "number",
    float: "number",
}


class Mismatch(Exception):
    """A value is of a type that its place cannot hold; in the words of Go's decoder."""


def path_of(at: Place) -> str:
    """Write a place as Kubernetes does: `spec.containers[0].name`."""
    pieces: list[str] = []
    while at is not None:
        at, piece, _ = at
        pieces.append(f"[{piece}]" if isinstance(piece, int) else f".{piece}")

    return "".join(reversed(pieces)).removeprefix(".")


def unknown_field(at: Place) -> str:
    """Say that there is no such field."""
    return f"unknown field {quoted(path_of(at))}"


def mismatch(value: object, at: Place, expected: str) -> Mismatch:
    """Make the error of a value whose JSON type is wrong.

    Args:
        value: What was found.
        at: Where.
        expected: The Go type of the place. A number is shown if one was expected.
    """
    word = _WORDS.get(type(value), "null")
    if word == "number" and expected.startswith(("int", "uint", "float")):
        word = f"number {value}"

    fields: list[str] = []
    owner = ""
    while at is not None:
        at, piece, struct = at
        if struct:
            name, _, included = struct.partition(".")
            fields += [str(piece), included] if included else [str(piece)]
            owner = owner or name

    path = ".".join(reversed(fields))
    where = f"struct field {owner}.{path} of" if owner else "value of"
    return Mismatch(f"json: cannot unmarshal {word} into Go {where} type {expected}")
