"""JSON merge patches and JSON patches."""

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
    patch,
    version_of,
    widget,
)
from each_case import each_case

if TYPE_CHECKING:
    import aiohttp
    from contract_servers import ServerUnderTest

REJECTED = "the server rejected our request due to an error in our request"
UNDETERMINABLE = (
    "the name of the object (a based on URL) was undeterminable: name must be provided"
)
UNMARSHAL = "error decoding patch: json: cannot unmarshal"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"


async def json_patch(
    http: aiohttp.ClientSession, path: str, *operations: object, **params: str
) -> tuple[int, dict[str, Any]]:
    """Send a JSON patch."""
    media = "application/json-patch+json"
    return await ask(http, "PATCH", path, operations, content_type=media, **params)


def op(action: str, path: str, *value: object, **fields: object) -> dict[str, object]:
    given = {"value": value[0]} if value else {}
    return {"op": action, "path": path, **given, **fields}


@pytest.fixture
async def one(target: ServerUnderTest, http: aiohttp.ClientSession) -> str:
    """Create a ConfigMap, and return its path."""
    path = target.path("configmaps")
    await make(http, path, named("a", data={"x": "1", "y": "2"}))
    return f"{path}/a"


# -------------------------------------------------------------------- merge patches


async def test_merge_patch_merges_objects(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("widgets", WIDGETS_GROUP)
    spec = {"keep": 1, "drop": 2, "list": [1, 2], "deep": {"a": 1}}
    await make(http, path, widget("a", spec=spec))
    content = {"spec": {"drop": None, "list": [3], "deep": {"b": None, "c": 2}}}

    new = await change(http, f"{path}/a", content)

    assert new["spec"] == {"keep": 1, "list": [3], "deep": {"a": 1, "c": 2}}


async def test_patch_without_changes_keeps_version(
    target: ServerUnderTest, http: aiohttp.ClientSession, one: str
) -> None:
    made = await change(http, one, {"metadata": {"labels": {"a": "b"}}})

    nothing = {"metadata": {"labels": {"a": "b", "absent": None}}, "kind": None}
    same = await change(http, one, nothing)
    _, again = await json_patch(http, one, op("replace", "/data/x", "1"))

    assert same == again == made


async def test_patch_with_stale_version_is_409(
    http: aiohttp.ClientSession, one: str
) -> None:
    _, found = await ask(http, "GET", one)
    version = str(version_of(found))
    content = {"metadata": {"resourceVersion": version, "labels": {"a": "b"}}}

    first, _ = await patch(http, one, content)
    second, status = await patch(http, one, content)
    without, _ = await patch(http, one, {"metadata": {"resourceVersion": None}})

    assert (first, second, without) == (200, 409, 200)
    assert status["reason"] == "Conflict"


@each_case(
    "content, code, text",
    [
        pytest.param(
            [1],
            400,
            f"{UNMARSHAL} array into Go value of type map[string]interface {{}}",
            id="list",
        ),
        pytest.param(
            1,
            400,
            f"{UNMARSHAL} number into Go value of type map[string]interface {{}}",
            id="number",
        ),
        pytest.param({"metadata": None}, 400, UNDETERMINABLE, id="no-metadata"),
        pytest.param({"apiVersion": None}, 400, UNDETERMINABLE, id="no-version"),
        pytest.param(
            {"metadata": {"name": "b"}},
            400,
            "the name of the object (b) does not match the name on the URL (a)",
            id="name",
        ),
        pytest.param(
            {"metadata": {"namespace": "b"}},
            400,
            "the namespace of the provided object does not match the namespace sent on "
            "the request",
            id="namespace",
        ),
        pytest.param(
            {"metadata": {"resourceVersion": "x"}},
            500,
            'strconv.ParseUint: parsing "x": invalid syntax',
            id="version",
        ),
    ],
)
async def test_invalid_result_of_merge_patch_is_rejected(
    http: aiohttp.ClientSession, one: str, content: object, code: int, text: str
) -> None:
    answered, status = await patch(http, one, content)

    assert (answered, status["message"]) == (code, text)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        pytest.param(
            {"data": [1]},
            "json: cannot unmarshal array into Go struct field ConfigMap.data of type "
            "map[string]string",
            id="type",
        ),
        pytest.param(
            {"kind": "Pod"},
            "converting (v1.Pod) to (core.ConfigMap): unknown conversion",
            id="kind",
        ),
    ],
)
async def test_patch_result_must_be_object_of_its_kind(
    http: aiohttp.ClientSession, one: str, content: object, why: str
) -> None:
    code, status = await patch(http, one, content)

    (cause,) = status["details"]["causes"]
    assert (code, status["reason"]) == (422, "Invalid")
    assert status["message"].startswith(
        ' "" is invalid: patch: Invalid value: "{\\"apiVersion\\":\\"v1\\",\\"data\\":'
    )
    assert status["message"].endswith(f'": {why}')
    assert (cause["field"], cause["reason"]) == ("patch", "FieldValueInvalid")


async def test_patch_with_unknown_field_warns_unless_strict(
    http: aiohttp.ClientSession, one: str
) -> None:
    strictly, status = await patch(http, one, {"foo": 1}, fieldValidation="Strict")
    async with http.patch(
        one, data='{"foo":1}', headers={"Content-Type": MERGE}
    ) as answer:
        code, warnings = answer.status, answer.headers.getall("Warning")

    assert strictly == 422
    assert status["message"].endswith('strict decoding error: unknown field "foo"')
    assert (code, warnings) == (200, ['299 - "unknown field \\"foo\\""'])


async def test_patch_of_missing_object_is_404(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")

    merged, status = await patch(http, f"{path}/a", {})
    operated, _ = await json_patch(http, f"{path}/a", op("frob", "/x"))

    assert (merged, operated) == (404, 404)
    assert status["message"] == 'configmaps "a" not found'


@each_case(
    "raw, why",
    [
        ("", "unexpected end of JSON input"),
        ('{"data":', "unexpected end of JSON input"),
        ("{} x", "invalid character 'x' after top-level value"),
        (
            "{'a':1}",
            r"invalid character '\'' looking for beginning of object key string",
        ),
    ],
)
async def test_malformed_patch_of_missing_object_is_404(
    http: aiohttp.ClientSession, one: str, raw: str, why: str
) -> None:
    for media, prefix in ((MERGE, "error decoding patch: "), (STRATEGIC, "")):
        headers = {"Content-Type": media}
        async with http.patch(one, data=raw, headers=headers) as answer:
            code, status = answer.status, await answer.json()

        async with http.patch(f"{one}-no", data=raw, headers=headers) as answer:
            assert answer.status == 404

        assert (code, status["message"]) == (400, prefix + why)


async def test_unknown_patch_type_is_415(http: aiohttp.ClientSession, one: str) -> None:
    code, status = await ask(http, "PATCH", one, {}, content_type="application/json")

    assert (code, status["reason"]) == (415, "UnsupportedMediaType")


async def test_media_type_is_case_insensitive_except_for_patches(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path, merge = target.path("configmaps"), "Application/Merge-Patch+JSON"

    created = await ask(
        http,
        "POST",
        path,
        named("case"),
        content_type="Application/JSON; charset=UTF-8",
    )
    patched = await ask(http, "PATCH", f"{path}/case", {}, content_type=merge)

    assert (created[0], patched[0]) == (201, 415)


async def test_patch_cannot_change_type_of_custom_resource(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("widgets", WIDGETS_GROUP)
    await make(http, path, widget("a"))

    found = [
        await patch(http, f"{path}/a", content)
        for content in (
            {"kind": "Gadget"},
            {"apiVersion": "example.com/v2"},
            {"kind": None},
            {"apiVersion": None},
        )
    ]

    assert [code for code, _ in found] == [422, 422, 422, 500]
    texts = [status["message"] for _, status in found]
    assert texts[0] == (
        'Gadget.example.com "a" is invalid: kind: Invalid value: "Gadget": must be Widget'
    )
    assert texts[1] == (
        'Widget.example.com "a" is invalid: apiVersion: Invalid value: "example.com/v2": '
        "must be example.com/v1"
    )
    assert "\": Object 'Kind' is missing in '{" in texts[2]
    assert texts[3] == (
        "Internal error occurred: Object 'apiVersion' is missing in 'object has no "
        "apiVersion field'"
    )


# -------------------------------------------------------------------- JSON patches


async def test_json_patch_operations_apply_in_order(
    http: aiohttp.ClientSession, one: str
) -> None:
    code, new = await json_patch(
        http,
        one,
        op("test", "/data", {"y": "2", "x": "1"}),
        op("add", "/data/z", "3"),
        op("move", "/data/w", **{"from": "/data/x"}),
        op("copy", "/data/v", **{"from": "/data/w"}),
        op("remove", "/data/y"),
        op("replace", "/data/z", "4"),
        op("add", "/metadata/annotations", {}),
        op("add", "/metadata/annotations/example.com~1a~0b", "c"),
        op("remove", "/metadata/annotations/example.com~1a~0b"),
        op("add", "/metadata/finalizers", ["example.com/a"]),
        op("add", "/metadata/finalizers/-", "example.com/c"),
        op("add", "/metadata/finalizers/1", "example.com/b"),
        op("remove", "/metadata/finalizers/0"),
    )
    await change(http, one, {"metadata": {"finalizers": None}})

    assert code == 200
    assert new["data"] == {"z": "4", "w": "1", "v": "1"}
    assert "annotations" not in new["metadata"]
    assert new["metadata"]["finalizers"] == ["example.com/b", "example.com/c"]


async def test_json_patch_is_more_lenient_than_rfc(
    http: aiohttp.ClientSession, one: str
) -> None:
    code, new = await json_patch(
        http,
        one,
        op("replace", "/data/new", "3"),
        op("test", "/data/missing", None),
        op("add", "/data/empty"),
        op("add", "ignored/data/y", "9"),
        op("add", "/metadata/finalizers", ["example.com/a", "example.com/b"]),
        op("remove", "/metadata/finalizers/-1"),
        op("add", "/metadata/finalizers/-1", "example.com/c"),
        op("copy", "/metadata/labels", **{"from": "/metadata/missing"}),
    )
    await change(http, one, {"metadata": {"finalizers": None}})

    assert code == 200
    assert new["data"] == {"x": "1", "y": "9", "new": "3", "empty": ""}
    assert new["metadata"]["finalizers"] == ["example.com/a", "example.com/c"]


@each_case(
    "operation",
    [
        pytest.param(op("test", "/data/x", "2"), id="test"),
        pytest.param(op("test", "/data/missing", "2"), id="test-missing"),
        pytest.param(op("remove", "/data/missing"), id="remove-missing"),
        pytest.param(op("remove", "/missing/x"), id="remove-deep"),
        pytest.param(op("add", "/missing/x", "1"), id="add-deep"),
        pytest.param(op("add", "/data/x/y", "1"), id="below-a-text"),
        pytest.param(op("move", "/data/z", **{"from": "/data/no"}), id="move-missing"),
        pytest.param(op("move", "/data/z"), id="move-from-nowhere"),
        pytest.param(op("copy", "/data/z", **{"from": "/no/no"}), id="copy-missing"),
        pytest.param(op("add", "/metadata/managedFields/9", {}), id="index"),
        pytest.param(op("remove", "/metadata/managedFields/x"), id="no-index"),
        pytest.param(op("add", "", {}), id="add-all"),
        pytest.param(op("remove", ""), id="remove-all"),
        pytest.param(op("frob", "/data/x"), id="unknown"),
        pytest.param({"path": "/data/x"}, id="no-op"),
        pytest.param({"op": "remove"}, id="no-path"),
        pytest.param(None, id="null"),
    ],
)
async def test_inapplicable_json_patch_operation_is_422(
    http: aiohttp.ClientSession, one: str, operation: object
) -> None:
    _, before = await ask(http, "GET", one)

    code, status = await json_patch(http, one, op("add", "/data/z", "1"), operation)

    assert (code, status["reason"], status["message"]) == (422, "Invalid", REJECTED)
    assert (await ask(http, "GET", one))[1] == before


@each_case(
    "content, code, text",
    [
        pytest.param(
            {"data": {}},
            400,
            f"{UNMARSHAL} object into Go value of type []handlers.jsonPatchOp",
            id="object",
        ),
        pytest.param(
            [1],
            400,
            f"{UNMARSHAL} number into Go value of type handlers.jsonPatchOp",
            id="number",
        ),
        pytest.param(
            [{"op": "add", "path": 1}],
            400,
            f"{UNMARSHAL} number into Go struct field jsonPatchOp.path of type string",
            id="path",
        ),
        pytest.param(
            [op("test", "/data/x", "1")] * 10_001,
            413,
            "Request entity too large: The allowed maximum operations in a JSON patch "
            "is 10000, got 10001",
            id="many",
        ),
        pytest.param(
            [op("replace", "", {"metadata": {"name": "a"}})],
            400,
            UNDETERMINABLE,
            id="replace-all",
        ),
    ],
)
async def test_malformed_json_patch_is_rejected(
    http: aiohttp.ClientSession, one: str, content: object, code: int, text: str
) -> None:
    media = "application/json-patch+json"

    answered, status = await ask(http, "PATCH", one, content, content_type=media)

    assert (answered, status["message"]) == (code, text)


async def test_json_patch_test_compares_numbers_by_text(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("pods")
    await make(http, path, a_pod("a"))
    where = "/spec/terminationGracePeriodSeconds"

    found = [
        (await json_patch(http, f"{path}/a", op("test", where, value)))[0]
        for value in (30, 30.0, "30", True)
    ]

    assert found == [200, 422, 422, 422]


@each_case(
    "content, why",
    [
        ({"data": [1]}, "cannot restore map from slice"),
        ({"data": "x"}, "cannot restore map from string"),
        ({"data": {"a": 1}}, "cannot convert int64 to string"),
        ({"data": {"a": [1]}}, "unrecognized type: string"),
        ({"immutable": "x"}, "unrecognized type: bool"),
        ({"metadata": {"finalizers": "x"}}, "cannot restore slice from string"),
    ],
)
async def test_strategic_patch_with_wrong_type_has_own_error(
    http: aiohttp.ClientSession, one: str, content: dict[str, Any], why: str
) -> None:
    code, status = await ask(http, "PATCH", one, content, content_type=STRATEGIC)

    assert code == 422
    assert status["message"].endswith(f": {why}")
