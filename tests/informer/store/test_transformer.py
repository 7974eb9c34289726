"""`Transformer`: results and failures of a transform."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from fake_source import thing

from aioinformer.errors import DecodeError, OptionsError
from aioinformer.informer.handlers.error_reporter import ErrorReporter
from aioinformer.informer.store.transformer import (
    Transformer,
    identity_of,
    is_left_out,
)
from aioinformer.model import KubeObject, drop, strip_managed_fields, transform_dict

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioinformer.errors import HandlerError

A = thing("a", 7, labels={"app": "web"})
NODE = KubeObject.of({"metadata": {"name": "n", "uid": "u", "resourceVersion": "7"}})


class Case:
    """A transform, and its reported failures."""

    def __init__(self, function: Callable[[Any], Any] | None) -> None:
        self.received: list[HandlerError] = []
        self.transforming = Transformer(ErrorReporter("pods", self.received.append))
        self.transforming.function = function

    def __call__(self, obj: KubeObject) -> KubeObject | None:
        return self.transforming(obj)


def changed(**metadata: str | None) -> Callable[[KubeObject], KubeObject]:
    """Return a transform that sets fields of the metadata; None removes one."""

    def change(obj: KubeObject) -> KubeObject:
        content = obj.to_dict()
        content["metadata"] |= metadata
        for name in [name for name, value in metadata.items() if value is None]:
            del content["metadata"][name]

        return KubeObject.of(content)

    return change


def test_objects_stay_unchanged_without_a_transform() -> None:
    case = Case(None)

    assert case(A) is A
    assert (case.transforming.name, repr(case.transforming)) == (
        *("", "<Transformer nothing>"),
    )


def test_object_returned_unchanged_is_kept() -> None:
    assert Case(lambda obj: obj)(A) is A


def test_none_leaves_the_object_out() -> None:
    case = Case(lambda _: None)

    assert case(A) is None
    assert case.received == []


def test_result_uses_the_context_of_the_informer() -> None:
    result = Case(transform_dict(lambda content: content | {"spec": {}}))(A)

    assert result is not None
    assert result["spec"] == {}
    assert (result.key, result.uid, result.resource_version) == (A.key, A.uid, "7")
    assert result.context is A.context, (
        "it is in the informer's cache of decoded bodies"
    )
    assert result.label_set is A.label_set


def test_labels_are_those_of_the_result() -> None:
    result = Case(drop("metadata.labels"))(A)

    assert result is not None
    assert result.labels == {}


@pytest.mark.parametrize(
    "field", ["name", "namespace", "uid", "resourceVersion"], ids=str
)
def test_missing_identity_is_restored(field: str) -> None:
    case = Case(changed(**{field: None}))

    result = case(A)

    assert result is not None
    assert result is not A
    assert result.to_dict() == A.to_dict()
    assert (result.key, result.uid, result.resource_version) == (A.key, A.uid, "7")
    assert case.received == []


@pytest.mark.parametrize(
    "function",
    [
        transform_dict(lambda _: {"kind": "Pod"}),
        transform_dict(lambda _: {"kind": "Pod", "metadata": None}),
    ],
    ids=["no-metadata", "null"],
)
@pytest.mark.parametrize("obj", [A, NODE], ids=["namespaced", "cluster-scoped"])
def test_completely_missing_identity_is_restored(
    function: Callable[[Any], Any], obj: KubeObject
) -> None:
    result = Case(function)(obj)

    assert result is not None
    assert KubeObject.of(result.raw).key == result.key == obj.key
    assert result["metadata"]["uid"] == obj.uid
    assert result["metadata"]["resourceVersion"] == "7"


@pytest.mark.parametrize(
    ("obj", "field"),
    [
        (A, "name"),
        (A, "namespace"),
        (A, "uid"),
        (A, "resourceVersion"),
        (NODE, "namespace"),
    ],
    ids=["name", "namespace", "uid", "version", "new-namespace"],
)
def test_changed_identity_is_an_error(obj: KubeObject, field: str) -> None:
    case = Case(changed(**{field: "other"}))

    assert case(obj) is obj
    (failure,) = case.received
    assert f"changed {field} from" in str(failure.__cause__)


def fail(obj: KubeObject) -> KubeObject:
    raise KeyError(obj.name)


async def coroutine(obj: KubeObject) -> KubeObject:
    return obj


WRONG: dict[str, tuple[Callable[[Any], Any], type[Exception]]] = {
    "raises": (fail, KeyError),
    "dict": (lambda obj: obj.to_dict(), TypeError),
    "coroutine": (lambda obj: coroutine(obj), TypeError),
    "not-json": (lambda _: KubeObject.of(b"{"), DecodeError),
}


@pytest.mark.parametrize(("function", "kind"), WRONG.values(), ids=WRONG)
def test_object_is_kept_as_received_when_the_transform_fails(
    function: Callable[[Any], Any], kind: type[Exception]
) -> None:
    case = Case(function)

    assert case(A) is A
    assert case(NODE) is NODE
    assert case.transforming.failures == 2
    assert [failure.subject for failure in case.received] == [A, NODE]
    assert {failure.where for failure in case.received} == {"transform"}
    assert {type(failure.__cause__) for failure in case.received} == {kind}


def test_error_for_a_returned_dict_explains_the_fix() -> None:
    case = Case(lambda obj: obj.to_dict())

    case(A)

    assert "not a dict (use transform_dict for functions of dicts)" in str(
        case.received[0].__cause__
    )


class Callee:
    async def __call__(self, obj: KubeObject) -> KubeObject:
        return obj


@pytest.mark.parametrize(
    "function",
    [coroutine, Callee(), asyncio.sleep, 5, "name"],
    ids=["coroutine", "callable-object", "sleep", "number", "text"],
)
def test_transform_must_be_a_plain_function(function: Any) -> None:
    transforming = Transformer()

    with pytest.raises(OptionsError, match="a transform must be a"):
        transforming.function = function

    assert transforming.function is None


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (fail, "fail"),
        (strip_managed_fields, "strip_managed_fields"),
        (drop("status.images"), "drop('status.images')"),
    ],
    ids=["function", "ours", "drop"],
)
def test_transformer_is_named_after_its_function(
    function: Callable[[Any], Any], name: str
) -> None:
    transforming = Case(function).transforming

    assert (transforming.name, repr(transforming)) == (name, f"<Transformer {name}>")


def test_identity_of_a_left_out_object_is_remembered() -> None:
    identity = identity_of(A)

    assert (identity.key, identity.uid, identity.resource_version) == (
        *(A.key, A.uid, "7"),
    )
    assert is_left_out(identity)
    assert not is_left_out(A)
    assert len(identity.body) == 0
