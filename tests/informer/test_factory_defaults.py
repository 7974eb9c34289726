"""`FactoryDefaults`: defaults that a factory adds to every requested informer."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from aioinformer.errors import OptionsError, SelectorSyntaxError
from aioinformer.informer.informer_spec import FactoryDefaults
from aioinformer.model import KubeObject, Resource, drop, strip_managed_fields
from aioinformer.model.resources import NODES, PODS

WIDGETS = Resource("example.com", "v1", "widgets", "Widget")


# ---------------------------------------------------------------- namespaces


@pytest.mark.parametrize(
    ("default", "requested", "found"),
    [
        (None, None, ()),
        ("shop", None, ("shop",)),
        ("shop", "test", ("test",)),
        ("shop", "", ()),
        (["b", "a"], None, ("a", "b")),
        ("shop", ["b", "a", "b"], ("a", "b")),
        (None, ("shop",), ("shop",)),
        (None, {"a"}, ("a",)),
    ],
    ids=str,
)
def test_requested_namespace_overrides_the_default(
    default: Any, requested: Any, found: tuple[str, ...]
) -> None:
    spec = FactoryDefaults(namespace=default).spec(
        "v1", "pods", {"namespace": requested}
    )

    assert spec.namespaces == found


def test_default_namespace_does_not_apply_to_cluster_scoped_resources() -> None:
    defaults = FactoryDefaults(namespace="shop")

    assert defaults.spec("v1", "nodes", {}).namespaces == ()
    assert defaults.spec("v1", "pods", {}).namespaces == ("shop",)


@pytest.mark.parametrize(
    "namespaces", [[], ["shop", ""], [""], 5, b"shop", ["shop", 5], [["shop"]]], ids=str
)
def test_invalid_namespaces_are_refused(namespaces: Any) -> None:
    with pytest.raises(OptionsError, match="or None for all"):
        FactoryDefaults(namespace=namespaces)

    with pytest.raises(OptionsError, match="or None for all"):
        FactoryDefaults().spec("v1", "pods", {"namespace": namespaces})


@pytest.mark.parametrize(
    "given", [None, 5, KubeObject.of({"data": {"a": "c2VjcmV0"}})], ids=type
)
def test_other_values_than_names_are_refused_without_their_text(given: Any) -> None:
    for version, plural in ((given, ""), (given, "things"), ("v1", given)):
        with pytest.raises(OptionsError, match="is not a built-in") as caught:
            FactoryDefaults().spec(version, plural, {})

        assert "c2Vj" not in str(caught.value)


# ---------------------------------------------------------------- selectors


@pytest.mark.parametrize(
    ("default", "requested", "found"),
    [
        ("", "app=web", "app=web"),
        ("team=a", "", "team=a"),
        ("team=a", "app=web", "team=a,app=web"),
    ],
)
def test_selectors_of_factory_and_informer_are_combined(
    default: str, requested: str, found: str
) -> None:
    labels = FactoryDefaults(label_selector=default)
    fields = FactoryDefaults(field_selector=default)

    spec = labels.spec("v1", "pods", {"label_selector": requested})
    assert spec.label_selector == found
    assert spec.describe() == f"pods where {found}"
    spec = fields.spec("v1", "pods", {"field_selector": requested})
    assert spec.field_selector == found


def test_equivalent_selectors_give_the_same_informer() -> None:
    one, other = (
        FactoryDefaults(label_selector=text).spec("v1", "pods", {}).identity
        for text in ("a=b,c in (d, e)", "c in (e,d),a==b")
    )

    assert one == other


@pytest.mark.parametrize("option", ["label_selector", "field_selector"])
def test_selectors_must_be_strings(option: str) -> None:
    selector: Any = {"app": "web"}
    with pytest.raises(OptionsError, match=r"a string such as 'app=web', not \{'app'"):
        FactoryDefaults(**{option: selector})

    requested: Any = {option: selector}
    with pytest.raises(OptionsError, match=r"a string such as 'app=web', not \{'app'"):
        FactoryDefaults().spec("v1", "pods", requested)


def test_empty_name_equals_none() -> None:
    assert FactoryDefaults().spec("v1", "pods", {"name": ""}).name is None


def test_invalid_selectors_are_refused_at_once() -> None:
    with pytest.raises(SelectorSyntaxError):
        FactoryDefaults(label_selector="a in b")

    with pytest.raises(SelectorSyntaxError):
        FactoryDefaults(field_selector="nonsense")

    with pytest.raises(SelectorSyntaxError):
        FactoryDefaults().spec("v1", "pods", {"label_selector": "a in b"})


# ---------------------------------------------------------------- resync, transform


@pytest.mark.parametrize(
    ("requested", "of_pods", "of_nodes"),
    [
        (None, 60.0, 300.0),
        (5, 5.0, 5.0),
        (timedelta(minutes=2), 120.0, 120.0),
        (0, 0.0, 0.0),
    ],
    ids=str,
)
def test_most_specific_resync_period_applies(
    requested: Any, of_pods: float, of_nodes: float
) -> None:
    defaults = FactoryDefaults(
        resync_period=300, custom_resync={PODS: timedelta(minutes=1), WIDGETS: 0}
    )

    for resource, period in ((PODS, of_pods), (NODES, of_nodes)):
        spec = defaults.spec(resource, "", {"resync_period": requested})
        assert spec.resync_period == period


def test_custom_resync_applies_to_a_resource_without_kind() -> None:
    defaults = FactoryDefaults(resync_period=300, custom_resync={WIDGETS: 60})
    nameless = Resource.of("example.com/v1", "widgets")

    assert defaults.spec(nameless, "", {}).resync_period == 60
    assert FactoryDefaults().spec(nameless, "", {}).resync_period == 0


@pytest.mark.parametrize("period", [-1, 0.5, float("nan"), float("inf")])
def test_invalid_resync_period_is_refused(period: float) -> None:
    both: list[dict[str, Any]] = [
        {"resync_period": period},
        {"custom_resync": {PODS: period}},
    ]
    for options in both:
        with pytest.raises(OptionsError):
            FactoryDefaults(**options)

    with pytest.raises(OptionsError):
        FactoryDefaults().spec("v1", "pods", {"resync_period": period})


@pytest.mark.parametrize("key", ["pods", ("v1", "pods")], ids=str)
def test_keys_of_custom_resync_must_be_resources(key: Any) -> None:
    with pytest.raises(OptionsError, match=r"keys of custom_resync must be Resources"):
        FactoryDefaults(custom_resync={key: 60})


class Empty:
    """A transform that is false in a condition."""

    def __len__(self) -> int:
        return 0

    def __call__(self, obj: KubeObject) -> KubeObject:
        return obj


def test_falsy_transform_is_used() -> None:
    mine, defaults = Empty(), FactoryDefaults(transform=strip_managed_fields)

    assert defaults.spec("v1", "pods", {"transform": mine}).transform is mine


def test_transform_of_an_informer_overrides_the_default() -> None:
    mine = drop("status")
    defaults = FactoryDefaults(transform=strip_managed_fields)

    assert defaults.spec("v1", "pods", {}).transform is strip_managed_fields
    assert defaults.spec("v1", "pods", {"transform": mine}).transform is mine


# ---------------------------------------------------------------- resources


def test_built_in_resource_without_kind_is_completed() -> None:
    spec = FactoryDefaults().spec(Resource.of("v1", "nodes"), "", {})

    assert spec.resource == NODES


@pytest.mark.parametrize("name", ["pods", "pod", "Pod"])
def test_built_in_resource_is_found_by_plural_or_kind(name: str) -> None:
    spec = FactoryDefaults().spec("v1", name, {})

    assert (spec.resource, spec.by_name) == (PODS, False)


@pytest.mark.parametrize(
    ("api_version", "name", "resource"),
    [
        ("example.com/v1", "widgets", Resource("example.com", "v1", "widgets")),
        ("example.com/v1", "Wid", Resource("example.com", "v1", "wid", "Wid")),
        ("serving.test/v1", "services", Resource("serving.test", "v1", "services")),
        (
            "apps/v1",
            "controllerrevisions",
            Resource("apps", "v1", "controllerrevisions"),
        ),
    ],
    ids=["plural", "kind", "name-of-another", "built-in-group"],
)
def test_custom_resource_is_left_to_discovery(
    api_version: str, name: str, resource: Resource
) -> None:
    spec = FactoryDefaults().spec(api_version, name, {})

    assert (spec.resource, spec.by_name) == (resource, True)


@pytest.mark.parametrize(
    ("api_version", "name"),
    [("v1", "widgets"), ("v1", "deployments"), ("apps/v1", "pods"), ("apps", "pods")],
)
def test_unknown_resource_of_a_built_in_group_is_refused(
    api_version: str, name: str
) -> None:
    with pytest.raises(OptionsError, match="not a built-in resource"):
        FactoryDefaults().spec(api_version, name, {})


def test_dynamic_factory_keeps_plurals_as_they_are() -> None:
    found = FactoryDefaults(any_resource=True).spec("example.com/v1", "widgets", {})
    assert (found.resource.plural, found.by_name) == ("widgets", False)
    kind = FactoryDefaults(any_resource=True).spec("example.com/v1", "Widget", {})
    assert (kind.resource.kind, kind.by_name) == ("Widget", True)
    known = FactoryDefaults(any_resource=True).spec("v1", "pods", {})
    assert known.resource is PODS


ZONES = Resource.of("example.com/v1", "zones", "Zone", namespaced=False)


def test_unknown_scope_is_no_conflict_with_a_known_one() -> None:
    defaults = FactoryDefaults(any_resource=True)
    one = defaults.spec("example.com/v1", "zones", {})
    other = defaults.spec(ZONES, "", {})

    assert one.identity == other.identity
    one.check_same(other, None)
    other.check_same(one, None)


def test_default_namespace_does_not_apply_to_a_resource_given_as_cluster_scoped() -> (
    None
):
    defaults = FactoryDefaults(any_resource=True, namespace="shop")

    assert defaults.spec(ZONES, "", {}).namespaces == ()
    assert defaults.spec("example.com/v1", "zones", {}).namespaces == ("shop",)


def test_unknown_kind_is_no_conflict_with_a_known_one() -> None:
    defaults = FactoryDefaults(any_resource=True)
    one = defaults.spec("example.com/v1", "widgets", {})
    other = defaults.spec(WIDGETS, "", {})

    assert one.identity == other.identity
    one.check_same(other, None)
    other.check_same(one, None)
    gadgets = defaults.spec(Resource.of("example.com/v1", "widgets", "G"), "", {})
    with pytest.raises(
        OptionsError, match=r"kind='Widget', and is requested .* kind='G':"
    ):
        other.check_same(gadgets, None)
