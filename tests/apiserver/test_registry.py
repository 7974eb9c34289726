"""Registry: arranged objects, namespaces, pods, services."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from each_case import each_case
from kind_samples import SAMPLES, Sample

from aioinformer.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
)
from aioinformer.model.resources import (
    CONFIG_MAPS,
    DAEMON_SETS,
    DEPLOYMENTS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    SERVICES,
)
from aioinformer_apiserver.registry.registry import Registry
from aioinformer_apiserver.requests.options import DeleteOptions, WriteOptions
from aioinformer_apiserver.storage.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aioinformer.model.resource import Resource
    from aioinformer_apiserver.requests.options import DeleteResult, WriteResult

ARRANGED = WriteOptions(part="all")
HTTP_WRITE = WriteOptions(manager="me")
PLAIN = DeleteOptions()


class Cluster:
    """Registry with short calls; namespaced objects are in `default`."""

    def __init__(self, **options: Any) -> None:
        self.storage = Storage()
        self.registry = Registry(self.storage, **options)

    def create(
        self,
        resource: Resource,
        body: dict[str, Any],
        options: WriteOptions = ARRANGED,
        namespace: str = "default",
    ) -> WriteResult:
        place = namespace if resource.namespaced else ""
        collection = self.storage.collection(resource)
        return self.registry.create(collection, place, body, options)

    def patch(
        self,
        resource: Resource,
        name: str,
        patch: object,
        options: WriteOptions = ARRANGED,
        namespace: str = "default",
    ) -> WriteResult:
        place = namespace if resource.namespaced else ""
        collection = self.storage.collection(resource)
        return self.registry.patch(collection, place, name, patch, options)

    def update(
        self,
        resource: Resource,
        name: str,
        body: dict[str, Any],
        options: WriteOptions = ARRANGED,
        namespace: str = "default",
    ) -> WriteResult:
        place = namespace if resource.namespaced else ""
        collection = self.storage.collection(resource)
        return self.registry.update(collection, place, name, body, options)

    def delete(
        self,
        resource: Resource,
        name: str,
        options: DeleteOptions = PLAIN,
        namespace: str = "default",
    ) -> DeleteResult:
        place = namespace if resource.namespaced else ""
        collection = self.storage.collection(resource)
        return self.registry.delete(collection, place, name, options)

    def names(self, resource: Resource) -> list[str]:
        return [it.key for it in self.storage.collection(resource).snapshot()]

    def changes(self, resource: Resource, since: int) -> list[str]:
        """Return the events of a resource since a version."""
        found = []
        change = self.storage.collection(resource).cursor_at(since).next
        while change is not None:
            kinds = {(False, True): "ADDED", (True, True): "MODIFIED"}
            states = change.old is not None, change.new is not None
            found.append(kinds.get(states, "DELETED"))
            change = change.next

        return found


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def named(name: str, **fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **fields.pop("metadata", {})}, **fields}


def a_pod(name: str, **spec: Any) -> dict[str, Any]:
    return named(name, spec={"containers": [{"name": "x", "image": "i"}], **spec})


# -------------------------------------------------------------------- arranging


# Additions of admission and registries by kind, without some metadata fields.
ADDED = {
    "daemonsets": ("metadata.annotations",),
    "jobs": ("metadata.labels", "spec.selector", "spec.template.metadata.labels"),
    "nodes": ("spec.taints",),
    "persistentvolumeclaims": ("metadata.finalizers",),
    "persistentvolumes": ("metadata.finalizers", "status.lastPhaseTransitionTime"),
    "pods": (
        "spec.preemptionPolicy",
        "spec.priority",
        "spec.tolerations",
        "status.qosClass",
    ),
    "services": (
        "spec.clusterIP",
        "spec.clusterIPs",
        "spec.ipFamilies",
        "spec.ipFamilyPolicy",
    ),
}
# Without definitions, which are always completed. A real server writes `limits: null`,
# which typed clients cannot decode.
WHOLE = [
    pytest.param(it, id=plural)
    for plural, it in SAMPLES.items()
    if plural not in {"customresourcedefinitions", "limitranges"}
]


def shown(body: dict[str, Any], left_out: Iterable[str]) -> dict[str, Any]:
    """Return an object without these fields and without those that differ in each run."""
    others = ("uid", "resourceVersion", "creationTimestamp", "managedFields")
    for path in (*left_out, *(f"metadata.{name}" for name in others)):
        *parents, last = path.split(".")
        within = body
        for name in parents:
            within = within.get(name, {})

        within.pop(last, None)

    return body


def test_arranged_object_with_a_value_of_a_wrong_type_is_stored_as_given(
    cluster: Cluster,
) -> None:
    body = named("a", spec={"x": 1, "replicas": "many"}, foo=None, status={"y": 2})

    made = cluster.create(DEPLOYMENTS, body).stored.body()

    assert made["spec"] == {"x": 1, "replicas": "many"}
    assert made["status"] == {"y": 2}
    assert "foo" not in made
    assert "managedFields" not in made["metadata"]
    assert made["metadata"]["generation"] == 1


def test_arranged_pod_status_gets_the_fields_that_a_kubelet_always_writes(
    cluster: Cluster,
) -> None:
    status = {"containerStatuses": [{"name": "x"}], "podIP": "10.0.0.1"}

    made = cluster.create(PODS, named("a", status=status)).stored.body()

    container = {"name": "x", "state": {}, "lastState": {}, "ready": False}
    container |= {"restartCount": 0, "image": "", "imageID": ""}
    assert made["status"]["containerStatuses"] == [container]
    assert made["status"]["podIPs"] == [{"ip": "10.0.0.1"}]


def test_arranged_object_keeps_unknown_fields(cluster: Cluster) -> None:
    made = cluster.create(PODS, a_pod("a", unknown=1)).stored.body()

    assert made["spec"]["unknown"] == 1
    assert made["spec"]["dnsPolicy"] == "ClusterFirst"


def test_arranged_object_keeps_empty_lists_after_client_update(
    cluster: Cluster,
) -> None:
    cluster.create(DEPLOYMENTS, named("a"))

    label = {"metadata": {"labels": {"x": "y"}}}
    written = cluster.patch(DEPLOYMENTS, "a", label, HTTP_WRITE).stored.body()

    assert written["spec"]["selector"] == {}
    assert written["spec"]["template"]["spec"]["containers"] == []
    assert written["metadata"]["generation"] == 1


def test_arranged_daemon_set_keeps_template_after_client_update(
    cluster: Cluster,
) -> None:
    cluster.create(DAEMON_SETS, named("a"))
    label = {"metadata": {"labels": {"x": "y"}}}
    written = cluster.patch(DAEMON_SETS, "a", label, HTTP_WRITE).stored

    same = cluster.update(DAEMON_SETS, "a", written.body(), HTTP_WRITE).stored

    assert same is written


@each_case("sample", WHOLE)
def test_arranged_object_lacks_only_additions_of_admission(sample: Sample) -> None:
    body = named("a", **sample.content)
    arranged = Cluster().create(sample.resource, body).stored.body()
    requested = Cluster().create(sample.resource, body, HTTP_WRITE).stored.body()

    left_out = ADDED.get(sample.resource.plural, ())
    assert shown(arranged, left_out) == shown(requested, left_out)


def test_arranged_object_must_have_valid_metadata(cluster: Cluster) -> None:
    with pytest.raises(Invalid, match="RFC 1123"):
        cluster.create(PODS, named("A"))

    with pytest.raises(
        ApiError, match=r"number into .*metadata\.labels of type string"
    ):
        cluster.create(PODS, named("a", metadata={"labels": {"a": 1}}))

    with pytest.raises(ApiError, match=r"array into .* of type v1\.ObjectMeta"):
        cluster.create(PODS, {"metadata": [1]})

    with pytest.raises(ApiError, match=r"metadata\.finalizers of type \[\]string"):
        cluster.create(PODS, named("a", metadata={"finalizers": "x"}))

    with pytest.raises(ApiError, match="is registered for version"):
        cluster.create(PODS, named("a", kind="Frob"))

    assert cluster.names(PODS) == []


def test_arranged_object_can_be_updated_over_http(cluster: Cluster) -> None:
    made = cluster.create(PODS, a_pod("a", unknown=1)).stored

    same = cluster.patch(PODS, "a", {}, HTTP_WRITE).stored
    labelled = cluster.patch(
        PODS, "a", {"metadata": {"labels": {"x": "y"}}}, HTTP_WRITE
    )

    body = labelled.stored.body()
    # Defaulting is not a change by the client.
    assert same is made
    assert body["metadata"]["generation"] == 1
    assert body["spec"]["dnsPolicy"] == "ClusterFirst"
    assert "tolerations" not in body["spec"]


def test_arranged_invalid_object_can_be_deleted(cluster: Cluster) -> None:
    cluster.create(DEPLOYMENTS, named("a", spec="nonsense"))

    with pytest.raises(Invalid, match="cannot unmarshal string"):
        cluster.patch(
            DEPLOYMENTS, "a", {"metadata": {"labels": {"x": "y"}}}, HTTP_WRITE
        )

    cluster.delete(DEPLOYMENTS, "a")
    assert cluster.names(DEPLOYMENTS) == []


def test_arranged_patch_writes_status(cluster: Cluster) -> None:
    cluster.create(PODS, a_pod("a"))

    new = cluster.patch(PODS, "a", {"status": {"phase": "Running"}}).stored

    assert new.body()["status"] == {"phase": "Running"}
    assert new.fields["status.phase"] == "Running"


def test_arranged_patch_without_changes_keeps_version(
    cluster: Cluster,
) -> None:
    made = cluster.create(PODS, a_pod("a")).stored

    assert cluster.patch(PODS, "a", {"metadata": {"labels": {}}}).stored is made


def test_arranged_deletion_of_pod_removes_it_at_once(cluster: Cluster) -> None:
    version = cluster.create(PODS, a_pod("a", nodeName="n")).stored.version

    deleted = cluster.delete(PODS, "a", DeleteOptions(immediate=True, grace_seconds=0))

    assert deleted.removed
    assert cluster.changes(PODS, version) == ["DELETED"]


# -------------------------------------------------------------------- names


def test_generated_name_is_unused(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = iter(["b", "c"])
    monkeypatch.setattr(
        "aioinformer_apiserver.registry.registry.generate_name",
        lambda start: start + next(found),
    )
    cluster.create(CONFIG_MAPS, named("a-b"))

    made = cluster.create(CONFIG_MAPS, {"metadata": {"generateName": "a-"}})

    assert made.stored.name == "a-c"
    assert made.created


def test_create_of_existing_name_is_rejected(cluster: Cluster) -> None:
    cluster.create(CONFIG_MAPS, named("a"))

    with pytest.raises(AlreadyExists):
        cluster.create(CONFIG_MAPS, named("a"))


def test_update_of_missing_lease_creates_it(cluster: Cluster) -> None:
    leases = cluster.storage.collection(LEASES)

    made = cluster.registry.update(leases, "default", "a", named("a"), HTTP_WRITE)

    assert made.created
    assert cluster.names(LEASES) == ["default/a"]


# -------------------------------------------------------------------- namespaces


def test_auto_namespaces_create_missing_namespace() -> None:
    cluster = Cluster(auto_namespaces=True)

    cluster.create(CONFIG_MAPS, named("a"), HTTP_WRITE, namespace="shop")
    dry = WriteOptions(dry_run=True)
    cluster.create(CONFIG_MAPS, named("a"), dry, namespace="market")

    assert "shop" in cluster.names(NAMESPACES)
    assert "market" not in cluster.names(NAMESPACES)


def test_deleted_namespace_deletes_content(cluster: Cluster) -> None:
    cluster.create(NAMESPACES, named("shop"))
    cluster.create(CONFIG_MAPS, named("a"), namespace="shop")
    cluster.create(PODS, a_pod("a", nodeName="n"), HTTP_WRITE, namespace="shop")
    cluster.create(CONFIG_MAPS, named("a"))

    deleted = cluster.delete(NAMESPACES, "shop")

    assert deleted.returned
    assert deleted.stored.body()["status"] == {"phase": "Terminating"}
    assert cluster.names(CONFIG_MAPS) == ["default/a"]
    assert cluster.names(PODS) == []
    assert "shop" not in cluster.names(NAMESPACES)


def test_deleted_namespace_waits_for_finalizers_of_content(cluster: Cluster) -> None:
    cluster.create(NAMESPACES, named("shop"), HTTP_WRITE)
    held = named("held", metadata={"finalizers": ["example.com/wait"]})
    cluster.create(CONFIG_MAPS, held, namespace="shop")

    first = cluster.delete(NAMESPACES, "shop")
    again = cluster.delete(NAMESPACES, "shop")
    with pytest.raises(Forbidden, match="being terminated"):
        cluster.create(CONFIG_MAPS, named("late"), namespace="shop")

    assert again.stored is first.stored
    assert cluster.names(CONFIG_MAPS) == ["shop/held"]
    release = {"metadata": {"finalizers": None}}
    cluster.patch(CONFIG_MAPS, "held", release, HTTP_WRITE, namespace="shop")
    assert "shop" not in cluster.names(NAMESPACES)


def test_deleted_namespace_waits_for_metadata_finalizers(cluster: Cluster) -> None:
    shop = named("shop", metadata={"finalizers": ["example.com/wait"]})
    cluster.create(NAMESPACES, shop, HTTP_WRITE)
    cluster.delete(NAMESPACES, "shop")

    assert "shop" in cluster.names(NAMESPACES)

    cluster.patch(NAMESPACES, "shop", {"metadata": {"finalizers": None}}, HTTP_WRITE)
    assert "shop" not in cluster.names(NAMESPACES)


def test_namespace_is_removed_with_last_object(cluster: Cluster) -> None:
    cluster.create(NAMESPACES, named("shop"), HTTP_WRITE)
    held = named("held", metadata={"finalizers": ["example.com/wait"]})
    cluster.create(CONFIG_MAPS, held, namespace="shop")
    cluster.delete(NAMESPACES, "shop")
    namespaces = cluster.storage.collection(NAMESPACES)
    options = WriteOptions(part="finalize")

    body = named("shop", spec={"finalizers": []})
    last = cluster.registry.update(namespaces, "", "shop", body, options)

    assert last.stored.body()["spec"] == {}
    assert "shop" not in cluster.names(NAMESPACES)


def test_deleted_namespace_waits_for_other_spec_finalizers(cluster: Cluster) -> None:
    shop = named("shop", spec={"finalizers": ["kubernetes", "example.com/x"]})
    cluster.create(NAMESPACES, shop, HTTP_WRITE)
    cluster.delete(NAMESPACES, "shop")
    namespaces = cluster.storage.collection(NAMESPACES)
    options = WriteOptions(part="finalize")

    assert "shop" in cluster.names(NAMESPACES)

    body = named("shop", spec={"finalizers": ["kubernetes"]})
    cluster.registry.update(namespaces, "", "shop", body, options)
    assert "shop" not in cluster.names(NAMESPACES)


def test_dry_run_deletion_of_namespace_deletes_nothing(cluster: Cluster) -> None:
    cluster.create(NAMESPACES, named("shop"))
    version = cluster.storage.version

    deleted = cluster.delete(NAMESPACES, "shop", DeleteOptions(dry_run=True))

    assert deleted.stored.body()["status"]["phase"] == "Terminating"
    assert cluster.storage.version == version


# -------------------------------------------------------------------- deletion


def test_scheduled_pod_is_marked_and_removed_on_deletion(cluster: Cluster) -> None:
    version = cluster.create(PODS, a_pod("a", nodeName="n"), HTTP_WRITE).stored.version

    deleted = cluster.delete(PODS, "a")

    marked = deleted.stored.body()["metadata"]
    assert marked["deletionGracePeriodSeconds"] == 30
    assert cluster.changes(PODS, version) == ["MODIFIED", "MODIFIED", "DELETED"]


def test_scheduled_pod_with_finalizer_is_marked_and_stays(cluster: Cluster) -> None:
    body = a_pod("a", nodeName="n")
    body["metadata"]["finalizers"] = ["example.com/x"]
    version = cluster.create(PODS, body, HTTP_WRITE).stored.version

    cluster.delete(PODS, "a")

    assert cluster.changes(PODS, version) == ["MODIFIED", "MODIFIED"]
    found = cluster.registry.require(cluster.storage.collection(PODS), "default", "a")
    assert found.body()["metadata"]["deletionGracePeriodSeconds"] == 0


def test_delete_collection_skips_missing_objects(cluster: Cluster) -> None:
    maps = cluster.storage.collection(CONFIG_MAPS)
    first, second = (
        cluster.create(CONFIG_MAPS, named(name)).stored for name in ("a", "b")
    )
    cluster.delete(CONFIG_MAPS, "a")

    found = cluster.registry.delete_collection(maps, [first, second], PLAIN)

    assert [it.stored.name for it in found] == ["b"]
    assert cluster.names(CONFIG_MAPS) == []


def test_delete_checks_preconditions(cluster: Cluster) -> None:
    cluster.create(NODES, named("n"))

    with pytest.raises(Conflict, match="UID in the precondition"):
        cluster.delete(NODES, "n", DeleteOptions(uid="another"))

    with pytest.raises(NotFound):
        cluster.delete(NODES, "m")

    assert cluster.names(NODES) == ["n"]


# -------------------------------------------------------------------- services


def test_services_have_distinct_addresses_and_ports(cluster: Cluster) -> None:
    ports = [{"name": f"p{port}", "port": port} for port in range(80, 84)]
    spec = {"type": "NodePort", "ports": ports}

    found = [
        cluster.create(SERVICES, named(f"s{i}", spec=spec), HTTP_WRITE).stored.body()[
            "spec"
        ]
        for i in range(30)
    ]

    addresses = {it["clusterIP"] for it in found}
    given = [port["nodePort"] for it in found for port in it["ports"]]
    assert len(addresses) == 30
    assert len(set(given)) == len(given) == 120


def test_service_keeps_its_address(cluster: Cluster) -> None:
    spec = {"ports": [{"port": 80}]}
    made = cluster.create(SERVICES, named("s", spec=spec), HTTP_WRITE).stored.body()
    services = cluster.storage.collection(SERVICES)

    body = named("s", spec={"ports": [{"port": 81}]})
    new = cluster.registry.update(
        services, "default", "s", body, HTTP_WRITE
    ).stored.body()

    assert new["spec"]["clusterIP"] == made["spec"]["clusterIP"]
    assert new["spec"]["ports"][0]["port"] == 81
