"""Conformity: a body as its kind can hold it, and what had to be left out.

What the decoder of a real server does before anything is judged: unknown fields vanish
and are told, values of a wrong type are refused, quantities and times get their one form.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aioinformer_apiserver.errors import statuses
from aioinformer_apiserver.schema.places import Mismatch
from aioinformer_apiserver.schema.pruning import METADATA, pruned
from aioinformer_apiserver.schema.shapes import struct_of

if TYPE_CHECKING:
    from aioinformer.errors import ApiError
    from aioinformer_apiserver.schema.nodes import Schema

__all__ = [
    "Conformed",
    "conform",
    "conform_metadata",
    "conform_sketch",
    "strictly",
]


@dataclass(frozen=True, slots=True)
class Conformed:
    """A body that fits its kind."""

    body: dict[str, Any]
    """A new one; parts that were fine as they are may be shared with the one given."""

    problems: tuple[str, ...]
    """What was left out, such as `unknown field "spec.foo"`; one sentence each."""


def conform(schema: Schema, body: dict[str, Any], *, custom: bool = False) -> Conformed:
    """Make a body fit its kind.

    Built-in kinds lose unknown fields, nulls, and empty values of optional fields; a few
    fields are written even if missing. Custom resources lose the fields that their schema
    does not describe, except where it preserves them, and nulls that it does not allow;
    values of wrong types stay, to be found by `problems_of`. The metadata of either is
    treated as that of every kind.

    Args:
        schema: Of the kind; built-in ones must come from `schema_of`.
        body: The object; it is not changed.
        custom: The kind is a custom one.

    Raises:
        ApiError: 400, if a value (of a custom resource: in its metadata) is of a type
            that its place cannot hold.
    """
    notes: list[str] = []
    try:
        found = (
            pruned(schema, body, notes)
            if custom
            else struct_of(schema.name)(body, None, notes)
        )
    except Mismatch as exc:
        raise _refusal(schema, body, str(exc)) from exc

    return Conformed(found, tuple(notes))


def conform_sketch(schema: Schema, body: dict[str, Any]) -> dict[str, Any]:
    """Make a sketch of a built-in object fit its kind, as far as it can.

    It gets the fields that a server always writes, and loses nulls and empty values of
    optional fields. Unknown fields stay.

    Args:
        schema: Of the kind; must come from `schema_of`.
        body: The object; it is not changed.

    Returns:
        A new object; the given one, if a value in it is of a type that its place cannot
        hold.
    """
    try:
        return struct_of(schema.name, sketch=True)(body, None, [])
    except Mismatch:
        return body


def conform_metadata(given: object) -> dict[str, Any]:
    """Make the metadata of an object fit, whatever its kind; null counts as empty.

    Raises:
        ApiError: 400, if a value is of a type that its place cannot hold.
    """
    try:
        return struct_of(METADATA)(given, (None, "metadata", "ObjectMeta"), [])
    except Mismatch as exc:
        raise statuses.bad_request(str(exc)) from exc


def strictly(
    schema: Schema, body: dict[str, Any], problems: tuple[str, ...]
) -> ApiError | None:
    """Make the refusal of a request with `fieldValidation=Strict`, if there is reason.

    Args:
        schema: Of the kind.
        body: As it was sent.
        problems: Of `conform`, and others that the decoder would have told.
    """
    if not problems:
        return None

    return _refusal(schema, body, f"strict decoding error: {', '.join(problems)}")


def _refusal(schema: Schema, body: dict[str, Any], why: str) -> ApiError:
    known = schema.text.get("x-kubernetes-group-version-kind")
    kind = known[0]["kind"] if known else str(body.get("kind"))
    version = (
        known[0]["version"] if known else str(body.get("apiVersion")).rpartition("/")[2]
    )
    return statuses.bad_request(
        f'{kind} in version "{version}" cannot be handled as a {kind}: {why}'
    )
