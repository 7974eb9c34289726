"""Parsing and writing of discovery documents in both forms."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from discovery_helpers import aggregated, listed, named
from each_case import each_case

from aioinformer.client.discovery_documents import (
    STALE,
    APIResource,
    Group,
    GroupVersion,
    read_groups,
    read_resources,
    write_groups,
    write_resources,
)
from aioinformer.errors import DecodeError


def read(document: Any) -> list[Group]:
    return read_groups(orjson.dumps(document))


def test_aggregated_document_has_groups_and_resources() -> None:
    [core, apps] = read(
        aggregated(("", {"v1": {"pods": "Pod"}}), ("apps", {"v1": {"sets": "Set"}}))
    )

    assert (core.name, apps.name) == ("", "apps")
    assert core.api_version(core.versions[0]) == "v1"
    assert apps.api_version(apps.versions[0]) == "apps/v1"
    assert apps.versions[0].known
    assert apps.versions[0].resources == [
        APIResource(
            name="sets",
            singular_name="set",
            namespaced=True,
            kind="Set",
            verbs=["list", "watch"],
        )
    ]


def test_subresources_become_separate_entries() -> None:
    document = aggregated(("apps", {"v1": {"sets": "Set"}}))
    resource = document["items"][0]["versions"][0]["resources"][0]
    scale = {"group": "autoscaling", "version": "v1", "kind": "Scale"}
    resource["subresources"] = [
        {"subresource": "scale", "responseKind": scale, "verbs": ["get"]},
        {"subresource": "log"},
    ]

    lines = read(document)[0].versions[0].resources or []

    assert [(it.name, it.group, it.kind) for it in lines] == [
        ("sets", "", "Set"),
        ("sets/scale", "autoscaling", "Scale"),
        ("sets/log", "", ""),
    ]


def test_resource_without_kind_is_skipped_except_subresources() -> None:
    document = aggregated(("a.b", {"v1": {"things": "Thing"}}))
    resource = document["items"][0]["versions"][0]["resources"][0]
    resource["responseKind"] = None
    resource["subresources"] = [{"subresource": "status", "verbs": ["get"]}]

    lines = read(document)[0].versions[0].resources or []

    assert [it.name for it in lines] == ["things/status"]


def test_stale_version_has_a_problem() -> None:
    [group] = read(aggregated(("a.b", {"v2": None, "v1": {"things": "Thing"}})))

    stale, fresh = group.versions
    assert (stale.resources, stale.problem, stale.known) == (None, STALE, True)
    assert (fresh.problem, fresh.known) == ("", True)


def test_group_list_puts_preferred_version_first() -> None:
    groups = [named("a.b", "v2", "v1beta1", "v1", preferred="v1"), named("c.d", "v1")]

    [one, other] = read({"kind": "APIGroupList", "groups": groups})

    assert [it.name for it in one.versions] == ["v1", "v2", "v1beta1"]
    assert not any(it.known for it in (*one.versions, *other.versions))


def test_core_versions_are_read_as_core_group() -> None:
    assert read({"kind": "APIVersions", "versions": ["v1"]}) == [
        Group("", [GroupVersion("v1")])
    ]


@pytest.mark.parametrize(
    "kind", ["APIGroupList", "APIVersions", "APIGroupDiscoveryList"]
)
def test_empty_and_null_groups_are_read_as_none(kind: str) -> None:
    nothing = {"groups": None, "items": None}

    assert [it for it in read({"kind": kind, **nothing}) if it.versions] == []


@each_case(
    "body",
    [
        b"",
        b"[]",
        b'{"kind":"PodList","items":[]}',
        b'{"items":[]}',
        b'{"kind":"APIGroupList","groups":[{}]}',
        b'{"kind":"APIGroupList","groups":7}',
        b'{"kind":"APIVersions","versions":["\xff"]}',
        b"<html></html>",
    ],
)
def test_other_document_raises_decode_error(body: bytes) -> None:
    with pytest.raises(DecodeError, match="cannot read a discovery document"):
        read_groups(body)


@pytest.mark.parametrize(
    "body", [b"{}", b'{"kind":"Status"}', b'{"resources":[{"kind":"A"}]}'], ids=str
)
def test_malformed_resource_list_raises_decode_error(body: bytes) -> None:
    with pytest.raises(DecodeError, match="cannot read a discovery document"):
        read_resources(body)


def test_groups_are_written_in_older_form() -> None:
    group = Group("a.b", [GroupVersion("v1"), GroupVersion("v1beta1")])
    core = Group("", [GroupVersion("v1")])

    assert orjson.loads(write_groups([core, group])) == {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [named_core(), named("a.b", "v1", "v1beta1")],
    }
    assert orjson.loads(
        write_resources("a.b/v1", [APIResource("things", "thing")])
    ) == {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": "a.b/v1",
        "resources": [
            {
                "name": "things",
                "singularName": "thing",
                "namespaced": False,
                "kind": "",
                "verbs": None,
            }
        ],
    }


def named_core() -> dict[str, Any]:
    v1 = {"groupVersion": "v1", "version": "v1"}
    return {"name": "", "versions": [v1], "preferredVersion": v1}


def test_written_groups_are_read_again() -> None:
    lines = read_resources(
        orjson.dumps(
            {
                "resources": [
                    listed("things", "Thing", shortNames=["th"], categories=["all"]),
                    listed("things/status", "Thing", group="c.d", version="v2"),
                ]
            }
        )
    )
    group = Group("a.b", [GroupVersion("v1"), GroupVersion("v2")])

    assert read_resources(write_resources("a.b/v1", lines)) == lines
    assert read_groups(write_groups([group, Group("c.d", [])])) == [
        group,
        Group("c.d", []),
    ]
