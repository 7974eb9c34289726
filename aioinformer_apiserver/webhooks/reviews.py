"""Admission reviews: the request to a webhook, and the meaning of its response. Pure."""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as Base64Error
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aioinformer import json_codec
from aioinformer_apiserver.errors import statuses

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioinformer.errors import ApiError
    from aioinformer.model import Resource
    from aioinformer_apiserver.webhooks.matching import Attributes, Invocation

__all__ = ["InvalidReview", "Verdict", "rejection", "review_of", "verdict_of"]

_GROUP, _KIND = "admission.k8s.io", "AdmissionReview"
_VERSION = f"{_GROUP}/v1"
_INVALID = "received invalid webhook response: "
_OPTIONS = {"CREATE": "CreateOptions", "UPDATE": "UpdateOptions"}
_LOWEST_ERROR = 400


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
    """
    denied = f'admission webhook "{webhook}" denied the request'
    said = status.get("message") or status.get("reason") or ""
    code = status.get("code") or 0
    return statuses.failure(
        max(int(code), _LOWEST_ERROR),
        str(status.get("reason") or ""),
        f"{denied}: {said}" if said else f"{denied} without explanation",
        status.get("details"),
    )


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
