"""`ListWatch.from_kubernetes_asyncio`: requests through clients of that library."""

from __future__ import annotations

import asyncio
import functools
import inspect
import re
from importlib import import_module
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from canned import CannedServer, Stream, list_body
from conftest import pod
from each_case import each_case
from kubernetes_asyncio.client import ApiClient, Configuration, CoreV1Api
from kubernetes_asyncio_helpers import LIBRARIES, listing, read

from aioinformer import SharedInformer
from aioinformer.client import ListWatch
from aioinformer.errors import OptionsError, SelectorSyntaxError, Unauthorized
from aioinformer.model.resource import Resource
from aioinformer.model.resources import DEPLOYMENTS, NAMESPACES, NODES, PODS
from aioinformer.testing import APIServer, faults
from aioinformer.watch import ListOptions, WatchOptions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioinformer_apiserver.faults import Fault


@pytest.fixture
async def server() -> AsyncIterator[APIServer]:
    async with APIServer(auto_namespaces=True) as server:
        yield server


@pytest.fixture
async def canned() -> AsyncIterator[CannedServer]:
    async with CannedServer() as server:
        yield server


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest) -> Any:
    return import_module(f"{request.param}.client")


def create(server: APIServer, name: str) -> None:
    body = pod(name, "shop")
    del body["metadata"]["resourceVersion"]
    server.create(PODS, body)


async def until(informer: SharedInformer, names: str) -> None:
    while "".join(sorted(it.name for it in informer.store.list())) != names:
        await asyncio.sleep(0.1)


# ---------------------------------------------------------------- an informer


async def test_informer_follows_generated_list_function(server: APIServer) -> None:
    create(server, "a")

    async with ApiClient(Configuration(host=server.url)) as api:
        core_v1 = CoreV1Api(api)
        informer = SharedInformer(
            ListWatch.from_kubernetes_asyncio(
                core_v1.list_namespaced_pod, namespace="shop"
            )
        )
        async with asyncio.TaskGroup() as group:
            running = group.create_task(informer.run())
            await informer.wait_synced(timeout=10)
            assert informer.store.list_keys() == ["shop/a"]

            create(server, "b")
            await until(informer, "ab")
            running.cancel()


TROUBLES: dict[str, list[Fault]] = {
    "cut": [faults.Cut(after_bytes=0)],
    "reset": [faults.Cut(after_bytes=0, reset=True)],
    "cut-before-the-head": [faults.Cut(head=False)],
    "cut-in-a-line": [faults.Cut(after_bytes=100)],
    "410": [faults.Gone()],
    "410-later": [faults.Gone(after_events=1)],
    "403": [faults.Refuse(status=403, verb="list")],
    "401": [faults.Refuse(status=401, verb="watch")],
    "500-and-cut": [faults.Refuse(status=500), faults.Cut(after_bytes=0)],
    "web-page": [faults.Page(verb="list")],
}
# The libraries differ only in how they report refusals and broken connections.
OF_BOTH = ["cut-in-a-line", "401", "500-and-cut"]


@pytest.mark.parametrize(
    ("library", "trouble"),
    [
        *((LIBRARIES[0], trouble) for trouble in TROUBLES),
        *((LIBRARIES[1], trouble) for trouble in OF_BOTH),
    ],
    indirect=["library"],
)
async def test_informer_of_generated_function_recovers_from_fault(
    server: APIServer, library: Any, trouble: str
) -> None:
    create(server, "a")
    server.faults.add(*TROUBLES[trouble])

    async with listing(server.url, library) as source:
        informer = SharedInformer(source)
        running = asyncio.create_task(informer.run())
        await informer.wait_synced(timeout=60, fail_fast=False)
        for name in "bcd":
            create(server, name)
            await asyncio.sleep(5)

        async with asyncio.timeout(120):
            await until(informer, "abcd")

        running.cancel()
        await asyncio.wait({running})

    server.faults.check()


# ---------------------------------------------------------------- requests


async def test_generated_function_sends_same_requests_as_list_watch(
    server: APIServer, library: Any
) -> None:
    options = ListOptions(resource_version="0", limit=5)

    async with listing(server.url, library) as source:
        async with source.list(options) as page:
            assert [it async for it in page] == []

        async with source.watch(
            WatchOptions(send_initial_events=True, timeout_seconds=9)
        ):
            pass

    assert [it.query for it in server.requests] == [
        {"limit": "5", "resourceVersion": "0"},
        {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "sendInitialEvents": "true",
            "resourceVersionMatch": "NotOlderThan",
            "timeoutSeconds": "9",
        },
    ]


async def test_generated_function_streams_custom_objects(
    canned: CannedServer, library: Any
) -> None:
    Stream(canned).end()
    async with library.ApiClient(library.Configuration(host=canned.url)) as api:
        source = ListWatch.from_kubernetes_asyncio(
            library.CustomObjectsApi(api).list_namespaced_custom_object,
            group="example.com",
            version="v1",
            namespace="shop",
            plural="widgets",
            label_selector="app in (a)",
        )
        async with source.watch(WatchOptions(send_initial_events=True)):
            pass

    (seen,) = canned.seen
    target = urlsplit(seen.target)
    assert target.path == "/apis/example.com/v1/namespaces/shop/widgets"
    query = dict(parse_qsl(target.query))
    assert (query["sendInitialEvents"], query["labelSelector"]) == (
        "true",
        "app in (a)",
    )


async def test_generated_function_requests_uncompressed_json(
    canned: CannedServer, library: Any
) -> None:
    canned.text(list_body("a").decode(), 200, "application/json")

    async with listing(canned.url, library) as source:
        assert await read(source) == ["a"]

    headers = canned.seen[0].headers
    assert headers["Accept"] == "application/json"
    assert headers["Accept-Encoding"] == "identity"


async def test_generated_function_sends_given_headers(canned: CannedServer) -> None:
    canned.text(list_body("a").decode(), 200, "application/json")

    async with ApiClient(Configuration(host=canned.url)) as api:
        source = ListWatch.from_kubernetes_asyncio(
            CoreV1Api(api).list_node, _headers={"X-Given": "yes"}
        )
        async with source.list(ListOptions()):
            pass

    assert canned.seen[0].headers["X-Given"] == "yes"


async def test_generated_function_sends_user_agent(library: Any) -> None:
    async with APIServer(token="right") as server:
        async with listing(server.url, library, token="right") as source:
            assert await read(source) == []
            assert await source.is_served()

        async with listing(server.url, library, token="wrong") as source:
            with pytest.raises(Unauthorized):
                await read(source)


async def test_refresh_hook_is_called_before_each_request(library: Any) -> None:
    async with APIServer(token="new") as server:

        async def refresh(configuration: Any) -> None:
            configuration.api_key["BearerToken"] = "new"

        async with listing(
            server.url, library, token="old", refresh_api_key_hook=refresh
        ) as source:
            assert await read(source) == []


FOOS = Resource("example.com", "v1", "foos")


NOWHERE = "http://127.0.0.1:1"


SHOP: dict[str, Any] = {"namespace": "shop"}


FOO = {"group": "example.com", "version": "v1"}


@pytest.fixture(params=["kubernetes_asyncio", "kubernetes.aio"])
async def k(request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    """Return the client module of a library, with `api` as its unconnected client."""
    module = import_module(f"{request.param}.client")
    async with module.ApiClient(module.Configuration(host=NOWHERE)) as api:
        yield functools.partial(_group, module, api)


def _group(module: Any, api: Any, name: str) -> Any:
    return getattr(module, name)(api)


@each_case(
    "group, name, kwargs, resource, shown",
    [
        pytest.param(
            "CoreV1Api",
            "list_namespaced_pod",
            {**SHOP, "label_selector": "app=web", "field_selector": "a!=b"},
            PODS,
            "/api/v1/namespaces/shop/pods 'app=web' 'a!=b'",
            id="namespaced",
        ),
        pytest.param(
            "CoreV1Api",
            "list_pod_for_all_namespaces",
            {},
            PODS,
            "/api/v1/pods",
            id="all-namespaces",
        ),
        pytest.param(
            "CoreV1Api", "list_node", {}, NODES, "/api/v1/nodes", id="cluster-scoped"
        ),
        pytest.param(
            "CoreV1Api",
            "list_namespace",
            {},
            NAMESPACES,
            "/api/v1/namespaces",
            id="namespaces-themselves",
        ),
        pytest.param(
            "AppsV1Api",
            "list_namespaced_deployment",
            SHOP,
            DEPLOYMENTS,
            "/apis/apps/v1/namespaces/shop/deployments",
            id="another-group",
        ),
        pytest.param(
            "CustomObjectsApi",
            "list_namespaced_custom_object",
            {**FOO, **SHOP, "plural": "foos"},
            FOOS,
            "/apis/example.com/v1/namespaces/shop/foos",
            id="custom",
        ),
        pytest.param(
            "CustomObjectsApi",
            "list_cluster_custom_object",
            {**FOO, "plural": "foos"},
            FOOS,
            "/apis/example.com/v1/foos",
            id="custom-in-the-cluster",
        ),
        pytest.param(
            "CustomObjectsApi",
            "list_custom_object_for_all_namespaces",
            {**FOO, "resource_plural": "foos"},
            FOOS,
            "/apis/example.com/v1/foos",
            id="custom-all-namespaces",
        ),
    ],
)
async def test_resource_is_derived_from_path_of_list_function(
    k: Any,
    group: str,
    name: str,
    kwargs: dict[str, Any],
    resource: Resource,
    shown: str,
) -> None:
    source = ListWatch.from_kubernetes_asyncio(getattr(k(group), name), **kwargs)

    assert source.resource == resource
    assert repr(source) == f"<ListWatch {shown}>"


async def test_partial_list_function_is_accepted(k: Any) -> None:
    listed = functools.partial(k("CoreV1Api").list_namespaced_pod, "shop")

    source = ListWatch.from_kubernetes_asyncio(listed, label_selector="app")

    assert repr(source) == "<ListWatch /api/v1/namespaces/shop/pods 'app'>"


async def test_given_resource_takes_precedence_over_path(k: Any) -> None:
    foos = Resource("example.com", "v1", "foos", "Foo", namespaced=False)
    listed = k("CustomObjectsApi").list_cluster_custom_object

    source = ListWatch.from_kubernetes_asyncio(
        listed, resource=foos, **FOO, plural="foos"
    )

    assert source.resource is foos


async def test_argument_that_would_change_path_is_rejected() -> None:
    module = import_module("kubernetes_asyncio.client")
    async with module.ApiClient(module.Configuration(host=NOWHERE)) as api:
        listed = module.CoreV1Api(api).list_namespaced_pod
        with pytest.raises(OptionsError, match="invalid path segment"):
            ListWatch.from_kubernetes_asyncio(listed, namespace="../kube-system")


@each_case(
    "name, kwargs, message",
    [
        ("list_namespaced_pod", {}, "cannot be called"),
        ("list_namespaced_pod", {**SHOP, "bogus": 1}, "cannot be called"),
        ("list_namespaced_pod", {**SHOP, "limit": 5}, "limit must not be passed"),
        ("list_namespaced_pod", {**SHOP, "watch": True}, "watch must not be passed"),
        ("list_namespaced_pod", {**SHOP, "pretty": "true"}, "pretty must not be"),
        (
            "list_namespaced_pod",
            {**SHOP, "resource_version": "5", "_continue": "x"},
            "continue, resourceVersion must not be passed",
        ),
        ("list_namespaced_pod", {**SHOP, "_request_timeout": 5}, "_request_timeout"),
        ("read_namespaced_pod", {**SHOP, "name": "a"}, "is not a list function"),
        ("read_namespace", {"name": "a"}, "is not a list function"),
        ("delete_collection_namespaced_pod", SHOP, "is not a list function"),
    ],
)
async def test_unusable_arguments_of_list_function_are_rejected(
    k: Any, name: str, kwargs: dict[str, Any], message: str
) -> None:
    with pytest.raises(OptionsError, match=message):
        ListWatch.from_kubernetes_asyncio(getattr(k("CoreV1Api"), name), **kwargs)


async def test_invalid_selector_of_list_function_is_rejected(k: Any) -> None:
    listed = k("CoreV1Api").list_pod_for_all_namespaces

    with pytest.raises(SelectorSyntaxError):
        ListWatch.from_kubernetes_asyncio(listed, label_selector="a in b")


@pytest.mark.parametrize("function", [print, len, lambda: None])
def test_function_that_is_not_generated_is_rejected(function: Any) -> None:
    with pytest.raises(OptionsError, match=r"core_v1\.list_namespaced_pod"):
        ListWatch.from_kubernetes_asyncio(function)


def test_blocking_client_is_rejected() -> None:
    module = import_module("kubernetes.client")
    listed = module.CoreV1Api(module.ApiClient()).list_node

    with pytest.raises(OptionsError, match="a blocking client"):
        ListWatch.from_kubernetes_asyncio(listed)


async def test_every_list_function_of_library_is_supported() -> None:
    """Each leads to a resource with a kind, and with the right scope."""
    module = import_module("kubernetes_asyncio.client")
    found: dict[Resource, set[str]] = {}
    groups: list[Any] = [it for name, it in vars(module).items() if name[-3:] == "Api"]
    async with module.ApiClient(module.Configuration(host=NOWHERE)) as api:
        for group in groups:
            for name, _ in inspect.getmembers(group, inspect.isfunction):
                if not re.fullmatch(
                    r"list_(?!.*custom_object)\w+(?<!_with_http_info)", name
                ):
                    continue

                kwargs = SHOP if name.startswith("list_namespaced_") else {}
                listed = getattr(group(api), name)
                source = ListWatch.from_kubernetes_asyncio(listed, **kwargs)
                found.setdefault(source.resource, set()).add(name)

    assert len(found) > 60
    for resource, names in found.items():
        assert resource.kind.lower() in resource.plural.replace("ies", "y"), resource
        every = any(name.endswith("_for_all_namespaces") for name in names)
        assert resource.namespaced is every, resource
