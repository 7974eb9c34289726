"""Subresources `binding` of pods and `token` of service accounts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from api_calls import a_pod, ask, make, named
from each_case import each_case

if TYPE_CHECKING:
    import aiohttp
    from contract_servers import ServerUnderTest

TO_NODE = {"target": {"kind": "Node", "name": "node-a"}}


def to_node(name: str = "web", **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **metadata}, **TO_NODE}


@pytest.fixture
async def pod(target: ServerUnderTest, http: aiohttp.ClientSession) -> str:
    await make(http, target.path("pods"), a_pod("web"))
    return f"{target.path('pods')}/web"


@pytest.mark.parametrize("of_pod", [True, False])
async def test_binding_sets_node_of_pod(
    target: ServerUnderTest, http: aiohttp.ClientSession, pod: str, of_pod: bool
) -> None:
    path = f"{pod}/binding" if of_pod else target.path("bindings")
    body = to_node(annotations={"a": "b"}, labels={"c": "d"})

    code, answer = await ask(http, "POST", path, body)
    _, found = await ask(http, "GET", pod)

    (condition,) = found["status"]["conditions"]
    metadata = found["metadata"]
    assert (code, answer["status"]) == (201, "Success")
    assert found["spec"]["nodeName"] == "node-a"
    assert (condition["type"], condition["status"]) == ("PodScheduled", "True")
    assert (metadata["annotations"], metadata["labels"]) == ({"a": "b"}, {"c": "d"})
    assert (metadata["generation"], len(metadata["managedFields"])) == (1, 1)


async def test_dry_run_binding_changes_nothing(
    http: aiohttp.ClientSession, pod: str
) -> None:
    code, _ = await ask(http, "POST", f"{pod}/binding", to_node(), dryRun="All")

    assert code == 201
    assert "nodeName" not in (await ask(http, "GET", pod))[1]["spec"]


async def test_second_binding_of_pod_is_conflict(
    http: aiohttp.ClientSession, pod: str
) -> None:
    await ask(http, "POST", f"{pod}/binding", to_node())

    code, answer = await ask(http, "POST", f"{pod}/binding", to_node())

    why = 'pod web is already assigned to node "node-a"'
    about = 'Operation cannot be fulfilled on pods/binding "web"'
    assert (code, answer["message"]) == (409, f"{about}: {why}")
    assert answer["details"] == {"name": "web", "kind": "pods/binding"}


async def test_binding_of_gated_pod_is_conflict(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    gates = {"schedulingGates": [{"name": "example.com/gate"}]}
    await make(http, target.path("pods"), a_pod("web", spec=gates))

    code, answer = await ask(http, "POST", target.path("bindings"), to_node())

    assert code == 409
    assert answer["message"].endswith("pod web has non-empty .spec.schedulingGates")


@each_case(
    "code, body, message",
    [
        (400, to_node("other"), "name in URL does not match name in Binding object"),
        (400, TO_NODE, "name in URL does not match name in Binding object"),
        (500, named("web"), "target.name: Required value"),
        (
            500,
            named("web", target={"kind": "Pod"}),
            '"Node", "<empty>", target.name: Required value]',
        ),
        (409, to_node(uid="x"), "UID in precondition: x"),
        (409, to_node(resourceVersion="1"), "ResourceVersion in precondition: 1"),
    ],
)
async def test_invalid_binding_is_rejected(
    http: aiohttp.ClientSession, pod: str, code: int, body: object, message: str
) -> None:
    got, answer = await ask(http, "POST", f"{pod}/binding", body)

    assert got == code
    assert message in answer["message"]


async def test_binding_of_missing_pod_is_404(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    bindings = target.path("bindings")
    answers = [
        await ask(http, "POST", bindings, to_node()),
        await ask(http, "POST", bindings, TO_NODE),
        await ask(http, "GET", bindings),
        await ask(http, "GET", f"{bindings}/web"),
        await ask(http, "POST", "/api/v1/bindings", to_node()),
    ]

    assert [code for code, _ in answers] == [404, 400, 405, 404, 404]
    assert answers[0][1]["message"] == 'pods "web" not found'
    assert answers[1][1]["message"] == "Name parameter required."


async def test_binding_and_token_subresources_are_discovered(
    http: aiohttp.ClientSession,
) -> None:
    _, found = await ask(http, "GET", "/api/v1")
    names = ("bindings", "pods/binding", "pods/eviction", "serviceaccounts/token")
    about = {it["name"]: it for it in found["resources"] if it["name"] in names}

    assert [*about] == [*names]
    assert {it["verbs"][0] for it in about.values()} == {"create"}
    assert [it.get("group", "") for it in about.values()] == [
        "",
        "",
        "policy",
        "authentication.k8s.io",
    ]


# -------------------------------------------------------------------- tokens


@pytest.fixture
async def token_path(target: ServerUnderTest, http: aiohttp.ClientSession) -> str:
    await make(http, target.path("serviceaccounts"), named("robot"))
    return f"{target.path('serviceaccounts')}/robot/token"


async def test_service_account_token_authenticates_its_account(
    target: ServerUnderTest, http: aiohttp.ClientSession, token_path: str
) -> None:
    code, answer = await ask(http, "POST", token_path, {"spec": {}})
    async with target.session(answer["status"]["token"]) as robot:
        _, denied = await ask(robot, "GET", target.path("pods"))
        review = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
        _, me = await ask(robot, "POST", review, {})

    user = me["status"]["userInfo"]
    name = f"system:serviceaccount:{target.namespace}:robot"
    assert (code, answer["metadata"]["name"]) == (201, "robot")
    assert answer["spec"]["expirationSeconds"] == 3600
    assert answer["spec"]["boundObjectRef"] is None
    assert answer["status"]["expirationTimestamp"].endswith("Z")
    assert f'User "{name}" cannot list' in denied["message"]
    assert (user["username"], user["groups"]) == (
        name,
        [
            "system:serviceaccounts",
            f"system:serviceaccounts:{target.namespace}",
            "system:authenticated",
        ],
    )


@pytest.mark.parametrize("tampers", ["with another name", "for others"])
async def test_service_account_token_with_wrong_signature_or_audience_is_401(
    target: ServerUnderTest, http: aiohttp.ClientSession, token_path: str, tampers: str
) -> None:
    audiences = ["others"] if tampers == "for others" else []
    _, answer = await ask(http, "POST", token_path, {"spec": {"audiences": audiences}})
    token = answer["status"]["token"]
    if not audiences:
        head, claims, signature = token.split(".")
        token = f"{head}.{claims[:-2]}.{signature}"

    async with target.session(token) as robot:
        assert (await ask(robot, "GET", target.path("pods")))[0] == 401


@each_case(
    "code, body, message",
    [
        (422, {"spec": {"expirationSeconds": 10}}, "less than 10 minutes"),
        (422, {"spec": {"expirationSeconds": 2**33}}, "larger than 2^32 seconds"),
        (422, named("other"), "must match the service account name if specified"),
        (400, {"metadata": {"namespace": "other"}}, "does not match the namespace"),
    ],
)
async def test_invalid_token_request_is_rejected(
    http: aiohttp.ClientSession, token_path: str, code: int, body: object, message: str
) -> None:
    got, answer = await ask(http, "POST", token_path, body)

    assert got == code
    assert message in answer["message"]


async def test_token_request_for_missing_account_is_404(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = f"{target.path('serviceaccounts')}/robot/token"

    code, answer = await ask(http, "POST", path, {})

    assert (code, answer["message"]) == (404, 'serviceaccounts "robot" not found')
