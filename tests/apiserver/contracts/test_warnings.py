"""Warnings about writes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from api_calls import WIDGETS_GROUP, a_pod, change, make, named, widget

if TYPE_CHECKING:
    import aiohttp
    from contract_servers import ServerUnderTest

MERGE = "application/merge-patch+json"
JOBS = "apis/batch/v1"
PRESERVED = (
    "child pods are preserved by default when jobs are deleted; set "
    "propagationPolicy=Background to remove them or set propagationPolicy=Orphan to "
    "suppress this warning"
)
FINALIZER = (
    'metadata.finalizers: "{}": prefer a domain-qualified finalizer name to avoid '
    "accidental conflicts with other finalizer writers"
)


async def warned(
    http: aiohttp.ClientSession,
    method: str,
    path: str,
    body: object = None,
    **params: str,
) -> tuple[int, list[str]]:
    """Send a request, and return the status and all warnings."""
    data = body if isinstance(body, str) else json.dumps(body)
    media = MERGE if method == "PATCH" else "application/json"
    async with http.request(
        method,
        path,
        data=None if body is None else data,
        headers={"Content-Type": media},
        params=params,
    ) as answer:
        headers = answer.headers.getall("Warning", [])
        return answer.status, [_text(it) for it in headers]


def _text(header: str) -> str:
    start, quoted = header[:6], header[6:]
    assert (start, quoted[0], quoted[-1]) == ("299 - ", '"', '"')
    return quoted[1:-1].replace('\\"', '"').replace("\\\\", "\\")


def unknown(*fields: str) -> list[str]:
    return [f'unknown field "{it}"' for it in fields]


@pytest.mark.parametrize(
    ("code", "method", "name", "body"),
    [
        pytest.param(422, "POST", "", named("x", labels={"a": "?"}), id="invalid"),
        pytest.param(409, "POST", "", named("a"), id="exists"),
        pytest.param(
            400, "POST", "", named("x", metadata={"namespace": "y"}), id="elsewhere"
        ),
        pytest.param(404, "PUT", "/x", named("x"), id="missing"),
        pytest.param(400, "PUT", "/x", named("y"), id="other-name"),
        pytest.param(
            409, "PUT", "/a", named("a", metadata={"resourceVersion": "1"}), id="stale"
        ),
        pytest.param(409, "PUT", "/a", named("a", metadata={"uid": "x"}), id="other"),
        pytest.param(
            422, "PATCH", "/a", {"metadata": {"labels": {"a": "?"}}}, id="patched"
        ),
    ],
)
async def test_rejected_write_warns_about_unknown_fields(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    code: int,
    method: str,
    name: str,
    body: dict[str, Any],
) -> None:
    path = target.path("configmaps")
    await make(http, path, named("a"))

    refused = await warned(http, method, path + name, {**body, "foo": 1})

    assert refused == (code, unknown("foo"))


async def test_patch_of_missing_object_has_no_warnings(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")

    assert await warned(http, "PATCH", f"{path}/x", {"foo": 1}) == (404, [])


async def test_each_warning_has_own_header(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    pod = a_pod("a", spec={"foo": 1, "bar": 2})

    made = await warned(http, "POST", target.path("pods"), pod, dryRun="All")

    assert made == (201, unknown("spec.foo", "spec.bar"))


async def test_control_characters_in_warnings_are_escaped(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")
    strange = {"a\nb": 1, 'é"x\\': 2, "\x7f": 3, "\u2028": 4, "\U000e0001": 5}

    made = await warned(http, "POST", path, named("a", **strange), dryRun="All")

    escaped = unknown(r"a\nb", r"é\"x\\", r"\x7f", r"\u2028", r"\U000e0001")
    assert made == (201, escaped)


async def test_long_warnings_are_truncated(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")
    fields = [f"{number}{'x' * 1000}" for number in range(6)]

    _, reported = await warned(
        http, "POST", path, named("a", **dict.fromkeys(fields, 1)), dryRun="All"
    )

    assert reported == [it[:256] for it in unknown(*fields)]


async def test_excess_warnings_are_dropped(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")
    fields = [f"{number:03}{'x' * 61}" for number in range(200)]

    _, reported = await warned(
        http, "POST", path, named("a", **dict.fromkeys(fields, 1)), dryRun="All"
    )

    # 80 characters each
    assert reported == unknown(*fields)[:52]


async def test_finalizer_warning_requires_valid_object(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("widgets", WIDGETS_GROUP)
    body = widget("a", metadata={"finalizers": ["mine"]})
    invalid = widget("b", metadata={"finalizers": ["mine"]}, labels={"a": "?"})

    refused = await warned(http, "POST", path, invalid)
    made = await warned(http, "POST", path, body)
    again = await warned(http, "POST", path, body)
    change_of_two = {"metadata": {"finalizers": ["mine", "yours"]}}
    changed = await warned(http, "PATCH", f"{path}/a", change_of_two)

    await change(http, f"{path}/a", {"metadata": {"finalizers": None}})
    assert refused == (422, [])
    assert made == (201, [FINALIZER.format("mine")])
    assert again == (409, [FINALIZER.format("mine")])
    assert changed == (200, [FINALIZER.format("yours")])


async def test_job_delete_warns_about_pods(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("jobs", JOBS)
    policy = {"propagationPolicy": "Orphan"}

    assert await warned(http, "DELETE", f"{path}/x") == (404, [PRESERVED])
    assert await warned(http, "DELETE", path) == (200, [PRESERVED])
    assert await warned(http, "DELETE", f"{path}/x", **policy) == (404, [])
    assert await warned(http, "DELETE", path, **policy) == (200, [])
