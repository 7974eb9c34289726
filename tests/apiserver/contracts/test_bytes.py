"""Exact bytes of responses: order of keys, escapes, empty fields."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from api_calls import (
    WIDGETS_GROUP,
    a_pod,
    make,
    named,
    raw,
    watching,
    widget,
)
from each_case import each_case

if TYPE_CHECKING:
    import aiohttp
    from contract_servers import ServerUnderTest

# Fields that differ in each run.
VOLATILE = [
    (rb'"uid":"[-0-9a-f]{36}"', b'"uid":"U"'),
    (rb'"resourceVersion":"[0-9]+"', b'"resourceVersion":"7"'),
    (rb'"(creationTimestamp|time)":"[-0-9T:]+Z"', rb'"\1":"T"'),
    (rb'"manager":"[^"]*"', b'"manager":"M"'),
    (rb'"namespace":"test-[0-9a-f]+"', b'"namespace":"N"'),
]

METADATA = {
    "name": "raw",
    "labels": {"b": "1", "a": "2"},
    "annotations": {"z": "<a&b>\u2028\u2029", "a": ""},
    "finalizers": [],
    "ownerReferences": [],
}
OF_METADATA = (
    '"metadata":{"name":"raw","namespace":"N","uid":"U","resourceVersion":"7",'
    '"creationTimestamp":"T","labels":{"a":"2","b":"1"},"annotations":{"a":"",'
    r'"z":"\u003ca\u0026b\u003e\u2028\u2029"},"managedFields":[{"manager":"M",'
    '"operation":"Update","apiVersion":"v1","time":"T","fieldsType":"FieldsV1",'
    '"fieldsV1":{%s"f:metadata":{"f:annotations":{".":{},"f:a":{},"f:z":{}},'
    '"f:labels":{".":{},"f:a":{},"f:b":{}}}%s}}]}'
)
IN_BINARY = '"f:binaryData":{".":{},"f:x":{}},'
IN_DATA = '"f:data":{".":{},"f:a":{},"f:z":{}},'
MAP = (
    OF_METADATA % (IN_BINARY + IN_DATA, "")
    + r',"data":{"a":"é\u0001","z":"1"},"binaryData":{"x":"AAE="}'
)
SECRET = (
    OF_METADATA % (IN_DATA, ',"f:type":{}')
    + ',"data":{"a":"Mg==","z":"MQ=="},"type":"Opaque"'
)
WIDGET = (
    '{"aaa":1,"apiVersion":"example.com/v1","kind":"Widget","metadata":{"annotations":'
    r'{"a":"","z":"\u003ca\u0026b\u003e\u2028\u2029"},"creationTimestamp":"T",'
    '"generation":1,"labels":{"a":"2","b":"1"},"managedFields":[{"apiVersion":'
    '"example.com/v1","fieldsType":"FieldsV1","fieldsV1":{"f:aaa":{},"f:metadata":'
    '{"f:annotations":{".":{},"f:a":{},"f:z":{}},"f:labels":{".":{},"f:a":{},"f:b":'
    '{}}},"f:spec":{".":{},"f:a":{".":{},"f:b":{},"f:e":{},"f:l":{},"f:m":{},"f:n":{},'
    '"f:y":{}},"f:z":{}},"f:zzz":{}},"manager":"M","operation":"Update","time":"T"}],'
    '"name":"raw","namespace":"N","resourceVersion":"7","uid":"U"},"spec":{"a":{"b":2,'
    '"e":"","l":[],"m":{},"n":null,"y":1.5},"z":1},"zzz":true}'
)


def steady(answer: bytes) -> str:
    for pattern, constant in VOLATILE:
        answer = re.sub(pattern, constant, answer)

    return answer.decode()


async def make_widget(target: ServerUnderTest, http: aiohttp.ClientSession) -> str:
    path = target.path("widgets", WIDGETS_GROUP)
    inner: dict[str, Any] = {"y": 1.5, "b": 2.0, "n": None, "l": [], "m": {}, "e": ""}
    body = {"aaa": 1, "zzz": True, "spec": {"z": 1, "a": inner}, "metadata": METADATA}
    await make(http, path, {**widget("raw"), **body})
    return path


async def make_map(target: ServerUnderTest, http: aiohttp.ClientSession) -> str:
    path = target.path("configmaps")
    data = {"binaryData": {"x": "AAE="}, "data": {"z": "1", "a": "é\u0001"}}
    await make(http, path, {**data, "metadata": METADATA})
    return path


async def test_config_map_has_bytes_of_real_server(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = await make_map(target, http)
    typed = '{"kind":"ConfigMap","apiVersion":"v1",' + MAP + "}"

    one = steady(await raw(http, f"{path}/raw"))
    several = steady(await raw(http, path))
    async with watching(http, path) as watch:
        event = steady(await watch.content.readline())

    assert one == typed + "\n"
    assert several == (
        '{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"7"},'
        '"items":[{' + MAP + "}]}\n"
    )
    assert event == '{"type":"ADDED","object":' + typed + "}\n"


async def test_secret_has_bytes_of_real_server(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("secrets")
    data = {"type": "Opaque", "data": {"z": "MQ==", "a": "Mg=="}}
    await make(http, path, {**data, "metadata": METADATA})

    assert steady(await raw(http, f"{path}/raw")) == (
        '{"kind":"Secret","apiVersion":"v1",' + SECRET + "}\n"
    )


async def test_custom_resource_has_bytes_of_real_server(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = await make_widget(target, http)

    one = steady(await raw(http, f"{path}/raw"))
    several = steady(await raw(http, path))
    async with watching(http, path) as watch:
        event = steady(await watch.content.readline())

    assert one == WIDGET + "\n"
    assert several == (
        '{"apiVersion":"example.com/v1","items":['
        + WIDGET
        + '],"kind":"WidgetList","metadata":{"continue":"","resourceVersion":"7"}}\n'
    )
    assert event == '{"type":"ADDED","object":' + WIDGET + "}\n"


async def test_pod_has_bytes_of_real_server(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("pods")
    await make(http, path, a_pod("raw"))

    found = re.sub(
        r'"managedFields":\[.*?\]\},"spec"',
        '"managedFields":[...]},"spec"',
        steady(await raw(http, f"{path}/raw")),
    )

    assert found == (
        '{"kind":"Pod","apiVersion":"v1","metadata":{"name":"raw","namespace":"N",'
        '"uid":"U","resourceVersion":"7","generation":1,"creationTimestamp":"T",'
        '"managedFields":[...]},"spec":{"containers":[{"name":"main",'
        '"image":"registry.example/app:1","resources":{},'
        '"terminationMessagePath":"/dev/termination-log",'
        '"terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent"}],'
        '"restartPolicy":"Always","terminationGracePeriodSeconds":30,'
        '"dnsPolicy":"ClusterFirst","securityContext":{},'
        '"schedulerName":"default-scheduler","tolerations":['
        '{"key":"node.kubernetes.io/not-ready","operator":"Exists",'
        '"effect":"NoExecute","tolerationSeconds":300},'
        '{"key":"node.kubernetes.io/unreachable","operator":"Exists",'
        '"effect":"NoExecute","tolerationSeconds":300}],"priority":0,'
        '"enableServiceLinks":true,"preemptionPolicy":"PreemptLowerPriority"},'
        '"status":{"phase":"Pending","qosClass":"BestEffort"}}\n'
    )


async def test_key_order_of_body_does_not_affect_bytes(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("pods")
    container = {"image": "x:1", "command": ["<x>"], "name": "c"}
    env = [{"value": "1", "name": "B"}, {"name": "A", "value": ""}]
    body = {"spec": {"containers": [{"env": env, **container}]}}
    await make(http, path, {**body, **named("raw")})

    found = await raw(http, f"{path}/raw")

    # Empty values are dropped, and lists keep their order.
    assert (
        rb'"containers":[{"name":"c","image":"x:1","command":["\u003cx\u003e"],'
        rb'"env":[{"name":"B","value":"1"},{"name":"A"}],"resources":{}'
    ) in found


BLANKS = {
    "api/v1": {
        "configmaps": "",
        "secrets": "",
        "serviceaccounts": "",
        "endpoints": "",
        "pods": ',"spec":{"containers":null},"status":{}',
        "services": ',"spec":{},"status":{"loadBalancer":{}}',
        "events": ',"involvedObject":{},"source":{},"firstTimestamp":null,'
        '"lastTimestamp":null,"eventTime":null,"reportingComponent":"",'
        '"reportingInstance":""',
        "persistentvolumeclaims": ',"spec":{"resources":{}},"status":{}',
        "limitranges": ',"spec":{"limits":null}',
        "replicationcontrollers": ',"spec":{},"status":{"replicas":0}',
    },
    "apis/apps/v1": {
        "deployments": ',"spec":{"replicas":0,"selector":null,"template":{"metadata":'
        '{},"spec":{"containers":null}},"strategy":{}},"status":{}',
        "replicasets": ',"spec":{"replicas":0,"selector":null,"template":{"metadata":'
        '{},"spec":{"containers":null}}},"status":{"replicas":0}',
        "daemonsets": ',"spec":{"selector":null,"template":{"metadata":{},"spec":'
        '{"containers":null}},"updateStrategy":{}},"status":{"currentNumberScheduled"'
        ':0,"numberMisscheduled":0,"desiredNumberScheduled":0,"numberReady":0}',
    },
    "apis/batch/v1": {
        "jobs": ',"spec":{"template":{"metadata":{},"spec":{"containers":null}}},'
        '"status":{}',
    },
    "apis/coordination.k8s.io/v1": {"leases": ',"spec":{}'},
    "apis/networking.k8s.io/v1": {
        "ingresses": ',"spec":{},"status":{"loadBalancer":{}}',
    },
}


@each_case(
    "group_version, plural, blank",
    [
        pytest.param(group_version, plural, blank, id=plural)
        for group_version, blanks in BLANKS.items()
        for plural, blank in blanks.items()
    ],
)
async def test_bookmark_of_builtin_kind_is_empty_object(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    group_version: str,
    plural: str,
    blank: str,
) -> None:
    path = target.path(plural, group_version)
    params = {"allowWatchBookmarks": "true"}

    async with watching(http, path, **params) as watch:
        event = steady(await watch.content.readline())

    kind = re.search('"kind":"([A-Za-z]+)"', event)
    version = group_version.partition("/")[2]
    extra = ""
    if plural == "daemonsets":
        extra = '"deprecated.daemonset.template.generation":"0",'

    assert kind is not None
    assert event == (
        f'{{"type":"BOOKMARK","object":{{"kind":"{kind[1]}","apiVersion":"{version}",'
        f'"metadata":{{"resourceVersion":"7","annotations":{{{extra}'
        f'"k8s.io/initial-events-end":"true"}}}}{blank}}}}}\n'
    )


async def test_bookmark_of_custom_kind_has_sorted_keys(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("widgets", WIDGETS_GROUP)
    params = {"allowWatchBookmarks": "true"}

    async with watching(http, path, **params) as watch:
        event = steady(await watch.content.readline())

    assert event == (
        '{"type":"BOOKMARK","object":{"apiVersion":"example.com/v1","kind":"Widget",'
        '"metadata":{"annotations":{"k8s.io/initial-events-end":"true"},'
        '"resourceVersion":"7"}}}\n'
    )


async def test_status_keys_have_order_of_go_struct(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    found: Any
    async with http.get(target.path("configmaps") + "/none") as answer:
        assert answer.status == 404
        found = await answer.read()

    assert found == (
        b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",'
        b'"message":"configmaps \\"none\\" not found","reason":"NotFound",'
        b'"details":{"name":"none","kind":"configmaps"},"code":404}\n'
    )
