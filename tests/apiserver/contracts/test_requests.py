"""Paths, methods and query parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from api_calls import WIDGETS_GROUP, ask, make, named, names, widget
from each_case import each_case
from yarl import URL

from aioinformer.model.resources import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    EVENTS,
    JOBS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    REPLICA_SETS,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
)

if TYPE_CHECKING:
    import aiohttp
    from contract_servers import ServerUnderTest

    from aioinformer.model.resource import Resource

NO_SUCH_PATH = {
    "kind": "Status",
    "apiVersion": "v1",
    "metadata": {},
    "status": "Failure",
    "message": "the server could not find the requested resource",
    "reason": "NotFound",
    "details": {},
    "code": 404,
}


@each_case(
    "path",
    [
        "/api/v1/unheard-of",
        "/api/v2/pods",
        "/apis/apps/v2/deployments",
        "/apis/apps/v1/unheard-of",
        "/api/v1/namespaces/default/nodes",
        "/api/v1/pods/web",
        "/api/v1/namespaces/default/configmaps/x/status",
        "/api/v1/namespaces/default/configmaps/x/y/z",
        "/api/v1/namespaces/default/pods/x/status/y",
        "/api/v1/namespaces/default//configmaps",
        "/api/v1/namespaces/default/configmaps//x",
        "/api/v1/namespaces/default/configmaps/x%2Fy",
    ],
)
async def test_resource_in_wrong_scope_is_404(
    http: aiohttp.ClientSession, path: str
) -> None:
    async with http.get(URL(path, encoded=True)) as answer:
        found = await answer.json()

    assert (answer.status, found) == (404, NO_SUCH_PATH)


@each_case(
    "path",
    [
        "/unheard-of",
        "/API/v1/configmaps",
        "/apis/unheard.of/v1/x",
        "/apis/example.com/v1/unheard-of",
        "/apis/example.com/v9/widgets",
        "/livez/",
    ],
)
async def test_unknown_api_path_is_404_page(
    http: aiohttp.ClientSession, path: str
) -> None:
    """On a real server another handler answers, which sends no Status."""
    async with http.get(path) as answer:
        assert (answer.status, answer.content_type) == (404, "text/plain")
        assert await answer.text() == "404 page not found\n"


@each_case(
    "method, path",
    [
        ("POST", "/api/v1/configmaps"),
        ("DELETE", "/api/v1/configmaps"),
        ("PUT", "/api/v1/namespaces/default/configmaps"),
        ("PATCH", "/api/v1/namespaces/default/configmaps"),
        ("POST", "/api/v1/namespaces/default/configmaps/x"),
        ("OPTIONS", "/api/v1/namespaces/default/configmaps"),
        ("OPTIONS", "/api/v1/namespaces/default/configmaps/x"),
        ("DELETE", "/api/v1/namespaces/default/pods/x/status"),
        ("POST", "/api/v1"),
        ("DELETE", "/version"),
        ("DELETE", "/api"),
    ],
)
async def test_unsupported_method_is_405(
    http: aiohttp.ClientSession, method: str, path: str
) -> None:
    code, status = await ask(http, method, path)

    assert (code, status) == (
        405,
        {
            **NO_SUCH_PATH,
            "message": "the server does not allow this method on the requested resource",
            "reason": "MethodNotAllowed",
            "code": 405,
        },
    )


@pytest.mark.parametrize("name", ["", "/a", "/none"])
async def test_head_of_object_is_405(
    target: ServerUnderTest, http: aiohttp.ClientSession, name: str
) -> None:
    await make(http, target.path("configmaps"), named("a"))

    async with http.head(target.path("configmaps") + name) as answer:
        assert answer.status == 405


async def test_trailing_slash_is_accepted(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")
    await make(http, path, named("a"))

    _, found = await ask(http, "GET", f"{path}/")
    code, _ = await ask(http, "GET", f"{path}/a/")

    assert (names(found), code) == (["a"], 200)


@pytest.mark.parametrize("name", ["a%2Db", "%61-b", "a-b%2F"])
async def test_paths_are_percent_decoded(
    target: ServerUnderTest, http: aiohttp.ClientSession, name: str
) -> None:
    path = target.path("configmaps")
    await make(http, path, named("a-b"))

    for decoded in (f"{path}/{name}", f"{path}/a-b".replace("config", "c%6Fnfig")):
        async with http.get(URL(decoded, encoded=True)) as answer:
            found = await answer.json()

        assert (answer.status, found["metadata"]["name"]) == (200, "a-b")


@each_case("name, shown", [("a%20b", "a b"), ("%C3%A9", "é"), ("a%22", 'a\\"')])
async def test_impossible_name_is_404(
    target: ServerUnderTest, http: aiohttp.ClientSession, name: str, shown: str
) -> None:
    path = target.path("configmaps")

    async with http.get(URL(f"{path}/{name}", encoded=True)) as answer:
        status = await answer.json()

    assert (answer.status, status["reason"]) == (404, "NotFound")
    assert status["message"] == f'configmaps "{shown}" not found'
    assert status["details"]["kind"] == "configmaps"


@each_case(
    "name, shown, why",
    [
        ("%2E", ".", "may not be '.'"),
        ("%2E%2E", "..", "may not be '..'"),
        ("%25", "%", "may not contain '%'"),
    ],
)
async def test_invalid_path_segment_name_is_400(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    name: str,
    shown: str,
    why: str,
) -> None:
    path = target.path("configmaps")

    async with http.get(URL(f"{path}/{name}", encoded=True)) as answer:
        status = await answer.json()

    assert (answer.status, status["reason"]) == (400, "BadRequest")
    assert status["message"] == f'Name parameter invalid: "{shown}": {why}'


async def test_unknown_parameters_are_ignored(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")
    await make(http, path, named("a"))

    _, found = await ask(http, "GET", path, unheard="of", includeUninitialized="true")
    code, _ = await ask(http, "GET", f"{path}/a", limit="x", watch="1")

    assert (names(found), code) == (["a"], 200)


async def test_first_value_of_repeated_parameter_is_used(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")
    for name in ("a", "b"):
        await make(http, path, named(name))

    async with http.get(URL(f"{path}?limit=1&limit=2", encoded=True)) as answer:
        assert names(await answer.json()) == ["a"]


async def test_malformed_parameters_are_ignored(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")

    for query in ("limit=%ZZ", "limit=x;y"):
        async with http.get(URL(f"{path}?{query}", encoded=True)) as answer:
            assert answer.status == 200


async def test_empty_namespace_is_all_namespaces(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    await make(http, target.path("configmaps"), named(target.namespace))

    async with http.get(URL("/api/v1/namespaces//configmaps", encoded=True)) as answer:
        assert target.namespace in names(await answer.json())


async def test_kinds_have_separate_names(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    await make(http, target.path("configmaps"), named("a"))
    await make(http, target.path("secrets"), named("a"))
    await make(http, target.path("widgets", WIDGETS_GROUP), widget("a"))

    kinds = [
        (await ask(http, "GET", f"{path}/a"))[1]["kind"]
        for path in (
            target.path("configmaps"),
            target.path("secrets"),
            target.path("widgets", WIDGETS_GROUP),
        )
    ]

    assert kinds == ["ConfigMap", "Secret", "Widget"]


@each_case(
    "resource",
    [
        PODS,
        CONFIG_MAPS,
        NAMESPACES,
        SECRETS,
        EVENTS,
        NODES,
        SERVICES,
        SERVICE_ACCOUNTS,
        DEPLOYMENTS,
        REPLICA_SETS,
        JOBS,
        LEASES,
    ],
)
async def test_builtin_kinds_are_served(
    http: aiohttp.ClientSession, resource: Resource
) -> None:
    code, found = await ask(http, "GET", resource.path())

    assert (code, found["kind"]) == (200, f"{resource.kind}List")


@each_case("path", ["/livez", "/readyz", "/healthz"])
async def test_health_endpoints_return_ok(
    http: aiohttp.ClientSession, path: str
) -> None:
    async with http.get(path) as answer:
        assert (answer.status, await answer.text()) == (200, "ok")
