"""`validating`, `mutating` and `conversion`, called without a server."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import msgspec
import pydantic
import pytest

from aioinformer import KubeObject, Resource
from aioinformer.errors import OptionsError
from aioinformer.model.resources import NODES, PODS
from aioinformer.webhooks import (
    AdmissionHook,
    AdmissionRequest,
    Denied,
    conversion,
    mutating,
    validating,
)

SITES = Resource("example.com", "v1", "sites", "Site")


class SiteSpec(msgspec.Struct):
    image: str
    replicas: int = 1


class Site(msgspec.Struct):
    spec: SiteSpec


class PydanticSpec(pydantic.BaseModel):
    image: str
    replicas: int = 1


class PydanticSite(pydantic.BaseModel):
    spec: PydanticSpec


def site(image: str = "blog:1", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "example.com/v1",
        "kind": "Site",
        "metadata": {"name": "blog", "namespace": "shop"},
        "spec": {"image": image, **spec},
    }


# ------------------------------------------------------------ validating


async def test_validating_function_allows_by_returning() -> None:
    @validating(SITES)
    async def check(obj: KubeObject) -> None:
        assert obj.key == "shop/blog"

    answer = await check.review(site())

    assert answer.allowed
    assert (answer.code, answer.message, answer.patch) == (200, "", ())
    assert answer.object == site()


@pytest.mark.parametrize(
    ("returned", "warnings"),
    [(None, ()), ("", ()), ("old", ("old",)), (["a", "b"], ("a", "b"))],
)
async def test_validating_function_returns_warnings(
    returned: Any, warnings: tuple[str, ...]
) -> None:
    @validating(SITES)
    async def check(obj: KubeObject) -> Any:
        return returned

    assert (await check.review(site())).warnings == warnings


@pytest.mark.parametrize("returned", [True, False, {"allowed": False}, [1]])
async def test_validating_function_that_returns_a_verdict_fails(returned: Any) -> None:
    @validating(SITES)
    async def check(obj: KubeObject) -> Any:
        return returned

    with pytest.raises(TypeError, match="raise Denied to refuse"):
        await check.review(site())


async def test_denied_refuses_with_code_and_causes() -> None:
    @validating(SITES)
    async def check(obj: KubeObject) -> None:
        match obj.at("spec.image"):
            case "field":
                raise Denied("bad image", field="spec.image")
            case "causes":
                raise Denied("bad", causes={"spec.a": "one", "spec.b": "two"}, code=409)
            case _:
                raise Denied("no")

    plain = await check.review(site())
    field = await check.review(site("field"))
    causes = await check.review(site("causes"))

    assert (plain.allowed, plain.code, plain.message) == (False, 403, "no")
    assert plain.status()["reason"] == "Forbidden"
    assert (field.code, field.causes) == (422, {"spec.image": "bad image"})
    assert (causes.code, causes.status()["reason"]) == (409, "Conflict")
    assert [it["field"] for it in causes.status()["details"]["causes"]] == [
        "spec.a",
        "spec.b",
    ]


@pytest.mark.parametrize("code", [200, 399, 500])
def test_denied_rejects_codes_that_are_no_refusal(code: int) -> None:
    with pytest.raises(OptionsError, match="400 to 499"):
        Denied("no", code=code)


def test_denied_needs_a_message() -> None:
    with pytest.raises(OptionsError, match="message"):
        Denied("")


@pytest.mark.parametrize("model", [Site, PydanticSite])
async def test_typed_function_takes_the_model_and_refuses_what_does_not_fit(
    model: Any,
) -> None:
    seen = []

    @validating(SITES, into=model)
    async def check(obj: Any) -> None:
        seen.append((type(obj), obj.spec.image, obj.spec.replicas))

    assert (await check.review(site())).allowed
    assert seen == [(model, "blog:1", 1)]

    answer = await check.review(site(replicas="tulip"))

    assert (answer.allowed, answer.code) == (False, 422)
    assert "spec.replicas" in answer.message
    assert "tulip" not in answer.message


async def test_request_tells_about_the_write() -> None:
    seen: list[AdmissionRequest] = []

    @validating(SITES, operations=("CREATE", "UPDATE", "DELETE"), subresource="status")
    async def check(obj: KubeObject, request: AdmissionRequest) -> None:
        assert obj is request.subject
        seen.append(request)

    await check.review(site(), user="alice", groups=["devs"], dry_run=True)
    await check.review(site("blog:2"), site("blog:1"))
    await check.review(None, site("blog:2"))
    create, update, delete = seen

    assert (create.operation, create.name, create.namespace) == (
        "CREATE",
        "blog",
        "shop",
    )
    assert (create.user, create.groups, create.dry_run) == ("alice", ("devs",), True)
    assert (create.resource, create.subresource) == (SITES, "status")
    assert create.old_object is None
    assert update.operation == "UPDATE"
    assert update.old_object is not None
    assert update.old_object.at("spec.image") == "blog:1"
    assert (delete.operation, delete.object) == ("DELETE", None)
    assert delete.subject.at("spec.image") == "blog:2"
    assert repr(delete) == "<AdmissionRequest DELETE sites.example.com 'shop/blog'>"


async def test_review_adds_the_namespace_that_objects_have_in_a_cluster() -> None:
    @validating(SITES)
    def tell(site: KubeObject, request: AdmissionRequest) -> list[str]:
        old = request.old_object
        assert old is not None
        return [site.key, old.key, request.namespace, site["metadata"]["namespace"]]

    given = {"metadata": {"name": "blog"}}
    assert (await tell.review(given, given)).warnings == (
        "default/blog",
        "default/blog",
        "default",
        "default",
    )

    @validating(Resource("example.com", "v1", "zones", "Zone", namespaced=False))
    def tell_zone(zone: KubeObject) -> str:
        return zone.key

    assert (await tell_zone.review(given)).warnings == ("blog",)


async def test_review_refuses_operations_that_are_not_registered() -> None:
    @validating(SITES)
    async def check(obj: KubeObject) -> None: ...

    with pytest.raises(OptionsError, match="CREATE, UPDATE, not for DELETE"):
        await check.review(None, site())

    with pytest.raises(OptionsError, match="needs an object"):
        await check.review()


@pytest.mark.realtime
@pytest.mark.looptime(False)
async def test_plain_function_runs_in_a_thread() -> None:
    threads = []

    @validating(SITES)
    def check(obj: KubeObject) -> str:
        threads.append(threading.current_thread())
        return "checked"

    answer = await check.review(site())

    assert answer.warnings == ("checked",)
    assert threads != [threading.main_thread()]


@pytest.mark.realtime
@pytest.mark.looptime(False)
async def test_error_of_a_plain_function_is_raised_by_review() -> None:
    @validating(SITES)
    def check(obj: KubeObject) -> None:
        raise KeyError("odd")

    with pytest.raises(KeyError, match="odd"):
        await check.review(site())


# ------------------------------------------------------------ mutating


async def test_mutating_function_changes_the_dict_in_place() -> None:
    @mutating(SITES)
    async def fill(obj: dict[str, Any]) -> None:
        obj["spec"].setdefault("replicas", 2)
        obj["metadata"]["labels"] = {"example.com/a~b": "c"}

    given = site()
    answer = await fill.review(given)

    assert answer.object is not None
    assert answer.object["spec"] == {"image": "blog:1", "replicas": 2}
    assert answer.patch == [
        {
            "op": "add",
            "path": "/metadata/labels",
            "value": {"example.com/a~b": "c"},
        },
        {"op": "add", "path": "/spec/replicas", "value": 2},
    ]
    assert given == site()
    assert (await fill.review(answer.object)).patch == []


async def test_mutating_function_returns_another_object() -> None:
    @mutating(SITES)
    async def fill(obj: dict[str, Any]) -> dict[str, Any]:
        return {**obj, "spec": {"image": "blog:2"}}

    @mutating(SITES, into=KubeObject)
    async def label(obj: KubeObject) -> dict[str, Any]:
        return {**obj.to_dict(), "data": 1}

    assert (await fill.review(site())).patch == [
        {"op": "replace", "path": "/spec/image", "value": "blog:2"}
    ]
    assert (await label.review(site())).patch == [
        {"op": "add", "path": "/data", "value": 1}
    ]


@pytest.mark.parametrize("model", [Site, PydanticSite])
async def test_typed_function_changes_only_what_it_changes(model: Any) -> None:
    @mutating(SITES, into=model)
    async def fill(obj: Any) -> None:
        obj.spec.image += ".1"

    answer = await fill.review(site(unknown={"a": 1}))

    assert answer.patch == [
        {"op": "replace", "path": "/spec/image", "value": "blog:1.1"}
    ]

    @mutating(SITES, into=model)
    async def scale(obj: Any) -> Any:
        obj.spec.replicas = 3
        return obj

    assert (await scale.review(site())).patch == [
        {"op": "add", "path": "/spec/replicas", "value": 3}
    ]


async def test_mutating_function_may_refuse_and_warn() -> None:
    @mutating(SITES)
    async def fill(obj: dict[str, Any], request: AdmissionRequest) -> None:
        request.warnings.append("soon")
        obj["spec"] = {}
        raise Denied("no")

    answer = await fill.review(site())

    assert (answer.allowed, answer.warnings, answer.patch) == (False, ("soon",), ())
    assert answer.object == site()


async def test_mutating_function_that_returns_no_object_fails() -> None:
    @mutating(SITES)
    async def fill(obj: dict[str, Any]) -> Any:
        return ["a warning"]

    with pytest.raises(TypeError, match="returned list, not the object"):
        await fill.review(site())


def test_mutating_refuses_deletions() -> None:
    with pytest.raises(OptionsError, match="deleted"):
        mutating(SITES, operations=["DELETE"])(anything)


# ------------------------------------------------------------ options


async def anything(obj: object) -> None: ...


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"operations": ["PATCH"]}, "operations must be of"),
        ({"operations": []}, "operations must be of"),
        ({"failure_policy": "ignore"}, "failure_policy must be Fail or Ignore"),
        ({"match_policy": "Some"}, "match_policy must be"),
        ({"side_effects": "Some"}, "side_effects must be"),
        ({"timeout": 0}, "timeout must be 1 to 30"),
        ({"timeout": 31}, "timeout must be 1 to 30"),
        ({"timeout": 2.5}, "whole seconds"),
        ({"name": "No Name"}, "invalid name"),
        ({"name": "a.b"}, "invalid name"),
        (
            {"namespace_selector": "a=b"},
            "namespace_selector 'a=b': a selector is a dict",
        ),
        ({"namespace_selector": {"a": "b"}}, "namespace_selector .*has no field 'a'"),
        ({"object_selector": {"matchLabels": "a"}}, "invalid object_selector"),
        ({"match_conditions": ["true"]}, "must be CEL expressions by name"),
        ({"match_conditions": {"a": True}}, "must be CEL expressions by name"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], match: str) -> None:
    with pytest.raises(OptionsError, match=match):
        validating(SITES, **options)(anything)


@pytest.mark.parametrize(
    "function", [None, Site, lambda: None, lambda a, b, c: None, lambda *, a: None]
)
def test_functions_that_cannot_be_called_are_refused(function: Any) -> None:
    with pytest.raises(OptionsError, match="a webhook must be"):
        validating(SITES)(function)


def test_generator_functions_are_refused() -> None:
    def check(obj: KubeObject) -> Any:
        yield "a warning"

    with pytest.raises(OptionsError, match="generator"):
        validating(SITES)(check)


def test_decorator_needs_a_resource() -> None:
    for decorate in (validating, mutating):
        for resource in ("sites", anything):
            with pytest.raises(OptionsError, match="needs the Resource"):
                decorate(resource)  # type: ignore[arg-type]


def test_names_are_made_of_function_and_resource() -> None:
    def named(resource: Resource, **options: Any) -> AdmissionHook:
        return validating(resource, **options)(anything)

    assert named(SITES).name == "anything.sites.example.com"
    assert named(PODS).name == "anything.pods.core"
    assert named(SITES, name="other_one").name == "other-one.sites.example.com"
    assert named(SITES, name="a.example.org").name == "a.example.org"
    assert named(SITES).path == "/validate/anything.sites.example.com"
    assert mutating(SITES)(anything).path == "/mutate/anything.sites.example.com"


def test_webhooks_of_built_in_resources_leave_out_kube_system() -> None:
    selector = validating(PODS)(anything).namespace_selector

    assert selector is not None
    assert selector["matchExpressions"][0]["values"] == ["kube-system"]
    assert validating(NODES)(anything).namespace_selector is not None
    assert validating(SITES)(anything).namespace_selector is None
    assert validating(PODS, namespace_selector={})(anything).namespace_selector == {}


# ------------------------------------------------------------ conversion


async def test_conversion_keeps_metadata_except_labels_and_annotations() -> None:
    @conversion(SITES, "v1beta1", "v1")
    async def upgrade(obj: dict[str, Any]) -> None:
        obj["spec"]["image"] = obj["spec"].pop("container")
        obj["metadata"] = {"name": "other", "labels": {"a": "b"}, "annotations": {}}

    given = {
        "apiVersion": "example.com/v1beta1",
        "kind": "Site",
        "metadata": {"name": "blog", "uid": "1", "annotations": {"c": "d"}},
        "spec": {"container": "blog:1"},
    }

    assert await upgrade.review(given) == {
        "apiVersion": "example.com/v1",
        "kind": "Site",
        "metadata": {"name": "blog", "uid": "1", "labels": {"a": "b"}},
        "spec": {"image": "blog:1"},
    }


async def test_conversion_of_models_keeps_all_metadata() -> None:
    @conversion(SITES, "v1", "v1beta1", into=Site)
    async def downgrade(obj: Site) -> PydanticSite:
        return PydanticSite(spec=PydanticSpec(image=obj.spec.image, replicas=7))

    converted = await downgrade.review(site())

    assert converted.api_version == "example.com/v1beta1"
    assert converted["metadata"] == site()["metadata"]
    assert converted["spec"] == {"image": "blog:1", "replicas": 7}


class NamedMetadata(msgspec.Struct):
    name: str


class NamedSite(msgspec.Struct):
    metadata: NamedMetadata
    spec: SiteSpec


async def test_conversion_keeps_fields_that_the_model_does_not_have() -> None:
    @conversion(SITES, "v1", "v2", into=NamedSite)
    async def in_place(obj: NamedSite) -> None:
        obj.spec.image = "blog:2"

    @conversion(SITES, "v1", "v2", into=NamedSite)
    def another(obj: NamedSite) -> NamedSite:
        return NamedSite(obj.metadata, SiteSpec(image="blog:2"))

    metadata = {"name": "blog", "labels": {"a": "b"}, "annotations": {"c": "d"}}
    given = {
        "apiVersion": "example.com/v1",
        "kind": "Site",
        "metadata": metadata,
        "spec": {"image": "blog:1", "unknown": 1},
        "status": {"ready": True},
    }

    assert await in_place.review(given) == {
        **given,
        "apiVersion": "example.com/v2",
        "spec": {"image": "blog:2", "unknown": 1},
    }
    assert (await another.review(given))["metadata"] == metadata


async def test_conversion_to_another_kind_fails() -> None:
    @conversion(SITES, "v1", "v2")
    async def rename(obj: dict[str, Any]) -> None:
        obj["kind"] = "Page"

    with pytest.raises(TypeError, match="kind"):
        await rename.review(site())


def test_conversion_needs_two_versions() -> None:
    with pytest.raises(OptionsError, match="two versions"):
        conversion(SITES, "v1", "v1")

    with pytest.raises(OptionsError, match="version"):
        conversion(SITES, "example.com/v1", "v2")


async def test_cancelled_review_cancels_the_function() -> None:
    ended = asyncio.Event()

    @validating(SITES)
    async def check(obj: KubeObject) -> None:
        try:
            await asyncio.sleep(100)
        finally:
            ended.set()

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await check.review(site())

    assert ended.is_set()
