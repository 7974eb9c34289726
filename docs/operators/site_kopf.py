"""An operator: each Site gets a Deployment, a Service, an external record, a status, events."""

import datetime

import kopf
from kubernetes_asyncio import config
from kubernetes_asyncio.client import (
    ApiClient,
    ApiException,
    AppsV1Api,
    CoreV1Api,
    CustomObjectsApi,
)
from prometheus_client import Counter, start_http_server

SITES = ("example.com", "v1", "sites")
MERGE = "application/merge-patch+json"
APPLY = {
    "field_manager": "site-operator",
    "force": True,
    "_content_type": "application/apply-patch+yaml",
}
handled = Counter("site_operator_handled", "Calls of handlers", ["handler"])
records: set[str] = set()  # stands for a system outside the cluster, such as DNS


@kopf.on.startup()
async def configure(settings: kopf.OperatorSettings, **_):
    try:
        config.load_incluster_config()
    except config.ConfigException:
        await config.load_kube_config()
    settings.peering.name = "site-operator"
    settings.peering.mandatory = True
    settings.persistence.finalizer = "example.com/record"
    settings.admission.server = kopf.WebhookServer(
        addr="0.0.0.0", port=9443, certfile="certs/tls.crt", pkeyfile="certs/tls.key"
    )
    start_http_server(8080)


@kopf.on.validate(*SITES, operations=["CREATE", "UPDATE"])
def check_image(spec, **_):
    name = spec["image"].rpartition("/")[2]
    if ":" not in name and "@" not in name:
        raise kopf.AdmissionError(
            f"spec.image: {spec['image']} needs a tag or a digest", code=422
        )


def children_of(name, spec):
    labels = {"site": name}
    container = {"name": "web", "image": spec["image"]}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": spec["replicas"],
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [container]},
            },
        },
    }
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "labels": labels},
        "spec": {"selector": labels, "ports": [{"port": 80}]},
    }
    return deployment, service


@kopf.on.resume(*SITES)
@kopf.on.create(*SITES)
@kopf.on.update(*SITES, field="spec")
async def deploy(name, namespace, uid, spec, logger, **_):
    handled.labels("deploy").inc()
    if uid not in records:
        records.add(uid)
        logger.info("record created")
    deployment, service = children_of(name, spec)
    kopf.adopt([deployment, service])
    async with ApiClient() as api:
        apps, core = AppsV1Api(api), CoreV1Api(api)
        await apps.patch_namespaced_deployment(name, namespace, deployment, **APPLY)
        await core.patch_namespaced_service(name, namespace, service, **APPLY)


@kopf.on.event("apps", "v1", "deployments", labels={"site": kopf.PRESENT})
async def report(type, meta, status, name, namespace, **_):
    handled.labels("report").inc()
    if type == "DELETED":
        return
    async with ApiClient() as api:
        custom = CustomObjectsApi(api)
        where = {"group": SITES[0], "version": SITES[1], "plural": SITES[2]}
        where |= {"namespace": namespace, "name": name}
        try:
            site = await custom.get_namespaced_custom_object(**where)
        except ApiException as exc:
            if exc.status == 404:
                return
            raise
        new = status_of(site, status, meta["generation"])
        old = site.get("status", {})
        if {key: old.get(key) for key in new} == new:
            return
        await custom.patch_namespaced_custom_object_status(
            **where, body={"status": new}, _content_type=MERGE
        )
    (ready,) = new["conditions"]
    if ready["status"] != ready_condition(old).get("status", "False"):
        message = f"{new['ready']} replicas are ready"
        kopf.info(site, reason=ready["reason"], message=message)


def ready_condition(status):
    found = (it for it in status.get("conditions", ()) if it["type"] == "Ready")
    return next(found, {})


def status_of(site, status, generation):
    ready = min(status.get(f"{it}Replicas", 0) for it in ("updated", "available"))
    observed = status.get("observedGeneration", 0) == generation
    done = observed and ready >= site["spec"]["replicas"]
    condition = {
        "type": "Ready",
        "status": "True" if done else "False",
        "reason": "Deployed" if done else "Deploying",
        "message": "",
        "observedGeneration": site["metadata"]["generation"],
    }
    old = ready_condition(site.get("status", {}))
    now = datetime.datetime.now(datetime.UTC)
    since = now.isoformat(timespec="seconds").replace("+00:00", "Z")
    if old.get("status") == condition["status"]:
        since = old["lastTransitionTime"]
    return {"ready": ready, "conditions": [{**condition, "lastTransitionTime": since}]}


@kopf.on.delete(*SITES)
async def remove_record(uid, logger, **_):
    records.discard(uid)  # may be missing: this may be called twice
    logger.info("record removed")


@kopf.on.probe(id="records")
def count_records(**_):
    return len(records)
