"""Resolution of resource names as in kubectl."""

from __future__ import annotations

import pytest
from each_case import each_case

from aioinformer.client.discovery_documents import APIResource, Group, GroupVersion
from aioinformer.client.rest_mapper import RESTMapper


def line(
    name: str, kind: str, *short: str, all_of: str = "", **more: str
) -> APIResource:
    return APIResource(
        name=name,
        singular_name=more.get("singular", kind.lower()),
        namespaced=True,
        kind=kind,
        verbs=["list"],
        short_names=list(short),
        categories=[all_of] if all_of else None,
    )


CORE = [
    line("pods", "Pod", "po", all_of="all"),
    line("pods/log", "Pod"),
    line("pods/status", "Pod"),
    line("events", "Event", "ev"),
    line("services", "Service", "svc"),
]
CATALOGUE = RESTMapper(
    [
        Group("", [GroupVersion("v1", CORE)]),
        Group(
            "apps", [GroupVersion("v1", [line("deployments", "Deployment", "deploy")])]
        ),
        Group("events.k8s.io", [GroupVersion("v1", [line("events", "Event", "ev")])]),
        Group(
            "autoscaling",
            [
                GroupVersion("v2", [line("scalers", "Scaler", "hpa")]),
                GroupVersion(
                    "v1", [line("scalers", "Scaler", "hpa"), line("olds", "Old")]
                ),
            ],
        ),
        Group("metrics.test", [GroupVersion("v1", problem="503: no")]),
        Group(
            "serving.test",
            [
                GroupVersion(
                    "v1",
                    [
                        line("services", "Service", "ksvc", all_of="all"),
                        line("policies", "Rule", "po"),
                        line("svc", "Odd"),
                        line("boxes", "BigBox", singular=""),
                    ],
                )
            ],
        ),
    ]
)


def found(word: str, api_version: str = "") -> str | None:
    it = CATALOGUE.find(word, api_version)
    return None if it is None else f"{it.resource.plural}.{it.resource.api_version}"


@each_case(
    "word, meaning",
    [
        pytest.param("pods", "pods.v1", id="plural"),
        pytest.param("pod", "pods.v1", id="singular"),
        pytest.param("PODS", "pods.v1", id="upper-case"),
        pytest.param("Pod", "pods.v1", id="kind"),
        pytest.param("po", "pods.v1", id="short-of-the-first-group"),
        pytest.param(
            "po.serving.test", "policies.serving.test/v1", id="short-and-group"
        ),
        pytest.param("rule", "policies.serving.test/v1", id="kind-unlike-plural"),
        pytest.param(
            "Rule.v1.serving.test", "policies.serving.test/v1", id="full-kind"
        ),
        pytest.param("bigbox", "boxes.serving.test/v1", id="no-singular"),
        pytest.param("events", "events.v1", id="first-group"),
        pytest.param("events.events.k8s.io", "events.events.k8s.io/v1", id="group"),
        pytest.param(
            "services.serving.test", "services.serving.test/v1", id="same-name"
        ),
        pytest.param("svc", "svc.serving.test/v1", id="name-before-short-name"),
        pytest.param("hpa", "scalers.autoscaling/v2", id="preferred-version"),
        pytest.param("olds", "olds.autoscaling/v1", id="only-in-another-version"),
        pytest.param("hpa.v1.autoscaling", "scalers.autoscaling/v1", id="version"),
        pytest.param("hpa.autoscal", "scalers.autoscaling/v2", id="short-group-begins"),
        pytest.param("deployments.apps", "deployments.apps/v1", id="plural-and-group"),
        pytest.param("PO", "pods.v1", id="short-in-upper-case"),
        pytest.param("deployments.app", "deployments.apps/v1", id="group-begins"),
        pytest.param("deploy.v9.apps", None, id="short-of-no-such-version"),
        pytest.param("deployments.v2.apps", None, id="other-version"),
        pytest.param("pods.v1", "pods.v1", id="core-version"),
        pytest.param("pods.v1.", "pods.v1", id="core-version-and-no-group"),
        pytest.param("pods/log", None, id="subresource"),
        pytest.param("", None, id="empty"),
        pytest.param(".", None, id="dot"),
    ],
)
def test_names_are_resolved_as_in_kubectl(word: str, meaning: str | None) -> None:
    assert found(word) == meaning


@each_case(
    "word, api_version, meaning",
    [
        ("Service", "serving.test/v1", "services.serving.test/v1"),
        ("Service", "v1", "services.v1"),
        ("hpa", "autoscaling/v1", "scalers.autoscaling/v1"),
        ("Old", "autoscaling/v2", None),
        ("pods", "apps/v1", None),
        ("hpa", "v1", None),
        ("hpa", "auto/v1", None),
        ("deploy.apps", "apps/v1", None),
    ],
)
def test_api_version_restricts_search(
    word: str, api_version: str, meaning: str | None
) -> None:
    assert found(word, api_version) == meaning


def test_served_resource_has_all_fields() -> None:
    it = CATALOGUE.find("po")

    assert it is not None
    assert (it.singular, it.short_names, it.categories) == ("pod", ("po",), ("all",))
    assert (it.verbs, it.subresources) == (("list",), ("log", "status"))
    assert (it.resource.kind, it.resource.namespaced) == ("Pod", True)


def test_resources_are_listed_in_preferred_version() -> None:
    listed = [f"{it.resource} {it.resource.version}" for it in CATALOGUE.preferred()]

    assert listed[:5] == [
        "pods v1",
        "events v1",
        "services v1",
        "deployments.apps v1",
        "events.events.k8s.io v1",
    ]
    assert "scalers.autoscaling v2" in listed
    assert "olds.autoscaling v1" in listed
    assert "scalers.autoscaling v1" not in listed


def test_category_has_resources_of_several_groups() -> None:
    listed = [str(it.resource) for it in CATALOGUE.preferred("all")]

    assert listed == ["pods", "services.serving.test"]
    assert CATALOGUE.preferred("nothing") == ()


@each_case(
    "word, api_version, hint",
    [
        pytest.param("podz", "", ". Did you mean 'pods'?", id="mistyped"),
        pytest.param("deploymnt", "", "Did you mean 'deployments'?", id="singular"),
        pytest.param(
            "deployments.ops", "", "Did you mean 'deployments.v1.apps'?", id="group"
        ),
        pytest.param(
            "Service", "serving.test/v2", "mean 'services.v1'?", id="api-version"
        ),
        pytest.param("olds", "autoscaling/v2", "'olds.v1.autoscaling'?", id="version"),
        pytest.param(
            "podz",
            "example.com/v1",
            "'podz' in example.com/v1: is its CustomResourceDefinition installed?",
            id="no-crd",
        ),
        pytest.param(
            "xyzzy", "", "'xyzzy'. Groups that could not be discovered", id="nothing"
        ),
    ],
)
def test_unknown_name_message_suggests_similar_names(
    word: str, api_version: str, hint: str
) -> None:
    assert hint in CATALOGUE.unknown(word, api_version)


def test_unknown_name_message_lists_undiscovered_groups() -> None:
    assert CATALOGUE.broken == {"metrics.test/v1": "503: no"}
    missing = "Groups that could not be discovered: metrics.test/v1 (503: no)"
    assert f"? {missing}" in CATALOGUE.unknown("podz")
    assert missing not in CATALOGUE.unknown("xyzzy", "apps/v1")


def test_mapper_without_groups_finds_nothing() -> None:
    nothing = RESTMapper([])

    assert nothing.find("pods") is None
    assert nothing.unknown("pods") == "the server has no resource 'pods'"
    assert repr(nothing) == "<RESTMapper of 0 resources>"


def test_resource_with_an_invalid_name_does_not_break_others() -> None:
    lines = [line("Widgets", "Widget"), line("gadgets", "Gadget")]
    mapper = RESTMapper([Group("odd.test", [GroupVersion("v1", lines)])])

    assert [it.resource.plural for it in mapper.resources] == ["gadgets"]
