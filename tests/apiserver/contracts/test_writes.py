"""Creates: server-owned metadata, names, validation."""

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
    newest,
    version_of,
    widget,
)
from each_case import each_case
from kind_samples import SAMPLES

if TYPE_CHECKING:
    import aiohttp
    from contract_servers import ServerUnderTest

NAME_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, "
    "'-' or '.', and must start and end with an alphanumeric character (e.g. "
    "'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
KEY_RULE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or "
    "'123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', "
    "'_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',"
    "  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)

FINALIZER_RULE = "name is neither a standard finalizer name nor is it fully qualified"
BOTH_RULE = "finalizer orphan and foregroundDeletion cannot be both set"


def owner(name: str, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": name, **fields}


def problems(status: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the fields and messages of an error, without duplicates."""
    causes = status["details"]["causes"]
    return list(dict.fromkeys((it["field"], it["message"]) for it in causes))


# -------------------------------------------------------------------- create


async def test_create_completes_metadata(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    pods = target.path("pods")
    before = await newest(http, pods)
    code, pod = await ask(http, "POST", pods, a_pod("web"))

    metadata = pod["metadata"]
    assert code == 201
    assert (pod["kind"], pod["apiVersion"]) == ("Pod", "v1")
    assert pod["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    assert pod["spec"]["dnsPolicy"] == "ClusterFirst"
    assert metadata.pop("uid").count("-") == 4
    assert metadata.pop("creationTimestamp").endswith("Z")
    # Other clients may write meanwhile.
    assert before < version_of(pod) <= await newest(http, pods)
    del metadata["managedFields"], metadata["resourceVersion"]
    assert metadata == {"name": "web", "namespace": target.namespace, "generation": 1}


async def test_create_ignores_server_owned_metadata(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    given = {
        "uid": "mine",
        "selfLink": "/mine",
        "creationTimestamp": "1999-01-01T00:00:00Z",
        "deletionTimestamp": "1999-01-01T00:00:00Z",
        "deletionGracePeriodSeconds": 3,
        "generation": 7,
        "resourceVersion": "0",
    }

    made = await make(http, target.path("configmaps"), named("a", metadata=given))

    # Kinds without a generation keep the given one.
    kept = {"name": "a", "namespace": target.namespace, "generation": 7}
    found = made["metadata"]
    assert kept.items() <= found.items()
    assert "deletionTimestamp" not in found
    assert "deletionGracePeriodSeconds" not in found
    assert "selfLink" not in found
    assert found["uid"] != "mine"
    assert found["creationTimestamp"] > "2000"


async def test_create_generates_name(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    body = {"metadata": {"generateName": "web-"}}

    found = [await make(http, target.path("configmaps"), body) for _ in range(20)]

    names = {made["metadata"]["name"] for made in found}
    assert len(names) == 20
    assert all(name.startswith("web-") and len(name) == 9 for name in names)
    assert found[0]["metadata"]["generateName"] == "web-"


async def test_long_generate_name_is_truncated(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    body = {"metadata": {"generateName": "a" * 70}}

    made = await make(http, target.path("configmaps"), body)

    assert len(made["metadata"]["name"]) == 63


async def test_create_of_existing_name_is_409(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    sample = SAMPLES["deployments"]
    await make(http, sample.path(target), sample.body(target))

    code, status = await ask(http, "POST", sample.path(target), sample.body(target))

    name = sample.name(target)
    assert code == 409
    assert status["reason"] == "AlreadyExists"
    assert status["message"] == f'deployments.apps "{name}" already exists'
    assert status["details"] == {"name": name, "group": "apps", "kind": "deployments"}


@each_case(
    "metadata, found",
    [
        pytest.param(
            {"name": ""},
            [
                (
                    "metadata.name",
                    "Required value: name or generateName is required",
                )
            ],
            id="no-name",
        ),
        pytest.param(
            {"name": "Web_1"},
            [("metadata.name", f'Invalid value: "Web_1": {NAME_RULE}')],
            id="name",
        ),
        pytest.param(
            {"name": "a" * 254},
            [
                (
                    "metadata.name",
                    f'Invalid value: "{"a" * 254}": must be no more than 253 characters',
                )
            ],
            id="long-name",
        ),
        pytest.param(
            {"labels": {"b c": "d"}},
            [("metadata.labels", f'Invalid value: "b c": {KEY_RULE}')],
            id="label-key",
        ),
        pytest.param(
            {"labels": {"b": "c d"}},
            [("metadata.labels", f'Invalid value: "c d": {VALUE_RULE}')],
            id="label-value",
        ),
        pytest.param(
            {"labels": {"/b": "c"}},
            [
                (
                    "metadata.labels",
                    'Invalid value: "/b": prefix part must be non-empty',
                )
            ],
            id="label-prefix",
        ),
        pytest.param(
            {"labels": {"B_/c": "d"}},
            [("metadata.labels", f'Invalid value: "B_/c": prefix part {NAME_RULE}')],
            id="label-domain",
        ),
        pytest.param(
            {"annotations": {"b c": ""}},
            [("metadata.annotations", f'Invalid value: "b c": {KEY_RULE}')],
            id="annotation",
        ),
        pytest.param(
            {"finalizers": ["x y"]},
            [
                ("metadata.finalizers", f'Invalid value: "x y": {KEY_RULE}'),
                (
                    "metadata.finalizers[0]",
                    f'Invalid value: "x y": {FINALIZER_RULE}',
                ),
            ],
            id="finalizer",
        ),
        pytest.param(
            {"finalizers": ["orphan", "foregroundDeletion"]},
            [
                (
                    "metadata.finalizers",
                    f'Invalid value: ["orphan","foregroundDeletion"]: {BOTH_RULE}',
                )
            ],
            id="finalizers",
        ),
        pytest.param(
            {"ownerReferences": [{}]},
            [
                (
                    "metadata.ownerReferences.apiVersion",
                    'Invalid value: "": version must not be empty',
                ),
                (
                    "metadata.ownerReferences.kind",
                    'Invalid value: "": must not be empty',
                ),
                (
                    "metadata.ownerReferences.name",
                    'Invalid value: "": must not be empty',
                ),
                (
                    "metadata.ownerReferences.uid",
                    'Invalid value: "": must not be empty',
                ),
            ],
            id="owner",
        ),
        pytest.param(
            {"generation": -1},
            [
                (
                    "metadata.generation",
                    "Invalid value: -1: must be greater than or equal to 0",
                )
            ],
            id="generation",
        ),
    ],
)
async def test_create_with_invalid_metadata_is_422(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    metadata: dict[str, Any],
    found: list[tuple[str, str]],
) -> None:
    path = target.path("configmaps")
    body = {"metadata": {"name": "a", **metadata}}

    code, status = await ask(http, "POST", path, body)

    assert (code, status["reason"]) == (422, "Invalid")
    assert problems(status) == found
    assert (await ask(http, "GET", path))[1]["items"] == []


async def test_create_reports_all_errors_at_once(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    body = named("B_", labels={"a b": "c"}, metadata={"finalizers": ["x"]})

    _, status = await ask(http, "POST", target.path("configmaps"), body)

    texts = [f"{field}: {message}" for field, message in problems(status)]
    assert len(texts) == 3
    assert status["message"] == f'ConfigMap "B_" is invalid: [{", ".join(texts)}]'


async def test_only_one_owner_can_be_controller(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    owners = [owner("a", controller=True), owner("b", controller=True)]
    body = named("a", metadata={"ownerReferences": owners})

    code, status = await ask(http, "POST", target.path("configmaps"), body)

    assert code == 422
    assert status["message"].endswith(
        'Only one reference can have Controller set to true. Found "true" in references '
        "for Pod/a and Pod/b"
    )


@each_case(
    "body, code, text",
    [
        pytest.param(
            named("a", metadata={"namespace": "b"}),
            400,
            "the namespace of the provided object does not match the namespace sent on "
            "the request",
            id="namespace",
        ),
        pytest.param(
            named("a", kind="Pod", apiVersion="v1"),
            400,
            'Pod in version "v1" cannot be handled as a ConfigMap: converting (v1.Pod) '
            "to (core.ConfigMap): unknown conversion",
            id="kind",
        ),
        pytest.param(
            named("a", kind="Frob", apiVersion="v1"),
            400,
            'Frob in version "v1" cannot be handled as a ConfigMap: no kind "Frob" is '
            'registered for version "v1" in scheme "pkg/runtime/scheme.go:111"',
            id="unknown-kind",
        ),
        pytest.param(
            named("a", apiVersion="v2"),
            400,
            'ConfigMap in version "v2" cannot be handled as a ConfigMap: no kind '
            '"ConfigMap" is registered for version "v2" in scheme '
            '"pkg/runtime/scheme.go:111"',
            id="version",
        ),
        pytest.param(
            [1],
            400,
            "the object provided is unrecognized (must be of type ConfigMap): couldn't "
            "get version/kind; json parse error: json: cannot unmarshal array into Go "
            r'value of type struct { APIVersion string "json:\"apiVersion,omitempty\""; '
            r'Kind string "json:\"kind,omitempty\"" } (5b315d)',
            id="list",
        ),
        pytest.param(
            {"metadata": 1},
            400,
            'ConfigMap in version "v1" cannot be handled as a ConfigMap: json: cannot '
            "unmarshal number into Go struct field ConfigMap.metadata of type "
            "v1.ObjectMeta",
            id="metadata",
        ),
        pytest.param(
            named("a", labels={"b": 1}),
            400,
            'ConfigMap in version "v1" cannot be handled as a ConfigMap: json: cannot '
            "unmarshal number into Go struct field ObjectMeta.metadata.labels of type "
            "string",
            id="label",
        ),
        pytest.param(
            named("a", metadata={"resourceVersion": "7"}),
            500,
            "resourceVersion should not be set on objects to be created",
            id="with-version",
        ),
    ],
)
async def test_malformed_create_is_rejected(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    body: Any,
    code: int,
    text: str,
) -> None:
    path = target.path("configmaps")
    answered, status = await ask(http, "POST", path, body)

    assert answered == status["code"] == code
    assert status["message"] == text
    assert (await ask(http, "GET", path))[1]["items"] == []


async def test_custom_resource_requires_api_version_and_kind(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("widgets", WIDGETS_GROUP)

    silent = await ask(http, "POST", path, named("a"))
    other = await ask(http, "POST", path, {**widget("a"), "kind": "Gadget"})
    newer = await ask(http, "POST", path, {**widget("a"), "apiVersion": "x.io/v2"})
    right, _ = await ask(http, "POST", path, widget("a"))

    assert (silent[0], other[0], newer[0], right) == (400, 422, 400, 201)
    assert silent[1]["message"].startswith(
        "the object provided is unrecognized (must be of type Widget): "
        "Object 'Kind' is missing in '"
    )
    assert other[1]["message"] == (
        'Gadget.example.com "a" is invalid: kind: Invalid value: "Gadget": '
        "must be Widget"
    )
    assert newer[1]["message"] == (
        "the API version in the data (x.io/v2) does not match the expected API version "
        "(example.com/v1)"
    )


async def test_unqualified_finalizer_of_custom_resource_warns(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    path = target.path("widgets", WIDGETS_GROUP)
    body = widget("a", metadata={"finalizers": ["mine"]})

    async with http.post(path, json=body) as answer:
        made, warnings = answer.status, answer.headers.getall("Warning", [])

    await change(http, f"{path}/a", {"metadata": {"finalizers": None}})
    assert made == 201
    assert 'metadata.finalizers: \\"mine\\": prefer a domain-qual' in warnings[0]


@each_case(
    "plural, name, why",
    [
        pytest.param("clusterroles", "system:node:", "", id="colon"),
        pytest.param("clusterroles", "a%b", "may not contain '%'", id="percent"),
        pytest.param("events", "A_b", "", id="event"),
        pytest.param("services", "a.b", "must not contain dots", id="dot"),
        pytest.param(
            "services", "a" * 64, "must be no more than 63 characters", id="label"
        ),
        pytest.param(
            "cronjobs", "a" * 53, "must be no more than 52 characters", id="cron-job"
        ),
        pytest.param("pods", "a.b", "", id="subdomain"),
    ],
)
async def test_name_rules_depend_on_kind(
    target: ServerUnderTest,
    http: aiohttp.ClientSession,
    plural: str,
    name: str,
    why: str,
) -> None:
    sample = SAMPLES[plural]
    body = sample.body(target)
    body["metadata"]["name"] = name

    code, answer = await ask(http, "POST", sample.path(target), body, dryRun="All")

    assert code == (422 if why else 201), answer
    if why:
        assert ("metadata.name", f'Invalid value: "{name}": {why}') in problems(answer)
