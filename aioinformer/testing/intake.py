"""Intake: what a body goes through before the registry decides about it. Pure.

It must be understood: it is of the right kind, its fields fit the schema, and what does
not is dropped, told or refused, as the request asks for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from aioinformer.errors import ApiError
from aioinformer.testing import statuses, validation
from aioinformer.testing.patching.go_words import go_text
from aioinformer.testing.problems import Problem
from aioinformer.testing.schema import Schema
from aioinformer.testing.schema.conformity import conform, strictly

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioinformer.testing.kinds import Kind
    from aioinformer.testing.writes import PatchType, WriteOptions

__all__ = ["Received", "received", "received_patched"]

# Of a custom resource about which nobody has said anything.
_ANYTHING = Schema({"type": "object", "x-kubernetes-preserve-unknown-fields": True})


@dataclass(frozen=True, slots=True)
class Received:
    """A body that has been understood.

    Attributes:
        body: A new one, which fits the schema.
        warnings: What was left out of it, and what should be written otherwise.
    """

    body: dict[str, Any]
    warnings: tuple[str, ...] = ()

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The metadata; empty if there are none."""
        found: Mapping[str, Any] = self.body.get("metadata") or {}
        return found


def received(kind: Kind, body: object, options: WriteOptions) -> Received:
    """Understand the body of a create or an update.

    Raises:
        ApiError: 400, if it is no object of this kind, holds values that its fields
            cannot hold, or unknown fields although these are to be refused.
    """
    return _conformed(kind, validation.opened(kind, body), options)


def received_patched(
    kind: Kind,
    body: object,
    options: WriteOptions,
    *,
    patch: object,
    patch_type: PatchType,
) -> Received:
    """Understand what a patch has made of an object.

    Args:
        kind: Of the object.
        body: The patched object.
        options: Of the patch.
        patch: The patch, to be shown in a refusal.
        patch_type: Its type.

    Raises:
        ApiError: 422, if it is no object of this kind any more, or holds what it cannot
            hold; 500, if it is a custom resource and does not say its version.
    """
    shown = go_text(patch)
    if patch_type != "strategic":
        whole = dict(sorted(body.items())) if isinstance(body, dict) else body
        shown = orjson.dumps(whole).decode()

    try:
        return _conformed(kind, _still_opened(kind, body), options)
    except ApiError as exc:
        if exc.status != 400:
            raise

        # What follows the sentence on what cannot be handled is the reason itself.
        why = exc.message.rpartition("cannot be handled as a ")[2].partition(": ")[2]
        raise _patch_refused(shown, why or exc.message) from exc


def _conformed(kind: Kind, sent: dict[str, Any], options: WriteOptions) -> Received:
    schema = kind.schema or _ANYTHING
    found = conform(schema, sent, custom=not kind.typed)
    repeated = tuple(f'duplicate field "{it}"' for it in options.repeated)
    problems = repeated + found.problems
    if options.field_validation == "Strict":
        refused = strictly(schema, sent, problems)
        if refused is not None:
            raise refused

    body = found.body
    if (sent.get("metadata") or {}).get("managedFields") == []:
        # Nothing to store, but something to say: that they are to be forgotten.
        body = {**body, "metadata": {**body["metadata"], "managedFields": []}}

    noticed = problems if options.field_validation == "Warn" else ()
    return Received(body, noticed + _finalizer_warnings(kind, body))


def _still_opened(kind: Kind, body: object) -> dict[str, Any]:
    """Check that a patched object says what it is, and is one."""
    if not isinstance(body, dict):
        raise statuses.bad_request("the patch makes no object")

    if kind.typed:
        # Without its version it is taken for an internal form, without metadata.
        return validation.opened(kind, body if body.get("apiVersion") else {})

    if not body.get("kind"):
        text = orjson.dumps(body).decode()
        raise statuses.bad_request(f"Object 'Kind' is missing in '{text}'")

    if not body.get("apiVersion"):
        why = "Object 'apiVersion' is missing in 'object has no apiVersion field'"
        causes = {"causes": [{"message": why}]}
        message = f"Internal error occurred: {why}"
        raise statuses.failure(500, "InternalError", message, causes)

    return body


def _patch_refused(shown: str, why: str) -> ApiError:
    problem = Problem.invalid("patch", shown, why)
    cause = {"reason": problem.reason, "message": problem.message, "field": "patch"}
    message = f' "" is invalid: patch: {problem.message}'
    return statuses.failure(422, "Invalid", message, {"causes": [cause]})


def _finalizer_warnings(kind: Kind, body: Mapping[str, Any]) -> tuple[str, ...]:
    """Say which finalizers of a custom resource should have a domain."""
    finalizers = (body.get("metadata") or {}).get("finalizers") or ()
    if kind.typed or not finalizers:
        return ()

    return tuple(
        f'metadata.finalizers: "{it}": prefer a domain-qualified finalizer name to '
        "avoid accidental conflicts with other finalizer writers"
        for it in finalizers
        if "/" not in it and it not in validation.STANDARD_FINALIZERS
    )
