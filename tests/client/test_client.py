"""Requests and results of the verbs of a client."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import msgspec
import orjson
import pydantic
import pytest
from canned import CannedServer
from conftest import pod
from each_case import each_case
from kubernetes_asyncio.client import V1ObjectMeta, V1Pod

from aioinformer.client import Client, ListWatch
from aioinformer.errors import (
    AlreadyExists,
    DecodeError,
    NotFound,
    OptionsError,
    SelectorSyntaxError,
)
from aioinformer.model import KubeObject
from aioinformer.model.resource import Resource
from aioinformer.model.resources import (
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    NODES,
    PODS,
    SECRETS,
)
from aioinformer.testing import APIServer, FakeListerWatcher

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

POD = pod("a", "x")
STATUS = {"apiVersion": "v1", "kind": "Status", "status": "Success"}


@pytest.fixture
async def server() -> AsyncIterator[CannedServer]:
    async with CannedServer() as server:
        yield server


# ---------------------------------------------------------------- what is sent


ALL = "/api/v1/namespaces/x/pods"
ONE = f"{ALL}/a"


@pytest.mark.parametrize(
    ("call", "method", "target"),
    [
        pytest.param(
            lambda it: it.get(NODES, "n 1"), "GET", "/api/v1/nodes/n%201", id="get"
        ),
        pytest.param(
            lambda it: it.create(PODS, POD, dry_run=True, field_manager="me"),
            "POST",
            f"{ALL}?dryRun=All&fieldManager=me",
            id="create",
        ),
        pytest.param(
            lambda it: it.create(PODS, {"metadata": {}}, namespace="x"),
            "POST",
            ALL,
            id="create-elsewhere",
        ),
        pytest.param(lambda it: it.update(PODS, POD), "PUT", ONE, id="update"),
        pytest.param(
            lambda it: it.update_status(PODS, POD, field_manager="me"),
            "PUT",
            f"{ONE}/status?fieldManager=me",
            id="update-status",
        ),
        pytest.param(
            lambda it: it.patch(PODS, "a", {}, namespace="x", subresource="resize"),
            "PATCH",
            f"{ONE}/resize",
            id="patch",
        ),
        pytest.param(
            lambda it: it.patch_status(
                PODS, "a", {"status": {}}, namespace="x", dry_run=True
            ),
            "PATCH",
            f"{ONE}/status?dryRun=All",
            id="patch-status",
        ),
        pytest.param(
            lambda it: it.patch(
                PODS,
                "a",
                {},
                namespace="x",
                type="apply",
                field_manager="me",
                force=True,
            ),
            "PATCH",
            f"{ONE}?fieldManager=me&force=true",
            id="apply",
        ),
        pytest.param(
            lambda it: it.delete(PODS, "a", namespace="x"), "DELETE", ONE, id="delete"
        ),
        pytest.param(
            lambda it: it.delete_collection(
                PODS, namespace="x", label_selector="app=web", field_selector="a.b=c"
            ),
            "DELETE",
            f"{ALL}?labelSelector=app%3Dweb&fieldSelector=a.b%3Dc",
            id="delete-collection",
        ),
    ],
)
async def test_verb_sends_method_and_path(
    server: CannedServer,
    call: Callable[[Client], Coroutine[Any, Any, object]],
    method: str,
    target: str,
) -> None:
    server.json(POD)

    async with Client.from_url(f"{server.url}/prefix") as client:
        await call(client)

    (seen,) = server.seen
    assert (seen.method, seen.target) == (method, f"/prefix{target}")


async def test_patch_of_a_status_without_its_key_is_refused() -> None:
    async with Client.from_url("http://127.0.0.1:1") as client:
        with pytest.raises(OptionsError, match=r'write \{"status": \{...\}\}'):
            await client.patch_status(PODS, "a", {"ready": 3}, namespace="x")


@pytest.mark.parametrize(
    ("kind", "content_type"),
    [
        ("merge", "application/merge-patch+json"),
        ("json", "application/json-patch+json"),
        ("strategic", "application/strategic-merge-patch+json"),
        ("apply", "application/apply-patch+yaml"),
    ],
)
async def test_patch_sends_content_type_of_its_type(
    server: CannedServer, kind: Any, content_type: str
) -> None:
    server.json(POD)
    body: Any = {"kind": "Pod", "apiVersion": "v1", "spec": {}}
    body["metadata"] = {"name": "a", "namespace": "x"}
    if kind == "json":
        body = [{"op": "remove", "path": "/spec"}]

    async with Client.from_url(server.url) as client:
        await client.patch(
            PODS, "a", body, namespace="x", type=kind, field_manager="me"
        )

    assert server.seen[0].headers["Content-Type"] == content_type
    assert orjson.loads(server.seen[0].body) == body


async def test_delete_sends_options_in_body_and_query(server: CannedServer) -> None:
    server.json(STATUS)

    async with Client.from_url(server.url) as client:
        await client.delete(
            PODS,
            "a",
            namespace="x",
            uid="u-1",
            propagation="Foreground",
            grace_seconds=0,
            dry_run=True,
        )

    # Also in the query: a request that lost its body must stay a dry run.
    assert server.seen[0].target == f"{ONE}?dryRun=All"
    assert orjson.loads(server.seen[0].body) == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": "u-1"},
        "propagationPolicy": "Foreground",
        "gracePeriodSeconds": 0,
        "dryRun": ["All"],
    }


class _StructMeta(msgspec.Struct):
    name: str
    namespace: str


class _Struct(msgspec.Struct, rename={"meta": "metadata"}):
    meta: _StructMeta


class _Model(pydantic.BaseModel):
    meta: dict[str, str] = pydantic.Field(alias="metadata")
    spec: str | None = None


META = {"name": "a", "namespace": "x"}
TYPE = {"apiVersion": "v1", "kind": "Pod"}


@pytest.mark.parametrize(
    "body",
    [
        pytest.param({"metadata": META}, id="dict"),
        pytest.param(KubeObject.of({"metadata": META}), id="object"),
        pytest.param(
            {"metadata": KubeObject.of({"metadata": META})["metadata"]}, id="view"
        ),
        pytest.param(_Struct(_StructMeta("a", "x")), id="struct"),
        pytest.param({"metadata": _StructMeta("a", "x")}, id="struct-inside"),
        pytest.param(_Model(metadata=META), id="pydantic"),
        pytest.param(V1Pod(metadata=V1ObjectMeta(**META)), id="kubernetes-asyncio"),
    ],
)
async def test_client_encodes_body_types(server: CannedServer, body: object) -> None:
    server.json(POD)

    async with Client.from_url(server.url) as client:
        await client.create(PODS, body)

    assert orjson.loads(server.seen[0].body) == {**TYPE, "metadata": META}
    assert server.seen[0].headers["Content-Type"] == "application/json"
    assert server.seen[0].target == ALL


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        pytest.param({}, TYPE, id="missing"),
        pytest.param({"kind": None, "apiVersion": ""}, TYPE, id="empty"),
        pytest.param({"kind": "Pod"}, TYPE, id="half"),
        pytest.param({"apiVersion": "v2", "kind": "Cat"}, None, id="others"),
        pytest.param({"apiVersion": 5, "kind": ["x"]}, None, id="nonsense"),
    ],
)
@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda it, body: it.create(PODS, body), id="create"),
        pytest.param(lambda it, body: it.update(PODS, body), id="update"),
        pytest.param(lambda it, body: it.update_status(PODS, body), id="status"),
        pytest.param(
            lambda it, body: it.patch(
                PODS, "a", body, namespace="x", type="apply", field_manager="me"
            ),
            id="apply",
        ),
        pytest.param(
            lambda it, body: it.patch_status(
                PODS, "a", body, namespace="x", type="apply", field_manager="me"
            ),
            id="apply-status",
        ),
    ],
)
async def test_client_fills_in_missing_type_only(
    server: CannedServer,
    call: Callable[[Client, Any], Coroutine[Any, Any, object]],
    given: dict[str, Any],
    sent: dict[str, Any] | None,
) -> None:
    server.json(POD)

    async with Client.from_url(server.url) as client:
        await call(client, {**given, "metadata": META})

    body = orjson.loads(server.seen[0].body)
    assert body == {**(sent or given), "metadata": META}


@pytest.mark.parametrize("kind", ["merge", "strategic", "apply"])
async def test_client_does_not_fill_in_type_of_other_kind(
    server: CannedServer, kind: Any
) -> None:
    server.json(POD)
    where = {"subresource": "scale", "field_manager": "me"} if kind == "apply" else {}

    async with Client.from_url(server.url) as client:
        call = client.patch(PODS, "a", {}, namespace="x", type=kind, **where)  # type: ignore[arg-type]
        await call

    assert server.seen[0].body == b"{}"


async def test_client_does_not_fill_in_unknown_kind(server: CannedServer) -> None:
    server.json(POD)
    widgets = Resource("example.com", "v1", "widgets")

    async with Client.from_url(server.url) as client:
        await client.create(widgets, {"metadata": META})

    sent_body = orjson.loads(server.seen[0].body)
    assert sent_body == {"apiVersion": "example.com/v1", "metadata": META}


@each_case(
    "call, message",
    [
        pytest.param(lambda it: it.get(PODS, "a"), "needs a namespace", id="get"),
        pytest.param(lambda it: it.get(NODES, ""), "must not be empty", id="no-name"),
        pytest.param(
            lambda it: it.get(NODES, "n", namespace="x"), "cluster-scoped", id="scope"
        ),
        pytest.param(
            lambda it: it.create(PODS, {}), "pass a namespace", id="create-nowhere"
        ),
        pytest.param(
            lambda it: it.update(PODS, {}), "needs metadata.name", id="update-what"
        ),
        pytest.param(lambda it: it.create(PODS, "text"), "not str", id="text"),
        pytest.param(
            lambda it: it.create(PODS, {"a": {1, 2}}),
            "not JSON serializable: set",
            id="a-set",
        ),
        pytest.param(
            lambda it: it.create(PODS, {"metadata": []}), "not a Kubernetes", id="shape"
        ),
        pytest.param(
            lambda it: it.patch(NODES, "n", {}, type="xml"),
            "type must be",
            id="patch-type",
        ),
        pytest.param(
            lambda it: it.patch(NODES, "n", {}, type="apply"),
            "field_manager",
            id="apply-anonymously",
        ),
        pytest.param(
            lambda it: it.patch(NODES, "n", {}, force=True), "force", id="force"
        ),
        pytest.param(
            lambda it: it.patch(NODES, "n", [{"op": "test"}]),
            'needs type="json": a merge patch',
            id="list-as-merge-patch",
        ),
        pytest.param(
            lambda it: it.patch(NODES, "n", {"spec": {}}, type="json"),
            'is a list of operations, .* omit type="json"',
            id="dict-as-json-patch",
        ),
        pytest.param(
            lambda it: it.get(PODS, "shop/web"),
            "pass 'web', namespace='shop'",
            id="key-as-name",
        ),
        pytest.param(
            lambda it: it.delete(PODS, KubeObject.of(POD)),
            "pass obj.name and namespace=obj.namespace",
            id="object-as-name",
        ),
        pytest.param(
            lambda it: it.list(PODS, namespace="*"), "omit it", id="all-namespaces"
        ),
        pytest.param(
            lambda it: it.list(PODS, label_selector={"app": "web"}),
            "Write 'app=web'",
            id="labels-as-selector",
        ),
        pytest.param(
            lambda it: it.delete(NODES, "", uid="u"),
            "must not be empty",
            id="delete-all",
        ),
        pytest.param(
            lambda it: it.delete(NODES, "n", propagation="Up"), "'Up'", id="propagation"
        ),
    ],
)
async def test_invalid_arguments_fail_before_request(
    server: CannedServer,
    call: Callable[[Any], Coroutine[Any, Any, object]],
    message: str,
) -> None:
    async with Client.from_url(server.url) as client:
        with pytest.raises(OptionsError, match=message):
            await call(client)

    assert not server.seen


async def test_invalid_selector_fails_before_request(
    server: CannedServer,
) -> None:
    async with Client.from_url(server.url) as client:
        with pytest.raises(SelectorSyntaxError):
            await client.list(PODS, label_selector="app in (")

        with pytest.raises(SelectorSyntaxError):
            await client.delete_collection(PODS, field_selector="metadata.name")

        with pytest.raises(SelectorSyntaxError):
            client.watch(PODS, label_selector="=")

    assert not server.seen


# ---------------------------------------------------------------- what is answered


async def test_verbs_return_kube_objects(server: CannedServer) -> None:
    server.json(POD)

    async with Client.from_url(server.url) as client:
        found = await client.get(PODS, "a", namespace="x")

    assert isinstance(found, KubeObject)
    assert found == POD


async def test_delete_returns_object_that_still_exists(server: CannedServer) -> None:
    server.json(POD)
    server.json(STATUS)

    async with Client.from_url(server.url) as client:
        first = await client.delete(PODS, "a", namespace="x")
        second = await client.delete(PODS, "a", namespace="x")

    assert first is not None
    assert first.key == "x/a"
    assert second is None


async def test_create_of_existing_name_raises_already_exists(
    server: CannedServer,
) -> None:
    server.json({"kind": "Status", "code": 409, "reason": "AlreadyExists"}, 409)

    async with Client.from_url(server.url) as client:
        with pytest.raises(AlreadyExists):
            await client.create(PODS, POD)


async def test_error_does_not_quote_response_that_is_no_object(
    server: CannedServer,
) -> None:
    server.text("s3cr3t", 200, "text/plain")

    async with Client.from_url(server.url) as client:
        with pytest.raises(
            DecodeError, match=r"invalid object for GET /api/v1"
        ) as caught:
            await client.get(SECRETS, "a", namespace="x")

    assert "s3cr3t" not in str(caught.value)


@each_case(
    "call",
    [
        pytest.param(lambda it, given: it.get(given, "a"), id="get"),
        pytest.param(lambda it, given: it.list(given), id="list"),
        pytest.param(lambda it, given: it.create(given, POD), id="create"),
        pytest.param(lambda it, given: it.update(given, POD), id="update"),
        pytest.param(lambda it, given: it.patch(given, "a", {}), id="patch"),
        pytest.param(lambda it, given: it.delete(given, "a"), id="delete"),
    ],
)
@each_case("given", ["pods", ("v1", "pods"), None])
async def test_verbs_reject_argument_that_is_no_resource(call: Any, given: Any) -> None:
    client = Client.from_url("http://127.0.0.1:1")

    with pytest.raises(OptionsError, match="not a Resource: "):
        await call(client, given)


async def test_error_for_swapped_arguments_does_not_quote_the_object() -> None:
    client = Client.from_url("http://127.0.0.1:1")
    secret: Any = {"kind": "Secret", "data": {"key": "c2VzYW0="}}

    with pytest.raises(OptionsError, match="not a Resource: dict") as caught:
        await client.create(secret, SECRETS)

    assert "c2VzYW0=" not in str(caught.value)


async def test_verbs_name_the_resource_for_names() -> None:
    client: Any = Client.from_url("http://127.0.0.1:1")

    with pytest.raises(TypeError, match=r"PODS of aioinformer\.model\.resources"):
        await client.get("v1", "pods", "web", namespace="shop")

    with pytest.raises(TypeError, match="Write label_selector= instead of selector="):
        client.watch(PODS, selector="app=web")


async def test_patch_of_status_without_subresource_names_the_crd() -> None:
    resource = Resource("example.com", "v1", "sites", "Site")
    crd = {
        "metadata": {"name": "sites.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "sites", "kind": "Site"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": {"type": "object"}},
                }
            ],
        },
    }
    async with APIServer() as api, api.client() as client:
        await client.create(CUSTOM_RESOURCE_DEFINITIONS, crd)
        body = {"metadata": {"name": "blog"}}
        await client.create(resource, body, namespace="default")
        status = {"status": {"ready": 1}}
        with pytest.raises(NotFound, match=r"CRD have `subresources: {status: {}}`"):
            await client.patch_status(resource, "blog", status, namespace="default")


async def test_apply_patch_fills_in_name_and_namespace() -> None:
    async with APIServer() as api, api.client() as client:
        found = await client.patch(
            CONFIG_MAPS,
            "settings",
            {"data": {"colour": "blue"}},
            namespace="default",
            type="apply",
            field_manager="me",
        )

    assert found.key == "default/settings"
    assert found.at("data.colour") == "blue"


async def test_iteration_of_a_watch_advises_to_enter_it() -> None:
    watch: Any = Client.from_url("http://127.0.0.1:1").watch(PODS)

    with pytest.raises(TypeError, match=r"`async with client.watch\(...\) as stream:`"):
        async for _ in watch:
            pass


def test_context_managers_are_shown_as_such() -> None:
    methods = (Client.stream, Client.watch, ListWatch.list, ListWatch.watch)
    for method in (*methods, FakeListerWatcher.list, FakeListerWatcher.watch):
        shown = inspect.signature(method).return_annotation
        assert shown.startswith("AbstractAsyncContextManager[")
        assert not inspect.isasyncgenfunction(method)


@pytest.mark.parametrize("namespace", [4, ["shop"]])
async def test_namespace_that_is_no_text_is_refused(namespace: Any) -> None:
    client = Client.from_url("http://127.0.0.1:1")

    with pytest.raises(OptionsError, match="names for pods must be strings, not"):
        await client.list(PODS, namespace=namespace)


def test_url_that_is_no_text_is_refused() -> None:
    url: Any = None

    with pytest.raises(OptionsError, match=r"must be a URL like .*, not None"):
        Client.from_url(url)


@pytest.mark.parametrize("source", ["https://example.com", None, {}])
def test_client_of_no_configuration_names_its_constructors(source: Any) -> None:
    with pytest.raises(OptionsError, match=r"use Client\.from_env\(\)"):
        Client(source)


@pytest.mark.parametrize("verb", ["list_pages", "watch"])
def test_list_and_watch_reject_argument_that_is_no_resource(verb: str) -> None:
    client = Client.from_url("http://127.0.0.1:1")

    with pytest.raises(OptionsError, match="not a Resource: 'pods'"):
        getattr(client, verb)("pods")
