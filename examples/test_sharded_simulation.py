"""Simulations of sharded_controller.py: three replicas that are killed and cut off.

Run:   pip install 'aioinformer[test,metrics]'
       cd examples
       python -m pytest test_sharded_simulation.py --simulation-seeds 1000
"""

from contextlib import suppress
from pathlib import Path

from sharded_controller import SITES, make_manager

from aioinformer import AlreadyExists, NotFound
from aioinformer.model.resources import DEPLOYMENTS
from aioinformer.testing.simulation import Cluster, Simulation

CRD = str(Path(__file__).with_name("site-crd.yaml"))
NAMES = [f"site-{number}" for number in range(6)]


def setup(cluster: Cluster) -> None:
    cluster.load(CRD)


async def users(cluster: Cluster) -> None:
    """Create and change sites, and delete one of them."""
    for image in ("nginx:1.28", "nginx:1.29"):
        for name in NAMES:
            spec = {"image": image, "replicas": 2}
            try:
                cluster.create(SITES, {"metadata": {"name": name}, "spec": spec})
            except AlreadyExists:
                cluster.patch(SITES, name, {"spec": {"image": image}})

            await cluster.sleep(cluster.random.uniform(0, 10))

        with suppress(NotFound):
            cluster.delete(SITES, NAMES[-1])

    await cluster.sleep(60)


def every_site_has_its_image(cluster: Cluster) -> bool:
    for site in cluster.objects(SITES):
        name = site["metadata"]["name"]
        deployment = cluster.get(DEPLOYMENTS, name, namespace="default")
        assert deployment is not None, f"{name} has no Deployment"
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        assert container["image"] == site["spec"]["image"]
        assert site["status"] == {"ready": 0}, name

    return True


def test_sites_find_a_replica_whatever_happens(simulation: Simulation) -> None:
    simulation.run(
        make_manager,
        setup=setup,
        workload=users,
        eventually=every_site_has_its_image,
        replicas=3,
    )
