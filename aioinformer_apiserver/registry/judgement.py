"""Judgement: whether an object may be stored as it is.

All that is wrong is found before anything is said, as a real server does. Pure, but for
the warnings about what is valid and still not good.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioinformer.model.resources import CUSTOM_RESOURCE_DEFINITIONS
from aioinformer.tables import cells
from aioinformer_apiserver.crds.checks import problems_of as definition_problems
from aioinformer_apiserver.errors.field_errors import Problem, refusal
from aioinformer_apiserver.errors.go_format import go_text, go_type
from aioinformer_apiserver.errors.names import STANDARD_FINALIZERS
from aioinformer_apiserver.registry.validation import (
    creation_problems,
    type_problems,
    update_problems,
)
from aioinformer_apiserver.schema import builtin_checks
from aioinformer_apiserver.schema.checks import problems_of
from aioinformer_apiserver.schema.event_checks import event_problems

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from aioinformer_apiserver.requests.options import WriteOptions
    from aioinformer_apiserver.storage.kinds import Kind

__all__ = ["check_created", "check_updated"]

_INT32_MAX = 2**31 - 1
_FINALIZER_WARNING = (
    'metadata.finalizers: "{}": prefer a domain-qualified finalizer name to avoid '
    "accidental conflicts with other finalizer writers"
)


def check_created(kind: Kind, body: Mapping[str, Any], options: WriteOptions) -> None:
    """Check a new object.

    Args:
        kind: Of the object.
        body: Complete.
        options: Of the write; what is arranged is not checked against its schema.

    Raises:
        ApiError: 422, if it is not valid.
    """
    metadata = body["metadata"]
    found: list[Problem] = [*creation_problems(kind, metadata)]
    if options.part != "all":
        found += _problems_of_type(kind, body, None)

    if kind.resource == CUSTOM_RESOURCE_DEFINITIONS:
        found += definition_problems(body)

    _refuse(kind, body, found)
    _warn_of_finalizers(kind, {}, metadata, options)


def check_updated(
    kind: Kind, old: Mapping[str, Any], new: Mapping[str, Any], options: WriteOptions
) -> None:
    """Check the next state of an object.

    Args:
        kind: Of the object.
        old: As it is stored.
        new: Complete, but for the version.
        options: Of the write; what is arranged is not checked against its schema.

    Raises:
        ApiError: 422, if it is not valid.
    """
    found: list[Problem] = [*update_problems(kind, old["metadata"], new["metadata"])]
    if options.part != "all":
        found += _problems_of_type(kind, new, old)

    whole = options.part in {"main", "all"}
    if whole and kind.resource == CUSTOM_RESOURCE_DEFINITIONS:
        found += definition_problems(new, old)

    _refuse(kind, new, found)
    _warn_of_finalizers(kind, old["metadata"], new["metadata"], options)


def _problems_of_type(
    kind: Kind, body: Mapping[str, Any], old: Mapping[str, Any] | None
) -> list[Problem]:
    """Find what the kind itself does not allow.

    Args:
        kind: Of the object.
        body: The object, complete.
        old: As it is stored; None if it is new.
    """
    new = dict(body)
    if kind.typed:
        before = None if old is None else kind.to_storage(dict(old))
        return _problems_of_stored(kind, kind.to_storage(new), before)

    found: list[Problem] = [*type_problems(kind, body)]
    if kind.schema is not None:
        found += problems_of(kind.schema, new, None if old is None else dict(old))

    return [*found, *_problems_of_scale(kind, body)]


def _problems_of_scale(kind: Kind, body: Mapping[str, Any]) -> Iterator[Problem]:
    """Find what keeps a custom resource from telling how many replicas it wants."""
    if kind.scale is None:
        return

    value = cells.at(body, *kind.scale.replicas)
    path = "." + ".".join(kind.scale.replicas)
    if value is None:
        return

    if isinstance(value, bool) or not isinstance(value, int):
        why = f"{path} accessor error: {go_text(value)} is of the type "
        yield Problem.invalid(path, 0, f"{why}{go_type(value)}, expected int64")
    elif value < 0:
        yield Problem.invalid(path, value, "should be a non-negative integer")
    elif value > _INT32_MAX:
        why = f"should be less than or equal to {_INT32_MAX}"
        yield Problem.invalid(path, value, why)


def _problems_of_stored(
    kind: Kind, new: dict[str, Any], old: dict[str, Any] | None
) -> list[Problem]:
    """Find what a built-in kind does not allow, in the version in which it is kept."""
    if old is None:
        found = [*builtin_checks.check_created(kind.stored, new)]
    else:
        found = [*builtin_checks.check_updated(kind.stored, old, new)]

    is_newer_event = kind.stored.group != kind.resource.group
    return [*event_problems(new, old)] if is_newer_event else found


def _warn_of_finalizers(
    kind: Kind, old: Mapping[str, Any], new: Mapping[str, Any], options: WriteOptions
) -> None:
    """Tell which new finalizers of a custom resource should have a domain."""
    if kind.typed:
        return

    known = {*STANDARD_FINALIZERS, *(old.get("finalizers") or ())}
    for finalizer in new.get("finalizers") or ():
        if "/" not in finalizer and finalizer not in known:
            options.warn(_FINALIZER_WARNING.format(finalizer))


def _refuse(kind: Kind, body: Mapping[str, Any], found: list[Problem]) -> None:
    if found:
        name = body["metadata"].get("name") or ""
        said = None if kind.typed else str(body.get("kind"))
        raise refusal(kind, name, found, said_kind=said)
