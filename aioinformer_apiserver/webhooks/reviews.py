"""Admission reviews: the request to a webhook, and the meaning of its response. Pure."""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as Base64Error
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aioinformer import json_codec
from aioinformer_apiserver.errors import statuses
from aioinformer_apiserver.errors.go_format import json_type

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioinformer.errors import ApiError
    from aioinformer.model import Resource
    from aioinformer_apiserver.webhooks.matching import Attributes, Invocation

__all__ = [
    "InvalidReview",
    "Verdict",
    "body_of",
    "rejection",
    "review_of",
    "type_mistake",
    "verdict_of",
]

_GROUP, _KIND = "admission.k8s.io", "AdmissionReview"
_VERSION = f"{_GROUP}/v1"
_INVALID = "received invalid webhook response: "
_OPTIONS = {"CREATE": "CreateOptions", "UPDATE": "UpdateOptions"}
_LOWEST_ERROR, _HIGHEST_CODE = 400, 999

# Types of the fields in responses. Those without a dot or bracket are structs, or basic.
_STRUCTS: Mapping[str, Mapping[str, str]] = {
    "AdmissionResponse": {
        "uid": "types.UID",
        "allowed": "bool",
        "status": "Status",
        "patch": "[]uint8",
        "patchType": "v1.PatchType",
        "auditAnnotations": "map[string]string",
        "warnings": "[]string",
    },
    "ConversionResponse": {
        "uid": "types.UID",
        "convertedObjects": "[]runtime.RawExtension",
        "result": "Status",
    },
    "Status": {
        "status": "string",
        "message": "string",
        "reason": "v1.StatusReason",
        "details": "StatusDetails",
        "code": "int32",
    },
    "StatusDetails": {
        "name": "string",
        "group": "string",
        "kind": "string",
        "uid": "types.UID",
        "causes": "[]StatusCause",
        "retryAfterSeconds": "int32",
    },
    "StatusCause": {"reason": "v1.CauseType", "message": "string", "field": "string"},
}


class InvalidReview(Exception):
    """A webhook sent something else than a valid response."""

    def __init__(self, why: str) -> None:
        super().__init__(why)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Valid response of a webhook.

    Attributes:
        allowed: Whether the write may go on.
        patch: Decoded JSON patch; None for none.
        status: Status of a rejection; may be empty.
        warnings: Warnings for the client.
    """

    allowed: bool
    patch: Any
    status: Mapping[str, Any]
    warnings: tuple[str, ...]


def review_of(
    invocation: Invocation,
    attributes: Attributes,
    *,
    user: Mapping[str, Any],
    options: Mapping[str, Any],
    dry_run: bool,
) -> dict[str, Any]:
    """Return the `request` of an AdmissionReview, without its uid.

    Args:
        invocation: Webhook and version.
        attributes: Operation, with the objects in that version.
        user: `userInfo`.
        options: Options of the request, without kind.
        dry_run: Whether the write is a dry run.
    """
    subresource = attributes.subresource
    named = {
        "subResource": subresource,
        "requestSubResource": subresource,
        "name": attributes.name,
        "namespace": attributes.namespace,
    }
    kind = _OPTIONS.get(attributes.operation, "DeleteOptions")
    return {
        "kind": _kind(invocation.kind.resource),
        "resource": _resource(invocation.collection.kind.resource),
        "requestKind": _kind(attributes.kind.resource),
        "requestResource": _resource(attributes.resource),
        **{field: text for field, text in named.items() if text},
        "operation": attributes.operation,
        "userInfo": dict(user),
        "object": attributes.new,
        "oldObject": attributes.old,
        "dryRun": dry_run,
        "options": {"kind": kind, "apiVersion": "meta.k8s.io/v1", **options},
    }


def body_of(uid: str, request: Mapping[str, Any]) -> bytes:
    """Return the encoded AdmissionReview of a request."""
    return json_codec.dumps(
        {
            "kind": _KIND,
            "apiVersion": _VERSION,
            "request": {"uid": uid, **request},
        }
    )


def verdict_of(review: Any, uid: str, *, mutating: bool) -> Verdict:
    """Return the verdict in an AdmissionReview.

    Args:
        review: Decoded response.
        uid: Uid of the request.
        mutating: Whether the webhook may change the object.

    Raises:
        InvalidReview: If the response is not a valid one for this request.
    """
    review = review if isinstance(review, dict) else {}
    _check_type(review)
    response = review.get("response")
    if not isinstance(response, dict):
        raise InvalidReview(f"{_INVALID}webhook response was absent")

    mistake = type_mistake(response, "AdmissionResponse")
    if mistake:
        raise InvalidReview(f"failed to call webhook: {mistake}")

    given = str(response.get("uid") or "")
    if given != uid:
        raise InvalidReview(
            f"{_INVALID}expected response.uid={statuses.quote(uid)}, got {statuses.quote(given)}"
        )

    warnings = tuple(str(it) for it in response.get("warnings") or ())
    status = response.get("status")
    return Verdict(
        allowed=bool(response.get("allowed")),
        patch=_patch(response, mutating=mutating),
        status=status if isinstance(status, dict) else {},
        warnings=warnings,
    )


def rejection(webhook: str, status: Mapping[str, Any]) -> ApiError:
    """Return the error for a write that a webhook rejects.

    Args:
        webhook: Name of the webhook.
        status: Status in its response; may be empty.

    Raises:
        ApiError: 500 if its code is no HTTP status.
    """
    denied = f'admission webhook "{webhook}" denied the request'
    said = status.get("message") or status.get("reason") or ""
    code = max(status.get("code") or 0, _LOWEST_ERROR)
    if code > _HIGHEST_CODE:
        raise statuses.internal_error(f"{denied} with the invalid status code {code}")

    return statuses.failure(
        code,
        str(status.get("reason") or ""),
        f"{denied}: {said}" if said else f"{denied} without explanation",
        status.get("details"),
    )


def type_mistake(
    value: Any, expected: str, path: str = "response", owner: str = ""
) -> str:
    """Return the message of a decoder for a value of a wrong type; empty for none.

    Args:
        value: Decoded JSON.
        expected: Go type of the value, or a struct of which the fields are known.
        path: Path of the value.
        owner: Struct that the value is in.
    """
    if value is None:
        return ""

    fields = _STRUCTS.get(expected)
    item = expected.removeprefix("[]") if expected != "[]uint8" else expected
    if not isinstance(value, _python_type(expected)) or (
        isinstance(value, bool) is not (expected == "bool")
    ):
        shown = f"v1.{expected}" if fields is not None else expected
        return (
            f"json: cannot unmarshal {json_type(value)} into Go struct field "
            f"{owner}.{path} of type {shown}"
        )

    members: list[tuple[Any, str, str, str]] = []
    if isinstance(value, dict) and fields is not None:
        members = [
            (value.get(it), kind, f"{path}.{it}", expected)
            for it, kind in fields.items()
        ]
    elif isinstance(value, dict):
        members = [(it, "string", path, owner) for it in value.values()]
    elif isinstance(value, list) and "." not in item:
        members = [(it, item, path, owner) for it in value]

    return next(filter(None, (type_mistake(*it) for it in members)), "")


def _python_type(expected: str) -> type:
    if expected in _STRUCTS or expected.startswith("map["):
        return dict

    if expected.startswith("[]") and expected != "[]uint8":
        return list

    return {"bool": bool, "int32": int}.get(expected, str)


def _check_type(review: Mapping[str, Any]) -> None:
    """Check the type of a response; a missing one is that of the request."""
    version, kind = review.get("apiVersion"), review.get("kind")
    if not version or not kind or (version, kind) == (_VERSION, _KIND):
        return

    group, _, short = str(version).rpartition("/")
    if kind == _KIND and group == _GROUP and short == "v1beta1":
        why = f"converting ({short}.{kind}) to (v1.{kind}): unknown conversion"
    else:
        why = f'no kind "{kind}" is registered for version "{version}" in scheme '
        why += '"pkg/runtime/scheme.go:111"'

    raise InvalidReview(f"failed to call webhook: {why}")


def _patch(response: Mapping[str, Any], *, mutating: bool) -> Any:
    """Return the decoded patch; None for none.

    Raises:
        InvalidReview: If the patch and its type do not fit each other or the webhook.
    """
    patch, type_ = response.get("patch"), response.get("patchType")
    if not mutating:
        if patch or type_ is not None:
            field = "patch" if patch else "patchType"
            why = f"validating webhook may not return response.{field}"
            raise InvalidReview(_INVALID + why)

        return None

    if patch and type_ is None:
        why = "webhook returned response.patch but not response.patchType"
        raise InvalidReview(_INVALID + why)

    if not patch and type_ is not None:
        why = "webhook returned response.patchType but not response.patch"
        raise InvalidReview(_INVALID + why)

    if type_ == "":
        why = 'webhook returned invalid response.patchType of ""'
        raise InvalidReview(_INVALID + why)

    if not patch:
        return None

    if type_ != "JSONPatch":
        raise InvalidReview(f"unsupported patch type {statuses.quote(str(type_))}")

    try:
        return json_codec.loads(b64decode(patch, validate=True))
    except (Base64Error, TypeError, ValueError) as exc:
        why = f"received undecodable patch in webhook response: {exc}"
        raise InvalidReview(why) from exc


def _kind(resource: Resource) -> dict[str, str]:
    return {
        "group": resource.group,
        "version": resource.version,
        "kind": resource.kind,
    }


def _resource(resource: Resource) -> dict[str, str]:
    return {
        "group": resource.group,
        "version": resource.version,
        "resource": resource.plural,
    }
