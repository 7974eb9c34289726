"""Questions about rights: reviews, which nobody stores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from api_calls import ask

if TYPE_CHECKING:
    import aiohttp
    from contract_servers import ServerUnderTest

REVIEWS = "/apis/authorization.k8s.io/v1"


def review(kind: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}


async def test_one_may_ask_about_ones_own_rights(
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


async def test_one_may_ask_about_somebody_elses_rights(
    http: aiohttp.ClientSession,
) -> None:
    body = review(
        "SubjectAccessReview",
        user="alice",
        groups=["system:authenticated"],
        nonResourceAttributes={"verb": "get", "path": "/apis/apps"},
    )

    code, answer = await ask(http, "POST", f"{REVIEWS}/subjectaccessreviews", body)

    # The last word of the reason names the binding, which may be any that applies.
    assert (code, answer["status"]["allowed"]) == (201, True)


@pytest.mark.parametrize(
    ("kind", "spec", "field"),
    [
        ("SelfSubjectAccessReview", {}, "spec.resourceAttributes"),
        ("SubjectAccessReview", {"resourceAttributes": {"verb": "get"}}, "spec.user"),
    ],
)
async def test_an_incomplete_question_is_422(
    http: aiohttp.ClientSession, kind: str, spec: dict[str, Any], field: str
) -> None:
    path = f"{REVIEWS}/{kind.lower()}s"

    code, status = await ask(http, "POST", path, review(kind, **spec))

    assert (code, status["reason"]) == (422, "Invalid")
    assert [it["field"] for it in status["details"]["causes"]] == [field]


async def test_rules_are_listed(alice: aiohttp.ClientSession) -> None:
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


async def test_one_may_ask_who_one_is(
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


async def test_reviews_are_only_created(http: aiohttp.ClientSession) -> None:
    code, status = await ask(http, "GET", f"{REVIEWS}/selfsubjectaccessreviews")

    assert (code, status["reason"]) == (405, "MethodNotAllowed")
