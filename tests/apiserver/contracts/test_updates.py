"""Updates: versions, uids, unknown fields, dry runs, namespaces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from api_calls import (
    WIDGETS_GROUP,
    a_pod,
    ask,
    change,
    make,
    named,
    names,
    patch,
    remove,
    version_of,
    widget,
)
from each_case import each_case

if TYPE_CHECKING:
    import aiohttp
    from contract_servers import ServerUnderTest


# -------------------------------------------------------------------- update


async def test_update_of_missing_object_is_404(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = f"{target.path('pods')}/web"

    for method, body in (("GET", None), ("PUT", a_pod("web")), ("DELETE", None)):
        code, status = await ask(http, method, path, body)

        assert (code, status["reason"]) == (404, "NotFound")
        assert status["message"] == 'pods "web" not found'
        assert status["details"] == {"name": "web", "kind": "pods"}


async def test_update_replaces_all_but_server_owned_fields(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")
    body = {
        "metadata": {"generateName": "a-", "labels": {"x": "y"}},
        "data": {"k": "1"},
    }
    old = await make(http, path, body)
    name = old["metadata"]["name"]
    given = {"creationTimestamp": "1999-01-01T00:00:00Z", "generation": 7}
    new = named(name, metadata=given, data={"k": "2"})

    code, found = await ask(http, "PUT", f"{path}/{name}", new)

    assert code == 200
    assert found["data"] == {"k": "2"}
    for field in ("uid", "creationTimestamp", "namespace"):
        assert found["metadata"][field] == old["metadata"][field]

    for field in ("labels", "generateName", "generation"):
        assert field not in found["metadata"]

    assert version_of(found) > version_of(old)


async def test_update_with_stale_version_is_409(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")
    stale = await make(http, path, named("a", data={"k": "1"}))
    await change(http, f"{path}/a", {"data": {"k": "2"}})

    code, status = await ask(http, "PUT", f"{path}/a", stale)

    assert (code, status["reason"]) == (409, "Conflict")
    assert status["message"] == (
        'Operation cannot be fulfilled on configmaps "a": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )
    assert status["details"] == {"name": "a", "kind": "configmaps"}
    assert (await ask(http, "GET", f"{path}/a"))[1]["data"] == {"k": "2"}


@pytest.mark.parametrize(
    ("version", "code"), [("", 200), ("0", 200), ("1", 409), ("x", 500)]
)
async def test_update_with_malformed_version_is_500(
    target: ServerUnderTest, http: aiohttp.ClientSession, version: str, code: int
) -> None:
    path = target.path("configmaps")
    await make(http, path, named("a"))
    body = named("a", metadata={"resourceVersion": version})

    answered, status = await ask(http, "PUT", f"{path}/a", body)

    assert answered == code
    if code == 500:
        assert status["message"] == 'strconv.ParseUint: parsing "x": invalid syntax'


async def test_update_without_changes_keeps_version(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")
    body = await make(http, path, named("a", data={"k": "<1>", "j": "é"}))

    code, same = await ask(http, "PUT", f"{path}/a", body)
    bare = named("a", metadata={"labels": {}}, data=body["data"], binaryData=None)
    _, again = await ask(http, "PUT", f"{path}/a", bare)

    assert (code, same) == (200, body)
    assert again == body


@pytest.mark.parametrize(
    ("given", "code", "text"),
    [
        pytest.param(
            {},
            400,
            "the name of the object (a based on URL) was undeterminable: name must be "
            "provided",
            id="nameless",
        ),
        pytest.param(
            {"name": "b"},
            400,
            "the name of the object (b) does not match the name on the URL (a)",
            id="renamed",
        ),
        pytest.param(
            {"name": "a", "namespace": "x"},
            400,
            "the namespace of the provided object does not match the namespace sent on "
            "the request",
            id="moved",
        ),
        pytest.param(
            {"name": "a", "deletionTimestamp": "2000-01-01T00:00:00Z"},
            422,
            'ConfigMap "a" is invalid: metadata.deletionTimestamp: Invalid value: '
            '"2000-01-01T00:00:00Z": field is immutable',
            id="deleted",
        ),
        pytest.param(
            {"name": "a", "deletionGracePeriodSeconds": 3},
            422,
            'ConfigMap "a" is invalid: metadata.deletionGracePeriodSeconds: Invalid '
            "value: 3: field is immutable",
            id="grace",
        ),
        pytest.param(
            {"name": "a", "finalizers": ["xy"]},
            422,
            'ConfigMap "a" is invalid: metadata.finalizers[0]: Invalid value: "xy": name '
            "is neither a standard finalizer name nor is it fully qualified",
            id="finalizer",
        ),
    ],
)
async def test_invalid_update_is_rejected(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    given: dict[str, Any],
    code: int,
    text: str,
) -> None:
    path = target.path("configmaps")
    await make(http, path, named("a"))

    answered, status = await ask(http, "PUT", f"{path}/a", {"metadata": given})

    assert (answered, status["message"]) == (code, text)


async def test_update_cannot_change_uid(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")
    made = await make(http, path, named("a"))
    given = {"metadata": {"name": "a", "uid": "another"}}

    code, status = await ask(http, "PUT", f"{path}/a", given)
    patched, problem = await patch(http, f"{path}/a", given)

    uid = made["metadata"]["uid"]
    assert (code, patched) == (409, 422)
    assert status["message"] == (
        'Operation cannot be fulfilled on configmaps "a": StorageError: invalid object, '
        f"Code: 4, Key: /registry/configmaps/{target.namespace}/a, ResourceVersion: 0, "
        "AdditionalErrorMsg: Precondition failed: UID in precondition: another, UID in "
        f"object meta: {uid}"
    )
    assert problem["message"] == (
        'ConfigMap "a" is invalid: metadata.uid: Invalid value: "another": '
        "field is immutable"
    )
    # Two rules report this error; the server removes the duplicate.
    assert len(problem["details"]["causes"]) == 2


async def test_creating_update_with_uid_of_deleted_object_conflicts(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("leases", "apis/coordination.k8s.io/v1")
    made = await make(http, path, named("a"))
    await remove(http, f"{path}/a")

    code, status = await ask(http, "PUT", f"{path}/a", made)

    assert code == 409
    assert status["message"] == (
        'Operation cannot be fulfilled on leases.coordination.k8s.io "a": StorageError: '
        f"invalid object, Code: 4, Key: /registry/leases/{target.namespace}/a, "
        "ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in "
        f"precondition: {made['metadata']['uid']}, UID in object meta: "
    )


async def test_creating_update_ignores_version(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("leases", "apis/coordination.k8s.io/v1")
    body = named("a", metadata={"resourceVersion": "5"})

    code, made = await ask(http, "PUT", f"{path}/a", body)

    assert code == 201
    assert version_of(made) != 5


async def test_custom_resource_update_requires_version(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("widgets", WIDGETS_GROUP)
    made = await make(http, path, widget("a"))

    without, status = await ask(http, "PUT", f"{path}/a", widget("a"))
    within, _ = await ask(http, "PUT", f"{path}/a", made)
    by_patch, _ = await patch(http, f"{path}/a", {"spec": {"x": 1}})

    assert (without, within, by_patch) == (422, 200, 200)
    assert status["message"] == (
        'widgets.example.com "a" is invalid: metadata.resourceVersion: Invalid value: 0: '
        "must be specified for an update"
    )


# -------------------------------------------------------------------- unknown fields


async def warned(
    http: aiohttp.ClientSession, method: str, path: str, body: object, **params: str
) -> tuple[int, dict[str, Any], str]:
    """Send a body, and return the status, the response and all warnings."""
    async with http.request(method, path, json=body, params=params) as answer:
        warnings = ", ".join(answer.headers.getall("Warning", []))
        return answer.status, await answer.json(), warnings


async def test_unknown_fields_are_dropped_with_warning(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")

    made = await warned(http, "POST", path, named("a", foo=1))
    put = await warned(http, "PUT", f"{path}/a", named("a", metadata={"bar": 1}))
    quiet = await warned(
        http, "PUT", f"{path}/a", named("a", foo=1), fieldValidation="Ignore"
    )

    assert (made[0], put[0], quiet[0]) == (201, 200, 200)
    assert "foo" not in made[1]
    assert made[2] == '299 - "unknown field \\"foo\\""'
    assert put[2] == '299 - "unknown field \\"metadata.bar\\""'
    assert quiet[2] == ""


async def test_strict_write_with_unknown_fields_is_rejected(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path, params = target.path("configmaps"), {"fieldValidation": "Strict"}

    code, status = await ask(http, "POST", path, named("a", foo=1), **params)

    assert code == 400
    assert status["message"] == (
        'ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding '
        'error: unknown field "foo"'
    )


async def test_duplicate_fields_are_reported(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path, headers = target.path("configmaps"), {"Content-Type": "application/json"}
    raw = b'{"metadata":{"name":"x","name":"a"},"foo":1}'

    async with http.post(path, data=raw, headers=headers) as answer:
        code, warnings = answer.status, answer.headers.getall("Warning", [])

    assert code == 201
    found = ", ".join(warnings)
    assert found == (
        '299 - "duplicate field \\"metadata.name\\"", 299 - "unknown field \\"foo\\""'
    )


@each_case(
    "raw, why, shown",
    [
        ("", "unexpected end of JSON input", "<empty>"),
        ('{"a" 1}', "invalid character '1' after object key", '{"a" 1}'),
        ("[1,]", "invalid character ']' looking for beginning of value", "5b312c5d"),
    ],
)
async def test_malformed_json_is_rejected(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    raw: str,
    why: str,
    shown: str,
) -> None:
    path, headers = target.path("configmaps"), {"Content-Type": "application/json"}

    async with http.post(path, data=raw, headers=headers) as answer:
        code, status = answer.status, await answer.json()

    assert code == 400
    assert status["message"] == (
        "the object provided is unrecognized (must be of type ConfigMap): couldn't get "
        f"version/kind; json parse error: {why} ({shown})"
    )


# -------------------------------------------------------------------- dry runs


async def test_dry_run_stores_nothing(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")
    old = await make(http, path, named("old", data={"k": "1"}))

    made = await ask(http, "POST", path, named("new"), dryRun="All")
    changed = await patch(http, f"{path}/old", {"data": {"k": "2"}}, dryRun="All")
    gone = await ask(http, "DELETE", f"{path}/old", dryRun="All")
    taken, _ = await ask(http, "POST", path, named("old"), dryRun="All")

    assert (made[0], changed[0], gone[0], taken) == (201, 200, 200, 409)
    assert "resourceVersion" not in made[1]["metadata"]
    assert made[1]["metadata"]["uid"]
    assert changed[1]["data"] == {"k": "2"}
    assert version_of(changed[1]) == version_of(old)
    assert gone[1]["details"]["uid"] == old["metadata"]["uid"]
    _, found = await ask(http, "GET", path)
    assert names(found) == ["old"]
    assert (await ask(http, "GET", f"{path}/old"))[1] == old


# -------------------------------------------------------------------- namespaces


async def test_system_namespaces_exist(http: aiohttp.ClientSession) -> None:
    _, found = await ask(http, "GET", "/api/v1/namespaces")

    first = {"default", "kube-node-lease", "kube-public", "kube-system"}
    assert first <= set(names(found))


async def test_create_in_missing_namespace_is_404(
    http: aiohttp.ClientSession,
) -> None:
    # Invalid objects, too: there is no namespace for them.
    path = "/api/v1/namespaces/no-shop/configmaps"
    code, status = await ask(http, "POST", path, named("A_"))

    assert code == 404
    assert status["message"] == 'namespaces "no-shop" not found'
    assert status["details"] == {"name": "no-shop", "kind": "namespaces"}


async def test_list_in_missing_namespace_is_empty(
    http: aiohttp.ClientSession,
) -> None:
    path = "/api/v1/namespaces/no-shop/configmaps"

    code, status = await ask(http, "GET", f"{path}/a")
    listed, found = await ask(http, "GET", path)

    assert (code, status["message"]) == (404, 'configmaps "a" not found')
    assert (listed, found["items"]) == (200, [])


@each_case("name", ["default", "kube-public", "kube-system"])
async def test_system_namespace_cannot_be_deleted(
    http: aiohttp.ClientSession, name: str
) -> None:
    code, status = await ask(http, "DELETE", f"/api/v1/namespaces/{name}", dryRun="All")

    assert (code, status["reason"]) == (403, "Forbidden")
    assert status["message"] == (
        f'namespaces "{name}" is forbidden: this namespace may not be deleted'
    )


async def test_terminating_namespace_rejects_creates(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    held = named("held", metadata={"finalizers": ["example.com/wait"]})
    path = target.path("configmaps")
    await make(http, path, held)

    code, waiting = await ask(http, "DELETE", f"/api/v1/namespaces/{target.namespace}")
    refused, status = await ask(http, "POST", path, named("late"))
    await change(http, f"{path}/held", {"metadata": {"finalizers": None}})

    assert code == 200
    assert waiting["status"] == {"phase": "Terminating"}
    assert "deletionTimestamp" in waiting["metadata"]
    assert "deletionGracePeriodSeconds" not in waiting["metadata"]
    assert refused == 403
    assert status["message"] == (
        'configmaps "late" is forbidden: unable to create new content in namespace '
        f"{target.namespace} because it is being terminated"
    )
    assert status["details"]["causes"] == [
        {
            "reason": "NamespaceTerminating",
            "message": f"namespace {target.namespace} is being terminated",
            "field": "metadata.namespace",
        }
    ]
