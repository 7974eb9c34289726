"""Access reviews."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from api_calls import ask
from each_case import each_case

if TYPE_CHECKING:
    import aiohttp
    from contract_servers import ServerUnderTest

REVIEWS = "/apis/authorization.k8s.io/v1"


def review(kind: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}


async def test_self_subject_access_review_reports_own_permissions(
    http: aiohttp.ClientSession, alice: aiohttp.ClientSession
) -> None:
    wanted = {"verb": "list", "resource": "pods", "namespace": "default"}
    body = review("SelfSubjectAccessReview", resourceAttributes=wanted)

    answers = [
        await ask(session, "POST", f"{REVIEWS}/selfsubjectaccessreviews", body)
        for session in (http, alice)
    ]

    assert [code for code, _ in answers] == [201, 201]
    assert [answer["status"] for _, answer in answers] == [
        {"allowed": True},
        {"allowed": False},
    ]
    assert answers[0][1]["spec"]["resourceAttributes"] == wanted


async def test_subject_access_review_reports_permissions_of_other_user(
    http: aiohttp.ClientSession,
) -> None:
    body = review(
        "SubjectAccessReview",
        user="alice",
        groups=["system:authenticated"],
        nonResourceAttributes={"verb": "get", "path": "/apis/apps"},
    )

    code, answer = await ask(http, "POST", f"{REVIEWS}/subjectaccessreviews", body)

    # The reason ends with a binding, which may be any that applies.
    assert (code, answer["status"]["allowed"]) == (201, True)


@pytest.mark.parametrize(
    ("kind", "spec", "field"),
    [
        ("SelfSubjectAccessReview", {}, "spec.resourceAttributes"),
        ("SubjectAccessReview", {"resourceAttributes": {"verb": "get"}}, "spec.user"),
    ],
)
async def test_incomplete_review_is_422(
    http: aiohttp.ClientSession, kind: str, spec: dict[str, Any], field: str
) -> None:
    path = f"{REVIEWS}/{kind.lower()}s"

    code, status = await ask(http, "POST", path, review(kind, **spec))

    assert (code, status["reason"]) == (422, "Invalid")
    assert [it["field"] for it in status["details"]["causes"]] == [field]


async def test_self_subject_rules_review_lists_rules(
    alice: aiohttp.ClientSession,
) -> None:
    body = review("SelfSubjectRulesReview", namespace="default")

    code, answer = await ask(alice, "POST", f"{REVIEWS}/selfsubjectrulesreviews", body)

    assert code == 201
    resources = {
        name for it in answer["status"]["resourceRules"] for name in it["resources"]
    }
    assert resources == {
        "selfsubjectaccessreviews",
        "selfsubjectrulesreviews",
        "selfsubjectreviews",
    }


async def test_self_subject_review_reports_user(
    target: ServerUnderTest, http: aiohttp.ClientSession, alice: aiohttp.ClientSession
) -> None:
    group = "/apis/authentication.k8s.io/v1"
    head = {"apiVersion": "authentication.k8s.io/v1"}
    me = {**head, "kind": "SelfSubjectReview"}
    token = {**head, "kind": "TokenReview", "spec": {"token": target.user_token}}

    _, mine = await ask(alice, "POST", f"{group}/selfsubjectreviews", me)
    _, found = await ask(http, "POST", f"{group}/tokenreviews", token)
    token["spec"] = {"token": "nobody's"}
    _, nobody = await ask(http, "POST", f"{group}/tokenreviews", token)

    assert mine["status"]["userInfo"]["username"] == "alice"
    assert found["status"]["authenticated"] is True
    assert found["status"]["user"]["username"] == "alice"
    assert nobody["status"] == {"user": {}, "error": "invalid bearer token"}


async def test_reviews_support_only_create(http: aiohttp.ClientSession) -> None:
    code, status = await ask(http, "GET", f"{REVIEWS}/selfsubjectaccessreviews")

    assert (code, status["reason"]) == (405, "MethodNotAllowed")


@each_case(
    "kind, spec, found, place, expected",
    [
        (
            "SelfSubjectAccessReview",
            {"resourceAttributes": []},
            "array",
            "SelfSubjectAccessReviewSpec.spec.resourceAttributes",
            "v1.ResourceAttributes",
        ),
        (
            "SubjectAccessReview",
            {"groups": "all"},
            "string",
            "SubjectAccessReviewSpec.spec.groups",
            "[]string",
        ),
        (
            "SelfSubjectRulesReview",
            "x",
            "string",
            "SelfSubjectRulesReview.spec",
            "v1.SelfSubjectRulesReviewSpec",
        ),
    ],
)
async def test_review_with_wrong_types_is_400(
    http: aiohttp.ClientSession,
    kind: str,
    spec: object,
    found: str,
    place: str,
    expected: str,
) -> None:
    body = {**review(kind), "spec": spec}

    code, status = await ask(http, "POST", f"{REVIEWS}/{kind.lower()}s", body)

    assert code == 400
    assert status["message"] == (
        f'{kind} in version "v1" cannot be handled as a {kind}: json: cannot unmarshal '
        f"{found} into Go struct field {place} of type {expected}"
    )


async def test_review_of_other_kind_is_400(http: aiohttp.ClientSession) -> None:
    body = review("Gadget", resourceAttributes={"verb": "get"})

    code, status = await ask(http, "POST", f"{REVIEWS}/selfsubjectaccessreviews", body)

    assert code == 400
    assert 'no kind "Gadget" is registered' in status["message"]


async def test_all_errors_of_review_are_reported(
    http: aiohttp.ClientSession,
) -> None:
    both = {"resourceAttributes": {}, "nonResourceAttributes": {"path": "/x"}}
    path = f"{REVIEWS}/subjectaccessreviews"

    _, nothing = await ask(http, "POST", path, review("SubjectAccessReview"))
    _, much = await ask(http, "POST", path, review("SubjectAccessReview", **both))

    assert [it["field"] for it in nothing["details"]["causes"]] == [
        "spec.resourceAttributes",
        "spec.user",
    ]
    assert much["details"]["causes"][0]["message"] == (
        'Invalid value: {"Path":"/x","Verb":""}: cannot be specified in combination '
        "with resourceAttributes"
    )


@pytest.mark.parametrize(
    ("attributes", "field"),
    [
        ({"resourceAttributes": {"verb": "get"}}, "resourceAttributes.namespace"),
        ({"nonResourceAttributes": {"verb": "get"}}, "nonResourceAttributes"),
    ],
)
async def test_local_review_checks_its_namespace(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    attributes: dict[str, Any],
    field: str,
) -> None:
    path = target.path("localsubjectaccessreviews", REVIEWS.strip("/"))
    right = {"verb": "get", "resource": "pods", "namespace": target.namespace}
    body = review("LocalSubjectAccessReview", user="alice", resourceAttributes=right)

    code, answer = await ask(http, "POST", path, body)
    body["spec"] = {"user": "alice", **attributes}
    refused, status = await ask(http, "POST", path, body)

    assert (code, answer["status"]["allowed"]) == (201, False)
    assert answer["metadata"]["namespace"] == target.namespace
    assert refused == 422
    assert [it["field"] for it in status["details"]["causes"]] == [f"spec.{field}"]


@each_case(
    "path",
    [
        f"{REVIEWS}/localsubjectaccessreviews",
        f"{REVIEWS}/namespaces/default/selfsubjectaccessreviews",
        f"{REVIEWS}/selfsubjectaccessreviews/one",
    ],
)
async def test_review_in_wrong_scope_is_404(
    http: aiohttp.ClientSession, path: str
) -> None:
    code, _ = await ask(http, "POST", path, review("SelfSubjectAccessReview"))

    assert code == 404


async def test_token_review_without_token_is_400(http: aiohttp.ClientSession) -> None:
    body = {"kind": "TokenReview", "spec": {}}
    path = "/apis/authentication.k8s.io/v1/tokenreviews"

    code, status = await ask(http, "POST", path, body)

    assert code == 400
    assert status["message"] == "token is required for TokenReview in authentication"


async def test_strict_review_with_unknown_field_is_400(
    http: aiohttp.ClientSession,
) -> None:
    body = review("SelfSubjectAccessReview", resourceAttributes={"verb": "get", "x": 1})
    path = f"{REVIEWS}/selfsubjectaccessreviews?fieldValidation=Strict"

    code, status = await ask(http, "POST", path, body)

    assert code == 400
    assert 'unknown field "spec.resourceAttributes.x"' in status["message"]
