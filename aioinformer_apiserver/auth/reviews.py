"""Reviews of tokens and access: objects that a client creates to read their status."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioinformer.model import Resource
from aioinformer_apiserver.auth.rbac import User
from aioinformer_apiserver.errors import statuses
from aioinformer_apiserver.errors.field_errors import FieldError, invalid_error
from aioinformer_apiserver.registry.request_bodies import decode_body
from aioinformer_apiserver.requests.options import write_options_of
from aioinformer_apiserver.requests.routes import RequestInfo
from aioinformer_apiserver.storage.kinds import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from aioinformer_apiserver.auth.access import AccessControl
    from aioinformer_apiserver.requests.request import APIRequest

__all__ = ["REVIEWS", "create_review"]

_AUTHENTICATION = "authentication.k8s.io"
_AUTHORIZATION = "authorization.k8s.io"

# All reviews, in the order of discovery.
REVIEWS = (
    Resource(_AUTHENTICATION, "v1", "selfsubjectreviews", "SelfSubjectReview", False),
    Resource(_AUTHENTICATION, "v1", "tokenreviews", "TokenReview", False),
    Resource(
        _AUTHORIZATION, "v1", "localsubjectaccessreviews", "LocalSubjectAccessReview"
    ),
    Resource(
        _AUTHORIZATION,
        "v1",
        "selfsubjectaccessreviews",
        "SelfSubjectAccessReview",
        False,
    ),
    Resource(
        _AUTHORIZATION, "v1", "selfsubjectrulesreviews", "SelfSubjectRulesReview", False
    ),
    Resource(
        _AUTHORIZATION, "v1", "subjectaccessreviews", "SubjectAccessReview", False
    ),
)
_KINDS = {(it.group, it.version, it.plural): Kind(resource=it) for it in REVIEWS}


def create_review(
    access_control: AccessControl, user: User, info: RequestInfo, request: APIRequest
) -> dict[str, Any] | None:
    """Return a created review with its status.

    Args:
        access_control: Users and rules.
        user: User who sends the request.
        info: Attributes of the request.
        request: The request.

    Returns:
        Review with its status; None if the request is not a review.

    Raises:
        ApiError: 404 if the path is too long, or its namespace is missing or
            superfluous; 405 for other verbs than create; 400, 415 or 422 for an invalid
            body.
    """
    kind = _KINDS.get(_key_of(info))
    if kind is None:
        return None

    if info.names_one or bool(info.namespace) != kind.resource.namespaced:
        raise statuses.no_such_path()

    if info.verb != "create":
        raise statuses.method_not_allowed()

    body = decode_body(kind, request.content(), write_options_of(request, "main"))
    head = {
        "kind": kind.resource.kind,
        "apiVersion": kind.resource.api_version,
        "metadata": _metadata(info, body),
    }
    spec: dict[str, Any] = body.get("spec") or {}
    match info.plural:
        case "selfsubjectreviews":
            return {**head, "status": {"userInfo": _info(user)}}
        case "tokenreviews":
            return {**head, "spec": spec, "status": _token_status(access_control, spec)}
        case "selfsubjectrulesreviews":
            return {
                **head,
                "spec": {},
                "status": _rules_status(access_control, user, spec),
            }
        case _:
            status = _access_status(access_control, user, info, spec)
            return {**head, "spec": spec, "status": status}


def _key_of(info: RequestInfo) -> tuple[str, str, str]:
    return info.group, info.version, info.plural


def _metadata(info: RequestInfo, body: Mapping[str, Any]) -> dict[str, Any]:
    if not info.namespace:
        return {}

    if (body.get("metadata") or {}).get("namespace") not in {None, info.namespace}:
        raise statuses.bad_request(
            "the namespace of the provided object does not match the namespace sent on "
            "the request"
        )

    return {"namespace": info.namespace}


def _info(user: User) -> dict[str, Any]:
    return {"username": user.name, "groups": list(user.groups)}


def _token_status(
    access_control: AccessControl, spec: Mapping[str, Any]
) -> dict[str, Any]:
    token = spec.get("token")
    if not token:
        raise statuses.bad_request(
            "token is required for TokenReview in authentication"
        )

    user = access_control.user_of(token)
    if user is None:
        return {"user": {}, "error": "invalid bearer token"}

    return {"authenticated": True, "user": _info(user)}


def _rules_status(
    access_control: AccessControl, user: User, spec: Mapping[str, Any]
) -> dict[str, Any]:
    namespace = spec.get("namespace")
    if not namespace:
        raise statuses.bad_request("no namespace on request")

    rules = list(access_control.authorizer.rules(user, namespace))
    return {
        "resourceRules": [it for it in rules if not it.get("nonResourceURLs")],
        "nonResourceRules": [it for it in rules if it.get("nonResourceURLs")],
        "incomplete": False,
    }


# ---------------------------------------------------------------- access reviews


def _access_status(
    access_control: AccessControl,
    user: User,
    info: RequestInfo,
    spec: Mapping[str, Any],
) -> dict[str, Any]:
    about_oneself = info.plural == "selfsubjectaccessreviews"
    errors = [*_validate_attributes(spec)]
    if not about_oneself and not spec.get("user") and not spec.get("groups"):
        why = "at least one of user or group must be specified"
        errors.append(FieldError.invalid("spec.user", "", why))

    if info.namespace and not errors:
        errors += _validate_namespace(spec, info.namespace)

    if errors:
        # A real server omits the kind of the review.
        raise invalid_error(_KINDS[_key_of(info)].stored, "", errors, shown_kind="")

    if not about_oneself:
        user = User(spec.get("user") or "", tuple(spec.get("groups") or ()))

    problem = access_control.authorizer.denial(user, _requested_info(spec))
    if not problem:
        return {"allowed": problem is None}

    return {"allowed": False, "reason": problem.removeprefix(": ")}


def _validate_attributes(spec: Mapping[str, Any]) -> Iterator[FieldError]:
    """Yield the invalid fields of the attributes in a review."""
    resource, other = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if resource is not None and other is not None:
        why = "cannot be specified in combination with resourceAttributes"
        yield FieldError.invalid(
            "spec.nonResourceAttributes", _go_attributes(other), why
        )

    if resource is None and other is None:
        why = "exactly one of nonResourceAttributes or resourceAttributes must be "
        why += "specified"
        yield FieldError.invalid("spec.resourceAttributes", None, why)


def _validate_namespace(
    spec: Mapping[str, Any], namespace: str
) -> Iterator[FieldError]:
    """Yield the attributes that a review in this namespace does not allow."""
    resource, other = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if other is not None:
        why = "disallowed on this kind of request"
        yield FieldError.invalid(
            "spec.nonResourceAttributes", _go_attributes(other), why
        )
    elif resource is not None and resource.get("namespace", "") != namespace:
        field, why = "namespace", "must match metadata.namespace"
        value = resource.get(field, "")
        yield FieldError.invalid(f"spec.resourceAttributes.{field}", value, why)


def _go_attributes(attributes: Mapping[str, Any]) -> dict[str, str]:
    """Return attributes with the field names of their Go struct, for messages."""
    return {
        "Path": attributes.get("path") or "",
        "Verb": attributes.get("verb") or "",
    }


def _requested_info(spec: Mapping[str, Any]) -> RequestInfo:
    given = spec.get("resourceAttributes")
    if given is None:
        other = spec["nonResourceAttributes"]
        return RequestInfo(verb=other.get("verb", ""), path=other.get("path", ""))

    return RequestInfo(
        verb=given.get("verb", ""),
        group=given.get("group", ""),
        # Empty means any version. Here it only marks a resource request.
        version=given.get("version") or "*",
        plural=given.get("resource", ""),
        subresource=given.get("subresource", ""),
        namespace=given.get("namespace", ""),
        name=given.get("name", ""),
    )
