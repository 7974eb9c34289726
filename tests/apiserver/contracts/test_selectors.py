"""Label and field selectors of lists."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from api_calls import (
    WIDGETS_GROUP,
    a_pod,
    an_event,
    ask,
    make,
    named,
    names,
    patch,
    widget,
)
from each_case import each_case

if TYPE_CHECKING:
    import aiohttp
    from contract_servers import ServerUnderTest


LABEL_SELECTIONS = [
    ("app=web", ["a", "b"]),
    ("app==web,tier!=back", ["a"]),
    ("tier in (front, back)", ["a", "b"]),
    ("app notin (web)", ["c", "d"]),
    ("tier", ["a", "b"]),
    ("!tier", ["c", "d"]),
    ("! tier", ["c", "d"]),
    ("weight>3", ["b"]),
    ("weight<04", ["a"]),
    ("app=", ["d"]),
    ("app in (,web)", ["a", "b", "d"]),
    ("app in ()", ["d"]),
    ("app in (,,)", ["d"]),
    ("app in (web,,)", ["a", "b", "d"]),
    (" app = web ", ["a", "b"]),
    ("in", []),
    ("in notin (in)", ["a", "b", "c", "d"]),
    ("", ["a", "b", "c", "d"]),
]


async def test_label_selector_selects_objects(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")
    front = {"app": "web", "tier": "front", "weight": "3"}
    back = {"app": "web", "tier": "back", "weight": "4"}
    of = {"a": front, "b": back, "c": {"app": "db"}, "d": {"app": ""}}
    for name, labels in of.items():
        await make(http, path, named(name, labels=labels))

    for selector, expected in LABEL_SELECTIONS:
        _, found = await ask(http, "GET", path, labelSelector=selector)

        assert names(found) == expected, selector


NAME_RULE = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex "
    "used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)


@each_case(
    "selector, message",
    [
        ("=a", "found '=', expected: !, identifier, or 'end of string'"),
        (",", "found ',', expected: !, identifier, or 'end of string'"),
        ("a=b,", "found '', expected: identifier after ','"),
        ("a=b,,c", "found ',', expected: identifier after ','"),
        ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        ("a=b=c", "found '=', expected: ',' or 'end of string'"),
        ("!a=b", "found '=', expected: ',' or 'end of string'"),
        ("a in (b))", "found ')', expected: ',' or 'end of string'"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("a=(b)", "unable to parse requirement: found '(', expected: identifier"),
        (
            "a b",
            (
                "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, "
                "gt, lt"
            ),
        ),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        (
            "a in (",
            "unable to parse requirement: found '', expected: ',', ')' or identifier",
        ),
        ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
        (
            "a>b",
            (
                "unable to parse requirement: values[0]: Invalid value: \"b\": for 'Gt', "
                "'Lt' operators, the value must be an integer"
            ),
        ),
        (
            "a/b/c",
            (
                'unable to parse requirement: <nil>: Invalid value: "a/b/c": a valid label '
                f"key {NAME_RULE} with an optional DNS subdomain prefix and '/' (e.g. "
                "'example.com/MyName')"
            ),
        ),
        (
            "-a",
            'unable to parse requirement: <nil>: Invalid value: "-a": name part '
            + NAME_RULE,
        ),
        (
            "/a",
            (
                'unable to parse requirement: <nil>: Invalid value: "/a": prefix part must '
                "be non-empty"
            ),
        ),
        (
            f"a={'b' * 64}",
            (
                f'unable to parse requirement: values[0][a]: Invalid value: "{"b" * 64}": '
                "must be no more than 63 bytes"
            ),
        ),
    ],
)
async def test_malformed_label_selector_is_400(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    selector: str,
    message: str,
) -> None:
    path = target.path("configmaps")

    for more in ({}, {"watch": "1"}):
        code, status = await ask(http, "GET", path, labelSelector=selector, **more)

        assert (code, status["reason"]) == (400, "BadRequest")
        assert status["message"] == message


# -------------------------------------------------------------------- fields


POD_SELECTIONS = [
    ("metadata.name=a", ["a"]),
    ("metadata.name==a", ["a"]),
    ("metadata.name!=a", ["b"]),
    ("metadata.name=a,metadata.name=b", []),
    ("metadata.name=", []),
    ("metadata.namespace=elsewhere", []),
    ("spec.nodeName=n1", ["a"]),
    ("spec.nodeName=", ["b"]),
    ("spec.restartPolicy=Never", ["b"]),
    ("spec.schedulerName=default-scheduler", ["a", "b"]),
    ("spec.hostNetwork=false", ["a", "b"]),
    ("status.phase!=Pending", ["a"]),
    ("status.phase=Pending,spec.nodeName=n1", []),
    ("status.podIP=", ["a", "b"]),
    ("", ["a", "b"]),
    (",", ["a", "b"]),
    ("=", ["a", "b"]),
]


async def test_field_selector_selects_pods(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("pods")
    await make(http, path, a_pod("a", spec={"nodeName": "n1"}))
    await make(http, path, a_pod("b", spec={"restartPolicy": "Never"}))
    running = {"status": {"phase": "Running"}}
    code, _ = await patch(http, f"{path}/a/status", running)
    assert code == 200

    for selector, expected in POD_SELECTIONS:
        _, found = await ask(http, "GET", path, fieldSelector=selector)

        assert names(found) == expected, selector


async def test_field_selector_matches_namespace(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    await make(http, target.path("configmaps"), named("a"))

    _, found = await ask(
        http,
        "GET",
        "/api/v1/configmaps",
        fieldSelector=f"metadata.namespace={target.namespace}",
    )

    assert names(found) == ["a"]


EVENT_SELECTIONS = [
    ("involvedObject.name=web", ["a"]),
    ("involvedObject.kind=Pod", ["a", "b"]),
    ("involvedObject.namespace=", []),
    ("involvedObject.uid=u-1", ["a"]),
    ("involvedObject.fieldPath=spec", ["b"]),
    ("involvedObject.apiVersion=v1", ["b"]),
    ("involvedObject.resourceVersion=", ["a", "b"]),
    ("reason=Failed", ["b"]),
    ("type=Normal", ["a"]),
    ("source=kubelet", ["b"]),
    # Without a source, the reporting component is the source.
    ("source=example.com/a", ["a"]),
    ("reportingComponent=example.com/a", ["a"]),
    ("reportingComponent=", ["b"]),
]


async def test_field_selector_selects_events(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("events")
    about = {"kind": "Pod", "namespace": target.namespace}
    web = {**about, "name": "web", "uid": "u-1"}
    db = {**about, "name": "db", "fieldPath": "spec", "apiVersion": "v1"}
    first = {"involvedObject": web, "type": "Normal"}
    reporter = {"reportingComponent": "example.com/a"}
    second = {"involvedObject": db, "type": "Warning", "reason": "Failed"}
    source = {"source": {"component": "kubelet"}}
    await make(http, path, an_event("a", target.namespace, **first, **reporter))
    await make(http, path, an_event("b", target.namespace, **second, **source))

    for selector, expected in EVENT_SELECTIONS:
        _, found = await ask(http, "GET", path, fieldSelector=selector)

        assert names(found) == expected, selector


async def test_field_selector_selects_secrets_by_type(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("secrets")
    await make(http, path, named("a"))
    await make(http, path, named("b", type="example.com/other"))

    _, found = await ask(http, "GET", path, fieldSelector="type=Opaque")

    assert names(found) == ["a"]


ONLY = 'is not a known field selector: only "metadata.name", "metadata.namespace"'


@each_case(
    "plural, group_version, message",
    [
        ("configmaps", "api/v1", f'"spec.unheard" {ONLY}'),
        ("deployments", "apis/apps/v1", f'"spec.unheard" {ONLY}'),
        ("replicasets", "apis/apps/v1", f'"spec.unheard" {ONLY}'),
        ("leases", "apis/coordination.k8s.io/v1", f'"spec.unheard" {ONLY}'),
        ("pods", "api/v1", "field label not supported: spec.unheard"),
        ("events", "api/v1", "field label not supported: spec.unheard"),
        ("secrets", "api/v1", "field label not supported: spec.unheard"),
        ("services", "api/v1", "field label not supported: spec.unheard"),
        ("widgets", WIDGETS_GROUP, "field label not supported: spec.unheard"),
        (
            "jobs",
            "apis/batch/v1",
            'field label "spec.unheard" not supported for Job',
        ),
    ],
)
async def test_unsupported_field_selector_is_400(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    plural: str,
    group_version: str,
    message: str,
) -> None:
    path = target.path(plural, group_version)
    both = "spec.unheard!=a,zzz.unheard=b"

    known, _ = await ask(http, "GET", path, fieldSelector="metadata.name=a")
    code, status = await ask(http, "GET", path, fieldSelector=both)

    assert (known, code, status["reason"]) == (200, 400, "BadRequest")
    assert status["message"] == message


@pytest.mark.parametrize("plural", ["nodes", "namespaces"])
async def test_cluster_scoped_kind_rejects_namespace_selector(
    target: ServerUnderTest, http: aiohttp.ClientSession, plural: str
) -> None:
    code, status = await ask(
        http, "GET", f"/api/v1/{plural}", fieldSelector="metadata.namespace=a"
    )

    assert code == 400
    assert status["message"] == "field label not supported: metadata.namespace"


@each_case(
    "selector, message",
    [
        (
            "metadata.name",
            "invalid selector: 'metadata.name'; can't understand 'metadata.name'",
        ),
        (
            "metadata.name=a,b",
            "invalid selector: 'metadata.name=a,b'; can't understand 'b'",
        ),
        (
            "metadata.name=a=b",
            "invalid field selector: unescaped character in value: 61",
        ),
        (
            "metadata.name===a",
            "invalid field selector: unescaped character in value: 61",
        ),
        (
            r"metadata.name=a\b",
            r"invalid field selector: invalid escape sequence: \b",
        ),
        ("metadata.name=a\\", "invalid field selector: invalid escape sequence: \\"),
        ("=a", f'"" {ONLY}'),
        (" metadata.name=a", f'" metadata.name" {ONLY}'),
        ('"a"=a', rf'"\"a\"" {ONLY}'),
    ],
)
async def test_malformed_field_selector_is_400(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    selector: str,
    message: str,
) -> None:
    path = target.path("configmaps")

    for more in ({}, {"watch": "1"}):
        code, status = await ask(http, "GET", path, fieldSelector=selector, **more)

        assert (code, status["reason"]) == (400, "BadRequest")
        assert status["message"] == message


async def test_field_selector_values_can_be_escaped(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("configmaps")
    await make(http, path, named("a"))

    selectors = (r"metadata.name=a\,b", r"metadata.name!=\=\\", "metadata.name= a")
    found = [await ask(http, "GET", path, fieldSelector=it) for it in selectors]

    assert [code for code, _ in found] == [200, 200, 200]
    assert [names(answer) for _, answer in found] == [[], ["a"], []]


async def test_label_and_field_selectors_combine(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("widgets", WIDGETS_GROUP)
    for name in ("a", "b"):
        await make(http, path, widget(name, labels={"app": "web"}))

    await make(http, path, widget("c"))
    _, found = await ask(
        http, "GET", path, labelSelector="app=web", fieldSelector="metadata.name!=a"
    )

    assert names(found) == ["b"]
