"""Reviews: questions about rights, asked by creating objects that nobody stores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioinformer.model.resource import Resource
from aioinformer.testing import statuses
from aioinformer.testing.rbac import User
from aioinformer.testing.routes import Attributes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioinformer.testing.access import Access
    from aioinformer.testing.calls import Call

__all__ = ["REVIEWS", "answer_to"]

_AUTHENTICATION = "authentication.k8s.io"
_AUTHORIZATION = "authorization.k8s.io"

# All that can be asked, in the order of discovery.
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


def answer_to(
    access: Access, user: User, asked: Attributes, call: Call
) -> dict[str, Any] | None:
    """Answer a review.

    Args:
        access: Knows the rules.
        user: Who asks.
        asked: What the request is.
        call: The request.

    Returns:
        The review with its status; None if the request is none.

    Raises:
        ApiError: 405 if it is not created; 400, 415 or 422 if the body will not do.
    """
    review = _review_of(asked)
    if review is None:
        return None

    if asked.verb != "create" or bool(asked.namespace) != review.namespaced:
        raise statuses.method_not_allowed()

    body = call.document()
    if not isinstance(body, dict):
        raise statuses.bad_request("the body of the request is not a JSON object")

    spec = body.get("spec") or {}
    if not isinstance(spec, dict):
        raise statuses.bad_request("spec is not a JSON object")

    head = {"kind": review.kind, "apiVersion": review.api_version, "metadata": {}}
    match review.plural:
        case "selfsubjectreviews":
            return {**head, "status": {"userInfo": _info(user)}}
        case "tokenreviews":
            return {**head, "spec": spec, "status": _token_status(access, spec)}
        case "selfsubjectrulesreviews":
            return {**head, "spec": {}, "status": _rules_status(access, user, spec)}
        case "selfsubjectaccessreviews":
            subject = user
        case _:
            subject = _subject(review, spec)

    wanted = _wanted(review, spec, asked.namespace)
    allowed = access.rulebook.problem(subject, wanted) is None
    return {**head, "spec": spec, "status": {"allowed": allowed}}


def _review_of(asked: Attributes) -> Resource | None:
    for review in REVIEWS:
        if (review.group, review.version, review.plural) == (
            asked.group,
            asked.version,
            asked.plural,
        ):
            return review

    return None


def _info(user: User) -> dict[str, Any]:
    return {"username": user.name, "groups": list(user.groups)}


def _token_status(access: Access, spec: Mapping[str, Any]) -> dict[str, Any]:
    user = access.holder_of(str(spec.get("token") or ""))
    if user is None:
        return {"user": {}, "error": "invalid bearer token"}

    return {"authenticated": True, "user": _info(user)}


def _rules_status(
    access: Access, user: User, spec: Mapping[str, Any]
) -> dict[str, Any]:
    namespace = str(spec.get("namespace") or "")
    if not namespace:
        raise statuses.bad_request("no namespace on request")

    rules = list(access.rulebook.rules(user, namespace))
    paths = [it for it in rules if it.get("nonResourceURLs")]
    return {
        "resourceRules": [it for it in rules if it not in paths],
        "nonResourceRules": paths,
        "incomplete": False,
    }


def _subject(review: Resource, spec: Mapping[str, Any]) -> User:
    name, groups = str(spec.get("user") or ""), tuple(spec.get("groups") or ())
    if not name and not groups:
        problem = 'Invalid value: "": at least one of user or group must be specified'
        raise _invalid(review, "spec.user", problem)

    return User(name, groups)


def _wanted(review: Resource, spec: Mapping[str, Any], namespace: str) -> Attributes:
    resource, other = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if (resource is None) is (other is None):
        problem = "Invalid value: null: exactly one of nonResourceAttributes or "
        problem += "resourceAttributes must be specified"
        raise _invalid(review, "spec.resourceAttributes", problem)

    if resource is None:
        given = other or {}
        verb, path = str(given.get("verb") or ""), str(given.get("path") or "")
        return Attributes(verb=verb, path=path)

    return Attributes(
        verb=str(resource.get("verb") or ""),
        group=str(resource.get("group") or ""),
        # An empty one means any; here it only says that a resource is meant.
        version=str(resource.get("version") or "*"),
        plural=str(resource.get("resource") or ""),
        subresource=str(resource.get("subresource") or ""),
        namespace=namespace or str(resource.get("namespace") or ""),
        name=str(resource.get("name") or ""),
    )


def _invalid(review: Resource, field: str, problem: str) -> Exception:
    return statuses.invalid(
        "", review.group, "", field=field, reason="FieldValueInvalid", problem=problem
    )
