"""Tables: columns and cells of each kind."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from api_calls import next_events, watching
from contract_servers import WIDGETS
from each_case import each_case
from table_rows_apps import APPS_ROWS
from table_rows_core import CORE_ROWS, event_rows
from table_rows_more import MORE_ROWS
from table_rows_pods import POD_ROWS

from aioinformer.model import resources

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import aiohttp
    from contract_servers import ServerUnderTest
    from table_helpers import Row

    from aioinformer.model.resource import Resource

TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
MERGE_PATCH = "application/merge-patch+json"

ROWS = [*POD_ROWS, *CORE_ROWS, *APPS_ROWS, *MORE_ROWS]
# Kinds in the order of `ROWS`.
RESOURCES = [*dict.fromkeys(row.resource for row in ROWS), resources.EVENTS]

_WIDE_PODS = "Containers+, Images+"
_REPLICAS = (
    f"Name, Desired:integer, Current:integer, Ready:integer, Age, {_WIDE_PODS}, "
    "Selector+"
)
_PLAIN = "Name, Created At:date"
_BINDINGS = "Name, Role, Age, Users+, Groups+, ServiceAccounts+"

# Types other than text; a plus marks columns of wide tables.
COLUMNS = {
    "clusterrolebindings": _BINDINGS,
    "clusterroles": _PLAIN,
    "configmaps": "Name, Data, Age",
    "cronjobs": "Name, Schedule, Timezone, Suspend:boolean, Active:integer, "
    f"Last Schedule, Age, {_WIDE_PODS}, Selector+",
    "daemonsets": "Name, Desired:integer, Current:integer, Ready:integer, "
    "Up-to-date:integer, Available:integer, Node Selector, Age, "
    f"{_WIDE_PODS}, Selector+",
    "deployments": f"Name, Ready, Up-to-date, Available, Age, {_WIDE_PODS}, Selector+",
    "endpoints": "Name, Endpoints, Age",
    "endpointslices": "Name, AddressType, Ports, Endpoints, Age",
    "events": "Last Seen, Type, Reason, Object, Subobject+, Source+, Message, "
    "First Seen+, Count+, Name+",
    "horizontalpodautoscalers": "Name, Reference, Targets, MinPods, MaxPods, "
    "Replicas, Age",
    "ingressclasses": "Name, Controller, Parameters, Age",
    "ingresses": "Name, Class, Hosts, Address, Ports, Age",
    "jobs": f"Name, Status, Completions, Duration, Age, {_WIDE_PODS}, Selector+",
    "leases": "Name, Holder, Age",
    "limitranges": _PLAIN,
    "mutatingwebhookconfigurations": "Name, Webhooks:integer, Age",
    "namespaces": "Name, Status, Age",
    "networkpolicies": "Name, Pod-Selector, Age",
    "nodes": "Name, Status, Roles, Age, Version, Internal-IP+, External-IP+, "
    "OS-Image+, Kernel-Version+, Container-Runtime+",
    "persistentvolumeclaims": "Name, Status, Volume, Capacity, Access Modes, "
    "StorageClass, VolumeAttributesClass, Age, VolumeMode+",
    "persistentvolumes": "Name, Capacity, Access Modes, Reclaim Policy, Status, Claim, "
    "StorageClass, VolumeAttributesClass, Reason, Age, VolumeMode+",
    "poddisruptionbudgets": "Name, Min Available, Max Unavailable, "
    "Allowed Disruptions:integer, Age",
    "pods": "Name, Ready, Status, Restarts, Age, IP+, Node+, Nominated Node+, "
    "Readiness Gates+",
    "podtemplates": "Name, Containers, Images, Pod Labels",
    "priorityclasses": "Name, Value:integer, Global-Default:boolean, Age, "
    "PreemptionPolicy",
    "replicasets": _REPLICAS,
    "replicationcontrollers": _REPLICAS,
    "resourcequotas": "Name, Request, Limit, Age",
    "rolebindings": _BINDINGS,
    "roles": _PLAIN,
    "secrets": "Name, Type, Data, Age",
    "serviceaccounts": "Name, Age",
    "services": "Name, Type, Cluster-IP, External-IP, Port(s), Age, Selector+",
    "statefulsets": f"Name, Ready, Age, {_WIDE_PODS}",
    "storageclasses": "Name, Provisioner, ReclaimPolicy, VolumeBindingMode, "
    "AllowVolumeExpansion, Age",
    "validatingwebhookconfigurations": "Name, Webhooks:integer, Age",
}

NONE, UNKNOWN = "<none>", "<unknown>"
# Cells of an empty object, as in a bookmark.
BLANK: dict[Resource, list[Any]] = {
    resources.PODS: ["", "0/0", "", "0", UNKNOWN, NONE, NONE, NONE, NONE],
    resources.DEPLOYMENTS: ["", "0/0", 0, 0, UNKNOWN, "", "", ""],
    resources.DAEMON_SETS: ["", 0, 0, 0, 0, 0, NONE, UNKNOWN, "", "", NONE],
    resources.JOBS: ["", "Running", "0/1", "", UNKNOWN, "", "", NONE],
    resources.SERVICES: ["", "", NONE, UNKNOWN, NONE, UNKNOWN, NONE],
    resources.EVENTS: [UNKNOWN, "", "", "", "", "", "", UNKNOWN, 1, ""],
    resources.ROLES: ["", "0001-01-01T00:00:00Z"],
    WIDGETS: ["", None],
}


class Shelf:
    """Objects of a test, with removal of the cluster-scoped ones."""

    def __init__(self, target: ServerUnderTest, http: aiohttp.ClientSession) -> None:
        self._target = target
        self._http = http
        self._made: list[str] = []

    def collection(self, resource: Resource) -> str:
        group = f"apis/{resource.group}" if resource.group else "api"
        root = f"{group}/{resource.version}"
        if resource.namespaced:
            return self._target.path(resource.plural, root)

        return f"/{root}/{resource.plural}"

    def name_of(self, row: Row) -> str:
        if row.resource.namespaced:
            return row.name

        return f"{self._target.namespace}-{row.name}"

    async def put(self, row: Row) -> None:
        collection, name = self.collection(row.resource), self.name_of(row)
        body = {
            "apiVersion": row.resource.api_version,
            "kind": row.resource.kind,
            **row.body,
            "metadata": {**row.metadata, "name": name},
        }
        await self._send("POST", collection, body)
        path = f"{collection}/{name}"
        self._made.append(path)
        # A new namespace is active, and only its controller removes it.
        if row.status is not None and row.resource != resources.NAMESPACES:
            await self._send("PATCH", f"{path}/status", {"status": row.status})

        if row.deleted:
            await self._send("DELETE", path)

    async def clear(self) -> None:
        for path in self._made:
            async with self._http.delete(path):
                pass

            nothing = {"metadata": {"finalizers": None}}
            headers = {"Content-Type": MERGE_PATCH}
            async with self._http.patch(path, json=nothing, headers=headers):
                pass

    async def _send(self, method: str, path: str, body: object = None) -> None:
        headers = {"Content-Type": MERGE_PATCH} if method == "PATCH" else {}
        async with self._http.request(
            method, path, json=body, headers=headers
        ) as answer:
            assert answer.status in {200, 201, 202}, await answer.text()


@asynccontextmanager
async def shelf(
    target: ServerUnderTest, http: aiohttp.ClientSession
) -> AsyncIterator[Shelf]:
    """Yield a shelf, and empty it afterwards."""
    made = Shelf(target, http)
    try:
        yield made
    finally:
        await made.clear()


async def table(http: aiohttp.ClientSession, path: str) -> dict[str, Any]:
    async with http.get(path, headers={"Accept": TABLE}) as answer:
        assert answer.status == 200, await answer.text()
        found: dict[str, Any] = await answer.json()
        return found


@each_case("resource", RESOURCES)
async def test_table_cells_match_real_server_for_each_kind(
    resource: Resource, target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    rows = [row for row in ROWS if row.resource == resource]
    if resource == resources.EVENTS:
        rows = event_rows(target.namespace)

    async with shelf(target, http) as made:
        for row in rows:
            await made.put(row)

        found = await table(http, made.collection(resource))

    assert _format_columns(found["columnDefinitions"]) == COLUMNS[resource.plural]
    reported = {row["object"]["metadata"]["name"]: row for row in found["rows"]}
    for row in rows:
        name = made.name_of(row)
        is_event = resource == resources.EVENTS
        cells = [*row.cells, name] if is_event else [name, *row.cells]
        assert reported[name]["cells"] == cells
        conditions = reported[name].get("conditions", [])
        assert [it["reason"] for it in conditions] == row.conditions


@each_case("resource", BLANK)
async def test_table_bookmark_is_row_without_object(
    resource: Resource, target: ServerUnderTest, http: aiohttp.ClientSession
) -> None:
    query = {
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
        "labelSelector": "no=body",
    }
    path = Shelf(target, http).collection(resource)
    async with watching(http, path, accept=TABLE, **query) as answer:
        (event,) = await next_events(answer, 1)

    shown = event["object"]
    assert event["type"] == "BOOKMARK"
    assert shown["columnDefinitions"] is not None
    assert [row["cells"] for row in shown["rows"]] == [BLANK[resource]]
    metadata = shown["rows"][0]["object"]["metadata"]
    assert metadata["resourceVersion"] == shown["metadata"]["resourceVersion"]
    assert metadata["annotations"]["k8s.io/initial-events-end"] == "true"


def _format_columns(columns: list[dict[str, Any]]) -> str:
    """Format columns like `COLUMNS`; the name column is marked."""
    assert [it["format"] for it in columns if it["name"] == "Name"] == ["name"]
    return ", ".join(
        it["name"]
        + ("" if it["type"] == "string" else f":{it['type']}")
        + "+" * it["priority"]
        for it in columns
    )
