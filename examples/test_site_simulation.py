"""Simulations of site_operator.py: kills, stale caches, lost responses, two replicas.

Run:   pip install 'aioinformer[test,metrics]'
       cd examples
       python -m pytest test_site_simulation.py --simulation-seeds 1000
"""

from contextlib import suppress
from pathlib import Path

from site_operator import SITES, make_manager, records

from aioinformer import AlreadyExists, NotFound, is_ready
from aioinformer.model.resources import DEPLOYMENTS, SERVICES
from aioinformer.testing.simulation import Cluster, Simulation

CRD = str(Path(__file__).with_name("site-crd.yaml"))


def setup(cluster: Cluster) -> None:
    records.clear()
    cluster.load(CRD)


async def users(cluster: Cluster) -> None:
    """Create, change and delete sites, and run the pods of their Deployments."""
    for image in ("nginx:1.28", "nginx:1.29"):
        for name in ("blog", "shop"):
            spec = {"image": image, "replicas": 2}
            with suppress(AlreadyExists):  # it may wait for its finalizer
                cluster.create(SITES, {"metadata": {"name": name}, "spec": spec})

            await cluster.sleep(cluster.random.uniform(0, 20))

        with suppress(NotFound):
            cluster.patch(SITES, "blog", {"spec": {"image": image}})
            cluster.delete(SITES, "shop")

        await cluster.sleep(cluster.random.uniform(0, 20))

    await cluster.sleep(60)


def at_most_one_deployment_for_a_site(cluster: Cluster) -> None:
    images = [it["spec"]["template"] for it in cluster.objects(DEPLOYMENTS)]
    labels = [it["metadata"]["labels"]["site"] for it in images]
    assert len(labels) == len(set(labels)), labels


def everything_is_there(cluster: Cluster) -> bool:
    run_pods(cluster)
    sites = cluster.objects(SITES)
    assert records == {it["metadata"]["uid"] for it in sites}
    for site in sites:
        name = site["metadata"]["name"]
        deployment = cluster.get(DEPLOYMENTS, name, namespace="default")
        assert deployment is not None, f"{name} has no Deployment"
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        assert container["image"] == site["spec"]["image"]
        assert cluster.get(SERVICES, name, namespace="default") is not None
        assert is_ready(site), f"{name} is not ready"

    return True


def run_pods(cluster: Cluster) -> None:
    """Do what a cluster does: run the replicas of each Deployment."""
    for it in cluster.objects(DEPLOYMENTS):
        generation = it["metadata"]["generation"]
        if it.get("status", {}).get("observedGeneration") != generation:
            counts = (
                "replicas",
                "readyReplicas",
                "updatedReplicas",
                "availableReplicas",
            )
            status = {"observedGeneration": generation, **dict.fromkeys(counts, 2)}
            name = it["metadata"]["name"]
            cluster.patch(DEPLOYMENTS, name, {"status": status}, namespace="default")


def test_sites_survive_kills_stale_caches_and_lost_responses(
    simulation: Simulation,
) -> None:
    simulation.run(
        make_manager,
        setup=setup,
        workload=users,
        invariants=[at_most_one_deployment_for_a_site],
        eventually=everything_is_there,
        replicas=2,
    )
