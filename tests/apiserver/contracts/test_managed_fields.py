"""Managed fields after creates, updates, patches and scale writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from api_calls import WIDGETS_GROUP, ask, named, widget
from apply_calls import (
    applied,
    changed,
    config_map,
    deployment,
    made,
    owned,
    same_time,
)

if TYPE_CHECKING:
    import aiohttp
    from contract_servers import ServerUnderTest


@pytest.fixture
def maps(target: ServerUnderTest) -> str:
    return target.path("configmaps")


@pytest.fixture
def deployments(target: ServerUnderTest) -> str:
    return target.path("deployments", "apis/apps/v1")


# -------------------------------------------------------------------- other writes


async def test_create_owns_fields_it_sets(
    http: aiohttp.ClientSession, maps: str
) -> None:
    body = config_map(x="1")
    body["metadata"] |= {"labels": {"l": "1"}, "finalizers": ["example.com/x"]}

    found = await made(http, maps, body)

    (entry,) = found["metadata"]["managedFields"]
    assert same_time(entry.pop("time"), found["metadata"]["creationTimestamp"])
    assert entry == {
        "manager": "maker",
        "operation": "Update",
        "apiVersion": "v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": {
            "f:data": {".": {}, "f:x": {}},
            "f:metadata": {
                "f:finalizers": {".": {}, 'v:"example.com/x"': {}},
                "f:labels": {".": {}, "f:l": {}},
            },
        },
    }
    await changed(http, f"{maps}/a", {"metadata": {"finalizers": None}})


async def test_field_manager_defaults_to_user_agent(
    http: aiohttp.ClientSession, maps: str
) -> None:
    headers = {"User-Agent": "my tool/1.0 (linux)"}

    async with http.post(maps, json=config_map(x="1"), headers=headers) as answer:
        found = await answer.json()

    assert list(owned(found)) == ["my tool"]


async def test_create_of_deployment_owns_defaults(
    http: aiohttp.ClientSession, deployments: str
) -> None:
    web = {
        "name": "web",
        "image": "registry.example/web:1",
        "ports": [{"containerPort": 80}],
        "env": [{"name": "A", "value": "1"}],
        "resources": {"limits": {"cpu": "1000m"}},
    }

    found = await made(http, deployments, deployment(web))

    container: dict[str, Any] = {
        ".": {},
        "f:env": {
            ".": {},
            'k:{"name":"A"}': {".": {}, "f:name": {}, "f:value": {}},
        },
        "f:image": {},
        "f:imagePullPolicy": {},
        "f:name": {},
        "f:ports": {
            ".": {},
            'k:{"containerPort":80,"protocol":"TCP"}': {
                ".": {},
                "f:containerPort": {},
                "f:protocol": {},
            },
        },
        "f:resources": {".": {}, "f:limits": {".": {}, "f:cpu": {}}},
        "f:terminationMessagePath": {},
        "f:terminationMessagePolicy": {},
    }
    assert owned(found)["maker"]["f:spec"] == {
        "f:progressDeadlineSeconds": {},
        "f:replicas": {},
        "f:revisionHistoryLimit": {},
        "f:selector": {},
        "f:strategy": {
            "f:rollingUpdate": {".": {}, "f:maxSurge": {}, "f:maxUnavailable": {}},
            "f:type": {},
        },
        "f:template": {
            "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
            "f:spec": {
                "f:containers": {'k:{"name":"web"}': container},
                "f:dnsPolicy": {},
                "f:restartPolicy": {},
                "f:schedulerName": {},
                "f:securityContext": {},
                "f:terminationGracePeriodSeconds": {},
            },
        },
    }


async def test_allocated_fields_have_no_owner(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    ports = [{"name": "b", "port": 443}, {"name": "a", "port": 80}]
    body = named("web", spec={"selector": {"app": "web"}, "ports": ports})

    found = await made(http, target.path("services"), body)

    names = [".", "f:name", "f:port", "f:protocol", "f:targetPort"]
    port: dict[str, Any] = {name: {} for name in names}
    assert owned(found)["maker"]["f:spec"] == {
        "f:internalTrafficPolicy": {},
        "f:ports": {
            ".": {},
            'k:{"port":80,"protocol":"TCP"}': port,
            'k:{"port":443,"protocol":"TCP"}': port,
        },
        "f:selector": {},
        "f:sessionAffinity": {},
        "f:type": {},
    }
    ordered = list(owned(found)["maker"]["f:spec"]["f:ports"])
    assert ordered == [
        ".",
        'k:{"port":80,"protocol":"TCP"}',
        'k:{"port":443,"protocol":"TCP"}',
    ]


async def test_update_takes_changed_fields_and_drops_removed_ones(
    http: aiohttp.ClientSession, maps: str
) -> None:
    await made(http, maps, config_map(x="1", y="1", z="1"))

    found = await changed(http, f"{maps}/a", {"data": {"x": "2", "y": None, "n": "1"}})

    assert owned(found) == {
        "maker": {"f:data": {".": {}, "f:z": {}}},
        "editor": {"f:data": {"f:n": {}, "f:x": {}}},
    }


async def test_put_is_compared_with_stored_object(
    http: aiohttp.ClientSession, maps: str
) -> None:
    await made(http, maps, config_map(x="1", y="1"))

    body = config_map(x="1", y="2")
    code, found = await ask(http, "PUT", f"{maps}/a", body, fieldManager="putter")

    assert code == 200
    assert owned(found) == {
        "maker": {"f:data": {".": {}, "f:x": {}}},
        "putter": {"f:data": {"f:y": {}}},
    }


async def test_unchanged_write_adds_no_entry(
    http: aiohttp.ClientSession, maps: str
) -> None:
    old = await made(http, maps, config_map(x="1"))

    assert await changed(http, f"{maps}/a", {"data": {"x": "1"}}) == old


async def test_subresource_writes_have_own_entries(
    http: aiohttp.ClientSession, deployments: str
) -> None:
    image = {"name": "web", "image": "registry.example/web:1"}
    await made(http, deployments, deployment(image))

    body = {
        "spec": {"paused": True},
        "status": {"replicas": 2, "observedGeneration": 1},
    }
    body["metadata"] = {"labels": {"l": "1"}, "annotations": {"a": "1"}}
    found = await changed(http, f"{deployments}/web/status", body)

    assert owned(found)["editor/status"] == {
        "f:metadata": {"f:annotations": {".": {}, "f:a": {}}},
        "f:status": {"f:observedGeneration": {}, "f:replicas": {}},
    }
    main = await changed(http, f"{deployments}/web", body)
    assert owned(main)["editor"] == {
        "f:metadata": {"f:labels": {".": {}, "f:l": {}}},
        "f:spec": {"f:paused": {}},
    }


async def test_schemaless_custom_resource_is_owned_by_shape(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("widgets", WIDGETS_GROUP)
    body = widget("w", spec={"a": {"b": 1}, "empty": {}, "items": [{"name": "x"}]})

    found = await made(http, path, body)

    assert owned(found)["maker"] == {
        "f:spec": {
            ".": {},
            "f:a": {".": {}, "f:b": {}},
            "f:empty": {},
            "f:items": {},
        }
    }


# ------------------------------------------------------------ managed fields in requests


@pytest.mark.parametrize("sent", [[], [{}]], ids=["no entry", "an empty entry"])
async def test_reset_managed_fields_stay_empty_until_apply(
    http: aiohttp.ClientSession, maps: str, sent: list[Any]
) -> None:
    await made(http, maps, config_map(x="1"))

    reset = await changed(http, f"{maps}/a", {"metadata": {"managedFields": sent}})
    after = await changed(http, f"{maps}/a", {"data": {"y": "1"}})
    found = await applied(http, maps, config_map(x="1"))

    assert "managedFields" not in reset["metadata"]
    assert "managedFields" not in after["metadata"]
    assert owned(found) == {
        "one!": {"f:data": {"f:x": {}}},
        "before-first-apply": {"f:data": {".": {}, "f:x": {}, "f:y": {}}},
    }


async def test_valid_managed_fields_of_client_are_stored(
    http: aiohttp.ClientSession, maps: str
) -> None:
    await made(http, maps, config_map(x="1"))
    entry = {
        "manager": "q",
        "operation": "Apply",
        "apiVersion": "v1",
        "time": "2020-01-01T00:00:00+01:00",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:data": {"f:x": {".": {}}, "f:y": {}, "z:future": {}}},
    }
    other = {**entry, "manager": "r", "apiVersion": "v9"}
    sent = {"metadata": {"managedFields": [entry, other]}}

    found = await changed(http, f"{maps}/a", sent)
    entry["operation"] = "Foo"
    kept = await changed(http, f"{maps}/a", {"metadata": {"managedFields": [entry]}})

    assert owned(found) == {"q!": {"f:data": {"f:x": {}, "f:y": {}}}}
    assert found["metadata"]["managedFields"][0]["time"] == "2019-12-31T23:00:00Z"
    assert kept == found


async def test_update_entries_beyond_ten_are_combined(
    http: aiohttp.ClientSession, maps: str
) -> None:
    found = await made(http, maps, config_map(x="1"))
    for place in range(12):
        body = {"data": {f"k{place:02}": "1"}}
        found = await changed(http, f"{maps}/a", body, f"m{place:02}")

    entries = owned(found)
    assert len(entries) == 10
    assert len(entries["ancient-changes"]["f:data"]) >= 3


# -------------------------------------------------------------------- scale


async def test_scale_write_owns_replicas(
    http: aiohttp.ClientSession, deployments: str
) -> None:
    web = {"name": "web", "image": "registry.example/web:1"}
    await made(http, deployments, deployment(web))

    await changed(http, f"{deployments}/web/scale", {"spec": {"replicas": 3}})
    _, found = await ask(http, "GET", f"{deployments}/web")

    entries = {it["manager"]: it for it in found["metadata"]["managedFields"]}
    assert found["spec"]["replicas"] == 3
    assert "f:replicas" not in entries["maker"]["fieldsV1"]["f:spec"]
    assert entries["editor"] == {
        "manager": "editor",
        "operation": "Update",
        "apiVersion": "apps/v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": {"f:replicas": {}}},
        "subresource": "scale",
    }


async def test_scale_write_of_unowned_replicas_has_no_owner(
    http: aiohttp.ClientSession, deployments: str
) -> None:
    web = {"name": "web", "image": "registry.example/web:1"}
    old = await applied(http, deployments, deployment(web))

    await changed(http, f"{deployments}/web/scale", {"spec": {"replicas": 3}})
    _, found = await ask(http, "GET", f"{deployments}/web")

    assert found["spec"]["replicas"] == 3
    assert owned(found) == owned(old)
