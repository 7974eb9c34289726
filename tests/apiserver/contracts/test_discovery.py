"""Discovery, version and health documents.

A real server serves more kinds. Only the kinds that both serve are compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml
from api_calls import ask
from custom_definitions import SCALE, defined, definition, group_of, version
from each_case import each_case

if TYPE_CHECKING:
    import aiohttp
    from contract_servers import ServerUnderTest

# Entries of a real server for the kinds served here, by group version: plural, kind,
# namespaced, short names, categories, subresources.
SERVED = """
v1:
    configmaps ConfigMap N cm - -
    endpoints Endpoints N ep - -
    events Event N ev - -
    limitranges LimitRange N limits - -
    namespaces Namespace - ns - status
    nodes Node - no - status
    persistentvolumeclaims PersistentVolumeClaim N pvc - status
    persistentvolumes PersistentVolume - pv - status
    pods Pod N po all status
    podtemplates PodTemplate N - - -
    replicationcontrollers ReplicationController N rc all scale,status
    resourcequotas ResourceQuota N quota - status
    secrets Secret N - - -
    serviceaccounts ServiceAccount N sa - -
    services Service N svc all status
apps/v1:
    daemonsets DaemonSet N ds all status
    deployments Deployment N deploy all scale,status
    replicasets ReplicaSet N rs all scale,status
    statefulsets StatefulSet N sts all scale,status
authentication.k8s.io/v1:
    selfsubjectreviews SelfSubjectReview - - - -
    tokenreviews TokenReview - - - -
authorization.k8s.io/v1:
    localsubjectaccessreviews LocalSubjectAccessReview N - - -
    selfsubjectaccessreviews SelfSubjectAccessReview - - - -
    selfsubjectrulesreviews SelfSubjectRulesReview - - - -
    subjectaccessreviews SubjectAccessReview - - - -
autoscaling/v2:
    horizontalpodautoscalers HorizontalPodAutoscaler N hpa all status
batch/v1:
    cronjobs CronJob N cj all status
    jobs Job N - all status
networking.k8s.io/v1:
    ingressclasses IngressClass - - - -
    ingresses Ingress N ing - status
    networkpolicies NetworkPolicy N netpol - -
policy/v1:
    poddisruptionbudgets PodDisruptionBudget N pdb - status
rbac.authorization.k8s.io/v1:
    clusterrolebindings ClusterRoleBinding - - - -
    clusterroles ClusterRole - - - -
    rolebindings RoleBinding N - - -
    roles Role N - - -
storage.k8s.io/v1:
    storageclasses StorageClass - sc - -
admissionregistration.k8s.io/v1:
    mutatingwebhookconfigurations MutatingWebhookConfiguration - - api-extensions -
    validatingwebhookconfigurations ValidatingWebhookConfiguration - - api-extensions -
apiextensions.k8s.io/v1:
    customresourcedefinitions CustomResourceDefinition - crd,crds api-extensions status
scheduling.k8s.io/v1:
    priorityclasses PriorityClass - pc - -
coordination.k8s.io/v1:
    leases Lease N - - -
discovery.k8s.io/v1:
    endpointslices EndpointSlice N - - -
"""

ALL_VERBS = [
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
]
CUSTOM_VERBS = [*ALL_VERBS[1:6], "create", *ALL_VERBS[6:]]
SUBRESOURCE_VERBS = ["get", "patch", "update"]
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
OLDER = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"
SCALE_KIND = {"group": "autoscaling", "version": "v1", "kind": "Scale"}


def served() -> dict[str, list[list[str]]]:
    """Return the table above by group and version."""
    found: dict[str, list[list[str]]] = {}
    for line in SERVED.strip().splitlines():
        if line.endswith(":"):
            found[line[:-1]] = []
        else:
            found[list(found)[-1]].append(line.split())

    return found


def listed(text: str) -> list[str]:
    return [] if text == "-" else text.split(",")


def verbs_of(api_version: str, plural: str) -> list[str]:
    if api_version.startswith("auth"):
        return ["create"]

    if plural == "namespaces":
        return [verb for verb in ALL_VERBS if verb != "deletecollection"]

    return ALL_VERBS


def plain_entries(api_version: str) -> list[dict[str, Any]]:
    """Return the entries of a version's plain document."""
    found = []
    for plural, kind, scope, short, categories, subresources in served()[api_version]:
        entry = {
            "name": plural,
            "singularName": kind.lower(),
            "namespaced": scope == "N",
            "kind": kind,
            "verbs": verbs_of(api_version, plural),
            "shortNames": listed(short),
            "categories": listed(categories),
        }
        found.append({key: it for key, it in entry.items() if it or it is False})
        for name in listed(subresources):
            other = SCALE_KIND if name == "scale" else {"kind": kind}
            found.append(
                {
                    "name": f"{plural}/{name}",
                    "singularName": "",
                    "namespaced": scope == "N",
                    **other,
                    "verbs": SUBRESOURCE_VERBS,
                }
            )

    return found


def path_of(api_version: str) -> str:
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"


async def aggregated(http: aiohttp.ClientSession, path: str) -> list[dict[str, Any]]:
    """Return the groups of the aggregated document."""
    async with http.get(path, headers={"Accept": AGGREGATED}) as answer:
        assert answer.status == 200
        assert answer.headers["Content-Type"] == AGGREGATED
        items: list[dict[str, Any]] = (await answer.json())["items"]
        return items


# -------------------------------------------------------------------- built-in kinds


@each_case("api_version", list(served()))
async def test_version_document_lists_resources(
    http: aiohttp.ClientSession, api_version: str
) -> None:
    expected = plain_entries(api_version)
    names = {entry["name"] for entry in expected}

    code, document = await ask(http, "GET", path_of(api_version))

    for entry in document["resources"]:
        entry.pop("storageVersionHash", None)

    found = [entry for entry in document["resources"] if entry["name"] in names]
    assert code == 200
    assert found == expected
    assert list(found[0]) == list(expected[0])
    assert document["kind"] == "APIResourceList"
    assert document["groupVersion"] == api_version
    # The core group has no such field.
    assert document.get("apiVersion") == ("v1" if "/" in api_version else None)


async def test_groups_are_ordered_by_priority(
    http: aiohttp.ClientSession,
) -> None:
    names = [it.partition("/")[0] for it in served() if "/" in it]

    _, document = await ask(http, "GET", "/apis")
    many = await aggregated(http, "/apis")

    plain = [it["name"] for it in document["groups"]]
    assert [it for it in plain if it in names] == names
    found = [it["metadata"]["name"] for it in many]
    assert [it for it in found if it in names] == names


async def test_group_document_has_preferred_version(
    http: aiohttp.ClientSession,
) -> None:
    apps = {"groupVersion": "apps/v1", "version": "v1"}
    group = {"name": "apps", "versions": [apps], "preferredVersion": apps}

    _, document = await ask(http, "GET", "/apis")
    _, alone = await ask(http, "GET", "/apis/apps")

    assert group in document["groups"]
    assert alone == {"kind": "APIGroup", "apiVersion": "v1", **group}


async def test_core_document_has_server_address(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    _, document = await ask(http, "GET", "/api")

    addresses = document.pop("serverAddressByClientCIDRs")
    assert document == {"kind": "APIVersions", "versions": ["v1"]}
    assert addresses[0]["clientCIDR"] == "0.0.0.0/0"
    assert target.real or addresses[0]["serverAddress"] in target.url


@each_case("api_version", list(served()))
async def test_aggregated_document_matches_plain_documents(
    http: aiohttp.ClientSession, api_version: str
) -> None:
    group, _, name = api_version.rpartition("/")
    groups = await aggregated(http, "/apis" if group else "/api")

    entry = next(it for it in groups if it["metadata"].get("name", "") == group)
    inside = next(it for it in entry["versions"] if it["version"] == name)
    found = {it["resource"]: it for it in inside["resources"]}
    assert inside["freshness"] == "Current"
    for plural, kind, scope, short, categories, subresources in served()[api_version]:
        shown = {"group": "", "version": "", "kind": kind}
        expected = {
            "resource": plural,
            "responseKind": shown,
            "scope": "Namespaced" if scope == "N" else "Cluster",
            "singularResource": kind.lower(),
            "verbs": verbs_of(api_version, plural),
            "shortNames": listed(short),
            "categories": listed(categories),
            "subresources": [
                {
                    "subresource": name,
                    "responseKind": SCALE_KIND if name == "scale" else shown,
                    "verbs": SUBRESOURCE_VERBS,
                }
                for name in listed(subresources)
            ],
        }
        expected = {key: it for key, it in expected.items() if it}
        parts = found[plural].get("subresources", [])
        kept = [it for it in parts if it["subresource"] in listed(subresources)]
        assert {**found[plural], **({"subresources": kept} if kept else {})} == {
            **found[plural],
            **expected,
        }


async def test_aggregated_document_with_known_etag_is_304(
    http: aiohttp.ClientSession,
) -> None:
    headers = {"Accept": AGGREGATED}
    async with http.get("/api", headers=headers) as first:
        tag = first.headers["ETag"]
        assert first.headers["Cache-Control"] == "public"
        assert first.headers["Vary"] == "Accept"

    headers["If-None-Match"] = tag
    async with http.get("/api", headers=headers) as again:
        assert (again.status, await again.read()) == (304, b"")
        assert again.headers["ETag"] == tag


async def test_plain_document_is_default(
    http: aiohttp.ClientSession,
) -> None:
    headers = {"Accept": f"{OLDER},application/json"}
    async with http.get("/apis", headers=headers) as answer:
        assert (await answer.json())["kind"] == "APIGroupList"

    async with http.get("/apis", headers={"Accept": OLDER}) as answer:
        assert (answer.status, (await answer.json())["reason"]) == (
            406,
            "NotAcceptable",
        )


@each_case(
    "accept, media",
    [
        (f"application/json,{AGGREGATED};q=0.1", AGGREGATED),
        (AGGREGATED.replace("json", "yaml"), AGGREGATED.replace("json", "yaml")),
        (AGGREGATED.replace("json", "*"), AGGREGATED),
        (f"{AGGREGATED};profile=nopeer", AGGREGATED),
        ("application/json;q=0.1,application/yaml", "application/yaml"),
        ("application/json;as=Table;v=v1;g=meta.k8s.io,*/*", "application/json"),
    ],
)
async def test_aggregated_document_is_sent_on_request(
    http: aiohttp.ClientSession, accept: str, media: str
) -> None:
    async with http.get("/apis", headers={"Accept": accept}) as answer:
        assert answer.headers["Content-Type"] == media
        found = yaml.safe_load(await answer.read())

    aggregated = "APIGroupDiscoveryList" in media
    assert found["kind"] == ("APIGroupDiscoveryList" if aggregated else "APIGroupList")


@each_case("path", ["/apis", "/api", "/apis/apps", "/apis/apps/v1"])
async def test_pretty_documents_are_indented(
    http: aiohttp.ClientSession, path: str
) -> None:
    for accept in ("*/*", f"{AGGREGATED},*/*"):
        headers = {"Accept": accept, "User-Agent": "curl/8"}
        async with http.get(path, headers=headers) as answer:
            assert (await answer.read()).startswith(b'{\n  "kind": "API')


# -------------------------------------------------------------------- custom resources


async def test_custom_resources_are_discovered(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    group = group_of(target)
    names = {"shortNames": ["gd"], "categories": ["all"]}
    whole = version(subresources={"status": {}, "scale": SCALE})
    versions = [version("v1beta1"), whole, version("v2alpha1"), version("v2")]
    body = definition(group, names=names, versions=versions)

    async with defined(http, body):
        _, document = await ask(http, "GET", f"/apis/{group}")
        _, resources = await ask(http, "GET", f"/apis/{group}/v1")
        groups = await aggregated(http, "/apis")

    order = ["v2", "v1", "v1beta1", "v2alpha1"]
    entry = next(it for it in groups if it["metadata"]["name"] == group)
    main, *rest = resources["resources"]
    main.pop("storageVersionHash", None)
    assert [it["version"] for it in document["versions"]] == order
    assert document["preferredVersion"]["version"] == "v2"
    assert [it["version"] for it in entry["versions"]] == order
    assert main == {
        "name": "gadgets",
        "singularName": "gadget",
        "namespaced": True,
        "kind": "Gadget",
        "verbs": CUSTOM_VERBS,
        "shortNames": ["gd"],
        "categories": ["all"],
    }
    assert [it["name"] for it in rest] == ["gadgets/status", "gadgets/scale"]
    assert entry["versions"][0]["resources"][0]["responseKind"] == {
        "group": group,
        "version": "v2",
        "kind": "Gadget",
    }


# -------------------------------------------------------------------- version and health


@each_case(
    "path", ["/nope", "/apis/nope", "/apis/nope/v1", "/apis/nope/v1/x", "/healthz/nope"]
)
async def test_unknown_group_is_plain_404_page(
    http: aiohttp.ClientSession, path: str
) -> None:
    async with http.get(path) as answer:
        text = await answer.text()

    assert (answer.status, answer.content_type) == (404, "text/plain")
    assert text == "404 page not found\n"


@each_case("path", ["/api/v2", "/apis/apps/v9", "/apis/apps/v1/nopes"])
async def test_unknown_path_in_group_is_404_status(
    http: aiohttp.ClientSession, path: str
) -> None:
    code, answer = await ask(http, "GET", path)

    assert (code, answer["reason"], answer["details"]) == (404, "NotFound", {})


@each_case("path", ["/api", "/api/v1", "/apis/apps/v1", "/version"])
async def test_discovery_rejects_writes(http: aiohttp.ClientSession, path: str) -> None:
    code, answer = await ask(http, "POST", path, {})

    assert (code, answer["reason"]) == (405, "MethodNotAllowed")


@each_case("path", ["/api", "/api/v1", "/apis", "/apis/apps", "/version"])
async def test_trailing_slash_is_ignored(
    http: aiohttp.ClientSession, path: str
) -> None:
    assert await ask(http, "GET", f"{path}/") == await ask(http, "GET", path)


async def test_version_document_matches_release(http: aiohttp.ClientSession) -> None:
    _, document = await ask(http, "GET", "/version")

    assert (document["major"], document["minor"]) == ("1", "36")
    assert (document["compiler"], document["platform"]) == ("gc", "linux/amd64")
    assert list(document)[:7] == [
        "major",
        "minor",
        "emulationMajor",
        "emulationMinor",
        "minCompatibilityMajor",
        "minCompatibilityMinor",
        "gitVersion",
    ]


async def test_root_document_lists_paths(http: aiohttp.ClientSession) -> None:
    _, document = await ask(http, "GET", "/")

    paths = document["paths"]
    assert paths == sorted(paths)
    assert {"/api", "/api/v1", "/apis", "/apis/", "/apis/apps"} <= set(paths)
    assert {"/apis/apps/v1", "/openapi/v3", "/version", "/healthz"} <= set(paths)


@each_case("root", ["healthz", "livez", "readyz"])
async def test_health_document_is_verbose_on_request(
    http: aiohttp.ClientSession, root: str
) -> None:
    texts = []
    for path in (f"/{root}", f"/{root}/ping", f"/{root}?verbose"):
        async with http.get(path) as answer:
            assert (answer.status, answer.content_type) == (200, "text/plain")
            texts.append(await answer.text())

    assert texts[:2] == ["ok", "ok"]
    assert texts[2].startswith("[+]ping ok\n")
    assert texts[2].endswith(f"\n{root} check passed\n")
