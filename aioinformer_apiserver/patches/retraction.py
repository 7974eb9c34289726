"""Retraction: removing what an applier applied before, and does not any more. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioinformer_apiserver.patches.contents import fields_of, without

if TYPE_CHECKING:
    from aioinformer_apiserver.patches.fieldsets import FieldSet
    from aioinformer_apiserver.schema.nodes import Schema

__all__ = ["retracted"]


def retracted(
    schema: Schema, body: dict[str, Any], last: FieldSet, owned: FieldSet
) -> dict[str, Any]:
    """Return a merged body without what its applier has dropped.

    A field goes if the applier has applied it the last time and nobody owns it now. So
    does what lies below it, unless that is owned.

    Args:
        schema: Of whole objects.
        body: The merged object; it is not changed.
        last: What the applier owned before.
        owned: What anybody owns now, the applier with what it applies now.

    Raises:
        ValueError: If a list has items that cannot be told apart.
    """
    last = last.with_declared(schema)
    owned = owned.with_declared(schema)
    if not last - owned:
        return body

    # Removing a field takes along what lies below it; what of that is owned is put
    # back, and with it the way there. What is neither owned nor was applied stays, if
    # only its way does.
    everything = fields_of(schema, body).with_declared(schema)
    bare = without(schema, body, last)
    kept = fields_of(schema, bare).with_declared(schema) | owned
    restored = without(schema, body, everything - kept)
    gone = everything - fields_of(schema, restored).with_declared(schema)
    return without(schema, body, gone & last)
