"""Validation: what an object's metadata must be before it is stored.

Only what every kind shares. The server does not know the schemas of specs, and stores
whatever they hold.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from aioinformer.errors import OptionsError
from aioinformer.model.selectors import LabelRequirement
from aioinformer.testing import statuses

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioinformer.errors import ApiError
    from aioinformer.testing.kinds import Kind

__all__ = ["check_identity", "check_new", "check_shape"]

_DNS_LABEL = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = re.compile(rf"{_DNS_LABEL}(?:\.{_DNS_LABEL})*")
# RBAC names such as "system:node" need only be a segment of a path.
_PATH_SEGMENT = re.compile(r"(?!\.{1,2}$)[^/%]+")
_NAME_LENGTH = 253
_NAME_RULE = "a lowercase RFC 1123 subdomain of at most 253 characters"


def check_shape(kind: Kind, body: object) -> dict[str, Any]:
    """Check what a body must be even before it can be understood; returns it.

    Raises:
        ApiError: 400, if it is no object, says that it is of another kind, or has
            metadata that no object can have.
    """
    if not isinstance(body, dict):
        raise statuses.bad_request("the body of the request is not a JSON object")

    _check_type(kind, body)
    metadata = body.get("metadata")
    if metadata is not None and not isinstance(metadata, dict):
        raise statuses.bad_request("metadata is not a JSON object")

    for field in ("labels", "annotations"):
        _check_strings(field, (metadata or {}).get(field))

    for field in ("finalizers", "ownerReferences"):
        value = (metadata or {}).get(field)
        if value is not None and not isinstance(value, list):
            raise statuses.bad_request(f"metadata.{field} is not a list")

    return body


def check_new(kind: Kind, metadata: Mapping[str, Any]) -> None:
    """Check the metadata of an object that is about to be created.

    Raises:
        ApiError: 422, if there is no name, or it is malformed, or a label is; 500, if
            a version is given (that is how the real server puts it).
    """
    name = metadata.get("name") or ""
    if metadata.get("resourceVersion"):
        message = "resourceVersion should not be set on objects to be created"
        raise statuses.failure(500, "", message)

    if not name:
        raise _invalid(
            kind,
            "",
            field="metadata.name",
            reason="FieldValueRequired",
            problem="Required value: name or generateName is required",
        )

    pattern = _PATH_SEGMENT if _is_rbac(kind) else _SUBDOMAIN
    if not pattern.fullmatch(name) or len(name) > _NAME_LENGTH:
        problem = f"Invalid value: {name!r}: must be {_NAME_RULE}"
        raise _invalid(kind, name, field="metadata.name", problem=problem)

    check_labels(kind, name, metadata)


def check_labels(kind: Kind, name: str, metadata: Mapping[str, Any]) -> None:
    """Check the syntax of the labels.

    Raises:
        ApiError: 422, if a key or value is not allowed.
    """
    for item in (metadata.get("labels") or {}).items():
        problem = _label_problem(*item)
        if problem:
            problem = f"Invalid value: {item[0]!r}: {problem}"
            raise _invalid(kind, name, field="metadata.labels", problem=problem)


def check_identity(
    kind: Kind, old: Mapping[str, Any], metadata: Mapping[str, Any]
) -> None:
    """Check that an update means the object that is stored, in the state it is in.

    Args:
        kind: The kind.
        old: The metadata of the stored object.
        metadata: Of the update.

    Raises:
        ApiError: 400 for another name or namespace; 409 for another uid or version;
            422 if the kind asks for a version and there is none.
    """
    resource, name = kind.resource, old["name"]
    given = metadata.get("name") or ""
    if given != name:
        raise statuses.bad_request(
            f"the name of the object ({given}) does not match "
            f"the name on the URL ({name})"
        )

    check_namespace(old.get("namespace") or "", metadata)
    uid = metadata.get("uid") or old["uid"]
    if uid != old["uid"]:
        why = f"Precondition failed: UID in precondition: {uid}, "
        why += f"UID in object meta: {old['uid']}"
        raise statuses.conflict(resource, name, why)

    version = metadata.get("resourceVersion") or ""
    if not version and not kind.unconditional:
        problem = "Invalid value: 0: must be specified for an update"
        raise _invalid(kind, name, field="metadata.resourceVersion", problem=problem)

    if version not in {"", old["resourceVersion"]}:
        raise statuses.conflict(resource, name)

    check_labels(kind, name, metadata)


def check_namespace(namespace: str, metadata: Mapping[str, Any]) -> None:
    """Check that a body belongs where its URL says.

    Raises:
        ApiError: 400, if it names another namespace.
    """
    if (metadata.get("namespace") or namespace) != namespace:
        raise statuses.bad_request(
            "the namespace of the provided object does not match "
            "the namespace sent on the request"
        )


def check_finalizers(kind: Kind, old: dict[str, Any], new: dict[str, Any]) -> None:
    """Check that an object which is being deleted gets no further finalizer.

    Raises:
        ApiError: 422, if it does.
    """
    if not old.get("deletionTimestamp"):
        return

    added = set(new.get("finalizers") or ()) - set(old.get("finalizers") or ())
    if added:
        raise _invalid(
            kind,
            old["name"],
            field="metadata.finalizers",
            reason="FieldValueForbidden",
            problem="Forbidden: no new finalizers can be added if the object is being "
            f"deleted, found new finalizers {sorted(added)}",
        )


def _check_type(kind: Kind, body: Mapping[str, Any]) -> None:
    expected = (kind.resource.api_version, kind.resource.kind)
    found = (body.get("apiVersion") or "", body.get("kind") or "")
    if not kind.typed and not all(found):
        raise statuses.bad_request("Object 'Kind' or 'apiVersion' is missing")

    if found[0] not in {"", expected[0]}:
        raise statuses.bad_request(
            f"the API version in the data ({found[0]}) does not match "
            f"the expected API version ({expected[0]})"
        )

    if found[1] not in {"", expected[1]}:
        raise statuses.bad_request(
            f'{found[1]} in version "{expected[0]}" cannot be handled '
            f"as a {expected[1]}"
        )


def _check_strings(field: str, value: object) -> None:
    if value is None:
        return

    if not isinstance(value, dict) or not all(
        isinstance(text, str) for text in value.values()
    ):
        raise statuses.bad_request(f"metadata.{field} is not a map of strings")


def _invalid(
    kind: Kind,
    name: str,
    *,
    field: str,
    problem: str,
    reason: str = "FieldValueInvalid",
) -> ApiError:
    return statuses.invalid(
        kind.resource.kind,
        kind.resource.group,
        name,
        field=field,
        reason=reason,
        problem=problem,
    )


def _is_rbac(kind: Kind) -> bool:
    return kind.resource.group == "rbac.authorization.k8s.io"


@lru_cache(maxsize=4096)
def _label_problem(key: str, value: str) -> str:
    try:
        LabelRequirement(key, "=", (value,))
    except OptionsError as exc:
        return str(exc)

    return ""
