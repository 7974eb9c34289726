"""Intake: what a body goes through before the registry decides about it.

It must be understood: it is of the right kind, its fields fit the schema, and what does
not is dropped, told or refused, as the request asks for. Pure, but for what it tells.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from aioinformer.errors import ApiError
from aioinformer.model.resources import CUSTOM_RESOURCE_DEFINITIONS
from aioinformer_apiserver.errors import statuses
from aioinformer_apiserver.errors.field_errors import Problem
from aioinformer_apiserver.errors.go_format import go_text, restored_wrongly
from aioinformer_apiserver.errors.statuses import quoted
from aioinformer_apiserver.registry import validation
from aioinformer_apiserver.schema import Schema
from aioinformer_apiserver.schema.conformity import conform, conform_metadata, strictly

if TYPE_CHECKING:
    from aioinformer.client.verbs import PatchType
    from aioinformer_apiserver.requests.options import WriteOptions
    from aioinformer_apiserver.storage.kinds import Kind

__all__ = ["received", "received_arranged", "received_patched"]

# Of a custom resource about which nobody has said anything.
_ANYTHING = Schema({"type": "object", "x-kubernetes-preserve-unknown-fields": True})


def received(kind: Kind, body: object, options: WriteOptions) -> dict[str, Any]:
    """Understand the body of a create or an update.

    Returns:
        A new body, which fits the schema and has metadata. What was left out is told.

    Raises:
        ApiError: 400, if it is no object of this kind, holds values that its fields
            cannot hold, or unknown fields although these are to be refused.
    """
    return _conformed(kind, validation.opened(kind, body), options)


def received_arranged(kind: Kind, body: object) -> dict[str, Any]:
    """Understand a body that may hold anything, except in its metadata.

    A definition of custom resources may not either: the server itself reads it.

    Raises:
        ApiError: 400, if it is no object of this kind, or has no proper metadata.
    """
    sent = validation.opened(kind, body)
    metadata = conform_metadata(sent.get("metadata"))
    schema = kind.schema
    if kind.resource == CUSTOM_RESOURCE_DEFINITIONS and schema is not None:
        return {**conform(schema, sent).body, "metadata": metadata}

    if kind.typed:
        # A built-in kind holds no null but those that its schema asks for.
        sent = {key: value for key, value in sent.items() if value is not None}

    return {**sent, "metadata": metadata}


def received_patched(
    kind: Kind,
    body: object,
    options: WriteOptions,
    *,
    patch: object,
    patch_type: PatchType,
) -> dict[str, Any]:
    """Understand what a patch has made of an object; as `received()` otherwise.

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
        return _conformed(kind, _still_opened(kind, body, patch_type), options)
    except ApiError as exc:
        if exc.status != 400:
            raise

        # What follows the sentence on what cannot be handled is the reason itself.
        why = exc.message.partition(f" cannot be handled as a {kind.resource.kind}: ")[
            2
        ]
        why = why or exc.message
        if patch_type == "strategic":
            why = restored_wrongly(why)

        raise _patch_refused(shown, why) from exc


def _conformed(
    kind: Kind, sent: dict[str, Any], options: WriteOptions
) -> dict[str, Any]:
    schema = kind.schema or _ANYTHING
    found = conform(schema, sent, custom=not kind.typed)
    repeated = tuple(f"duplicate field {quoted(it)}" for it in options.repeated)
    problems = repeated + found.problems
    if options.field_validation == "Strict":
        refused = strictly(schema, sent, problems)
        if refused is not None:
            raise refused

    if options.field_validation == "Warn":
        for problem in problems:
            options.warn(problem)

    metadata = found.body.get("metadata") or {}
    if (sent.get("metadata") or {}).get("managedFields") == []:
        # Nothing to store, but something to say: that they are to be forgotten.
        metadata = {**metadata, "managedFields": []}

    return {**found.body, "metadata": metadata}


def _still_opened(kind: Kind, body: object, patch_type: PatchType) -> dict[str, Any]:
    """Check that a patched object says what it is, and is one."""
    if not isinstance(body, dict):
        raise statuses.bad_request("the patch makes no object")

    mistake = validation.type_mistake(body)
    if mistake:
        raise statuses.bad_request(mistake)

    if kind.typed:
        # Without its version, what is decoded is taken for an internal form, without
        # metadata; a strategic patch is not even decoded.
        read = body.get("apiVersion") or patch_type == "strategic"
        return validation.opened(kind, body if read else {})

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
