"""Strategic merge patches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from api_calls import WIDGETS_GROUP, ask, change, make, named, patch, widget
from each_case import each_case

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import aiohttp
    from contract_servers import ServerUnderTest

STRATEGIC = "application/strategic-merge-patch+json"
APPS = "apis/apps/v1"


async def strategic(
    http: aiohttp.ClientSession, path: str, body: object, **params: str
) -> tuple[int, dict[str, Any]]:
    return await ask(http, "PATCH", path, body, content_type=STRATEGIC, **params)


def deployment() -> dict[str, Any]:
    env = [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]
    ports = [{"containerPort": 80}, {"containerPort": 81, "protocol": "UDP"}]
    first = {"name": "x", "image": "i", "args": ["1", "2"], "env": env, "ports": ports}
    pod = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [first, {"name": "y", "image": "j"}]},
    }
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": pod}
    finalizers = ["example.com/c", "example.com/d"]
    metadata = {"finalizers": finalizers, "labels": {"x": "y"}}
    return named("web", metadata=metadata, spec=spec)


@pytest.fixture
async def one(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> AsyncIterator[str]:
    """Create a deployment with two containers, `x` and `y`, and return its path."""
    path = target.path("deployments", APPS)
    await make(http, path, deployment())
    yield f"{path}/web"
    await ask(http, "DELETE", f"{path}/web")
    await patch(http, f"{path}/web", {"metadata": {"finalizers": None}})


def containers(*items: object, **directives: object) -> dict[str, Any]:
    """Return a patch of the containers."""
    return {"spec": {"template": {"spec": {"containers": [*items], **directives}}}}


def images(body: dict[str, Any]) -> dict[str, str]:
    """Return the images of the containers in order."""
    found = body["spec"]["template"]["spec"]["containers"]
    return {it["name"]: it["image"] for it in found}


def first_of(body: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = body["spec"]["template"]["spec"]["containers"][0]
    return found


# -------------------------------------------------------------------- lists of objects


@pytest.mark.parametrize(
    ("content", "found"),
    [
        pytest.param({}, {"x": "i", "y": "j"}, id="nothing"),
        pytest.param(
            containers({"name": "y", "image": "k"}, {"name": "z", "image": "l"}),
            {"x": "i", "y": "k", "z": "l"},
            id="merge",
        ),
        pytest.param(
            containers({"name": "y"}, {"name": "x"}), {"y": "j", "x": "i"}, id="order"
        ),
        pytest.param(
            containers({"name": "z", "image": "l"}, {"name": "x"}),
            {"z": "l", "x": "i", "y": "j"},
            id="new-first",
        ),
        pytest.param(
            containers({"name": "x"}, {"name": "z", "image": "l"}),
            {"x": "i", "z": "l", "y": "j"},
            id="new-last",
        ),
        pytest.param(
            containers({"name": "x", "$patch": "delete"}), {"y": "j"}, id="delete"
        ),
        pytest.param(
            containers({"name": "no", "$patch": "delete"}),
            {"x": "i", "y": "j"},
            id="delete-missing",
        ),
        pytest.param(
            containers({"$patch": "replace"}, {"name": "w", "image": "v"}),
            {"w": "v"},
            id="replace",
        ),
        pytest.param(
            containers(
                **{"$setElementOrder/containers": [{"name": "y"}, {"name": "x"}]}
            ),
            {"y": "j", "x": "i"},
            id="order-only",
        ),
        pytest.param(
            {
                "spec": {
                    "template": {
                        "spec": {
                            "$setElementOrder/containers": [
                                {"name": "z"},
                                {"name": "y"},
                                {"name": "x"},
                            ],
                            "containers": [{"name": "z", "image": "l"}],
                        }
                    }
                }
            },
            {"z": "l", "y": "j", "x": "i"},
            id="element-order",
        ),
        pytest.param(
            containers(
                {"name": "z", "image": "l"},
                **{"$setElementOrder/containers": [{"name": "z"}, {"name": "x"}]},
            ),
            {"z": "l", "x": "i", "y": "j"},
            id="partial-order",
        ),
        pytest.param(
            containers({"name": "x", "image": "1"}, {"name": "x", "image": "2"}),
            {"x": "2", "y": "j"},
            id="twice",
        ),
        pytest.param(containers(), {"x": "i", "y": "j"}, id="empty"),
    ],
)
async def test_strategic_patch_merges_items_by_name(
    http: aiohttp.ClientSession, one: str, content: object, found: dict[str, str]
) -> None:
    code, new = await strategic(http, one, content)

    assert code == 200, new
    assert list(images(new).items()) == list(found.items())


async def test_strategic_patch_merges_nested_lists_by_their_schema(
    http: aiohttp.ClientSession, one: str
) -> None:
    reference = {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}
    env = [{"name": "B", "value": None, "valueFrom": reference}, {"name": "C"}]
    ports = [{"containerPort": 81, "protocol": "TCP"}]
    item = {"name": "x", "env": env, "ports": ports, "args": ["3"]}

    code, new = await strategic(http, one, containers(item))

    container = first_of(new)
    assert code == 200
    assert container["env"] == [
        {"name": "A", "value": "1"},
        {"name": "B", "valueFrom": reference},
        {"name": "C"},
    ]
    assert container["ports"] == [
        {"containerPort": 80, "protocol": "TCP"},
        {"containerPort": 81, "protocol": "TCP"},
    ]
    assert container["args"] == ["3"]


@pytest.mark.parametrize(
    ("content", "found"),
    [
        pytest.param(
            {"finalizers": ["example.com/e", "example.com/c"]}, "ecd", id="unite"
        ),
        pytest.param(
            {"$deleteFromPrimitiveList/finalizers": ["example.com/c"]}, "d", id="delete"
        ),
        pytest.param(
            {"$setElementOrder/finalizers": ["example.com/d", "example.com/c"]},
            "dc",
            id="order",
        ),
        pytest.param(
            {
                "$deleteFromPrimitiveList/finalizers": ["example.com/c"],
                "$setElementOrder/finalizers": ["example.com/f", "example.com/d"],
                "finalizers": ["example.com/f"],
            },
            "fd",
            id="all",
        ),
    ],
)
async def test_strategic_patch_unites_primitive_lists(
    http: aiohttp.ClientSession, one: str, content: object, found: str
) -> None:
    code, new = await strategic(http, one, {"metadata": content})

    assert code == 200, new
    wanted = [f"example.com/{letter}" for letter in found]
    assert new["metadata"]["finalizers"] == wanted


@pytest.mark.parametrize(
    ("labels", "found"),
    [
        pytest.param({"n": "m"}, {"x": "y", "n": "m"}, id="merge"),
        pytest.param({"x": None}, None, id="null"),
        pytest.param({"$patch": "replace", "n": "m"}, {"n": "m"}, id="replace"),
        pytest.param({"$patch": "delete", "n": "m"}, None, id="delete"),
        pytest.param({"$retainKeys": ["n"], "n": "m"}, {"n": "m"}, id="retain"),
    ],
)
async def test_strategic_patch_obeys_directives(
    http: aiohttp.ClientSession, one: str, labels: object, found: object
) -> None:
    code, new = await strategic(http, one, {"metadata": {"labels": labels}})

    assert code == 200, new
    assert new["metadata"].get("labels") == found


async def test_strategic_patch_drops_directives_of_new_values(
    http: aiohttp.ClientSession, one: str
) -> None:
    volumes = [{"name": "v", "$patch": "delete"}, {"name": "w", "emptyDir": {}}]
    content = {
        "metadata": {"annotations": {"$patch": "replace", "a": "b"}},
        "spec": {"template": {"spec": {"volumes": volumes}}},
    }

    code, new = await strategic(http, one, content)

    assert code == 200
    assert "annotations" not in new["metadata"]
    assert new["spec"]["template"]["spec"]["volumes"] == [{"name": "w", "emptyDir": {}}]


async def test_strategic_patch_with_retain_keys_replaces_union_member(
    http: aiohttp.ClientSession, one: str
) -> None:
    strategy = {"$retainKeys": ["type"], "type": "Recreate"}

    code, new = await strategic(http, one, {"spec": {"strategy": strategy}})

    assert (code, new["spec"]["strategy"]) == (200, {"type": "Recreate"})


ORDERED = "doesn't match $setElementOrder list:\n[map[name:y] map[name:x]]\n"


@each_case(
    "content, code, text",
    [
        pytest.param(
            containers({"image": "w"}),
            500,
            "map: map[image:w] does not contain declared merge key: name",
            id="no-key",
        ),
        pytest.param(
            containers({"$patch": "delete"}),
            500,
            "map: map[$patch:delete] does not contain declared merge key: name",
            id="delete-no-key",
        ),
        pytest.param(
            containers({"name": "x", "$patch": "merge"}),
            500,
            "merging lists cannot yet be specified in the patch",
            id="merge",
        ),
        pytest.param(
            containers({"name": "x", "$patch": "frob"}),
            500,
            "unknown patch type: frob in map: map[$patch:frob name:x]",
            id="item-directive",
        ),
        pytest.param(
            {"metadata": {"labels": {"$patch": 1}}},
            500,
            "unknown patch type: %!s(int64=1) in map: map[$patch:1]",
            id="directive",
        ),
        pytest.param(
            {"spec": {"strategy": {"$retainKeys": ["foo"], "type": "Recreate"}}},
            400,
            "invalid patch format of retainKeys",
            id="retain",
        ),
        pytest.param(
            {"metadata": {"$deleteFromPrimitiveList": ["x"]}},
            400,
            "invalid patch format of primitive list",
            id="delete-from-nowhere",
        ),
        pytest.param(
            {"metadata": {"$setElementOrder": ["x"]}},
            400,
            "invalid patch format of setElementOrder list",
            id="order-of-nothing",
        ),
        pytest.param(
            {"metadata": {"$setElementOrder/finalizers": {"a": "b"}}},
            500,
            "expected a []interface {}, but received a map[string]interface {}",
            id="order-by-a-map",
        ),
        pytest.param(
            containers(
                {"name": "z", "image": "q"},
                **{"$setElementOrder/containers": [{"name": "y"}, {"name": "x"}]},
            ),
            500,
            f"The order in patch list:\n[map[image:q name:z]]\n {ORDERED}",
            id="not-in-order",
        ),
        pytest.param(
            [1],
            400,
            "json: cannot unmarshal array into Go value of type "
            "map[string]interface {}",
            id="list",
        ),
    ],
)
async def test_malformed_strategic_patch_is_rejected(
    http: aiohttp.ClientSession, one: str, content: object, code: int, text: str
) -> None:
    answered, status = await strategic(http, one, content)

    assert (answered, status["message"]) == (code, text)


async def test_strategic_patch_error_shows_patch_like_go(
    http: aiohttp.ClientSession, one: str
) -> None:
    code, status = await strategic(http, one, {"spec": [1, None, {"b": 1, "a": True}]})

    shown = "map[spec:[1 <nil> map[a:true b:1]]]"
    assert code == 422
    assert status["message"].startswith(
        f' "" is invalid: patch: Invalid value: "{shown}": '
    )


async def test_strategic_patch_of_mixed_item_types_is_rejected(
    http: aiohttp.ClientSession, one: str
) -> None:
    code, status = await strategic(http, one, containers("x"))

    assert code == 500
    assert status["message"].startswith("list element types are not identical: [[map[")
    assert status["message"].endswith("] [x]]")


async def test_strategic_patch_of_custom_resource_is_415(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("widgets", WIDGETS_GROUP)
    await make(http, path, widget("a"))

    code, status = await strategic(http, f"{path}/a", {})

    assert code == 415
    assert status["message"] == (
        "the body of the request was in an unknown format - accepted media types "
        "include: application/json-patch+json, application/merge-patch+json, "
        "application/apply-patch+yaml"
    )


async def test_strategic_patch_of_status_merges_conditions(
    http: aiohttp.ClientSession, one: str
) -> None:
    first = {"type": "Available", "status": "True"}
    second = {"type": "Progressing", "status": "True"}

    for condition in (first, second):
        content = {"status": {"conditions": [condition]}}
        code, _ = await strategic(http, f"{one}/status", content)
        assert code == 200

    new = await change(http, one, {})
    found = {it["type"] for it in new["status"]["conditions"]}
    assert found == {"Available", "Progressing"}
