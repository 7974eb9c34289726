"""Tests of site_operator.py, without cluster, container or mocks, in virtual time.

Run:   pip install 'aioinformer[test,metrics]'
       cd examples
       python -m pytest test_site_operator.py
"""

from pathlib import Path
from typing import Any, Literal

import pytest
from site_operator import SITES, check_image, make_manager, records

from aioinformer import is_ready
from aioinformer.model.resources import DEPLOYMENTS, EVENTS_V1, SERVICES
from aioinformer.testing import APIServer
from aioinformer.testing.faults import Refuse

CRD = str(Path(__file__).with_name("site-crd.yaml"))
pytestmark = [
    pytest.mark.asyncio,
    pytest.mark.looptime,
    pytest.mark.apiserver(load=CRD),
]
SITE = {"metadata": {"name": "blog"}, "spec": {"image": "nginx:1.29", "replicas": 2}}
LONG = 600  # virtual seconds cost nothing


def run_pods(apiserver: APIServer) -> None:
    """Do what a cluster does: run the replicas of the Deployment."""
    counts = ("replicas", "readyReplicas", "updatedReplicas", "availableReplicas")
    status: dict[str, Any] = {"observedGeneration": 1, **dict.fromkeys(counts, 2)}
    apiserver.patch(DEPLOYMENTS, "blog", {"status": status})


async def test_site_gets_children_and_a_status(apiserver: APIServer) -> None:
    site = apiserver.create(SITES, SITE)
    async with make_manager(apiserver.client()):
        await apiserver.until(lambda: apiserver.get(DEPLOYMENTS, "blog"), timeout=LONG)
        assert site["metadata"]["uid"] in records
        assert not is_ready(apiserver.get(SITES, "blog"))
        run_pods(apiserver)
        await apiserver.until(
            lambda: is_ready(apiserver.get(SITES, "blog")), timeout=LONG
        )

    assert apiserver.get(SITES, "blog")["status"]["ready"] == 2
    assert apiserver.get(SERVICES, "blog")["spec"]["selector"] == {"site": "blog"}
    reasons = {event["reason"] for event in apiserver.objects(EVENTS_V1)}
    assert reasons == {"Deploying", "Deployed"}


async def test_deleted_site_loses_its_record(apiserver: APIServer) -> None:
    site = apiserver.create(SITES, SITE)
    async with make_manager(apiserver.client()):
        await apiserver.until(lambda: apiserver.get(DEPLOYMENTS, "blog"), timeout=LONG)
        apiserver.delete(SITES, "blog")
        await apiserver.until(lambda: not apiserver.objects(SITES), timeout=LONG)

    assert site["metadata"]["uid"] not in records


async def test_deleted_service_is_created_again(apiserver: APIServer) -> None:
    apiserver.create(SITES, SITE)
    async with make_manager(apiserver.client()):
        await apiserver.until(lambda: apiserver.get(SERVICES, "blog"), timeout=LONG)
        apiserver.delete(SERVICES, "blog")
        await apiserver.until(lambda: apiserver.get(SERVICES, "blog"), timeout=LONG)


async def test_image_without_tag_is_refused() -> None:
    refused = await check_image.review({**SITE, "spec": {"image": "nginx"}})
    assert not refused.allowed
    assert (await check_image.review(SITE)).allowed


@pytest.mark.parametrize("verb", ["list", "watch", "patch"])
async def test_operator_survives_an_outage(
    apiserver: APIServer, verb: Literal["list", "watch", "patch"]
) -> None:
    apiserver.faults.add(Refuse(verb=verb, status=503, times=5))
    apiserver.create(SITES, SITE)
    async with make_manager(apiserver.client()):
        await apiserver.until(lambda: apiserver.get(DEPLOYMENTS, "blog"), timeout=LONG)
        run_pods(apiserver)
        await apiserver.until(
            lambda: is_ready(apiserver.get(SITES, "blog")), timeout=LONG
        )

    apiserver.faults.check()  # each refusal took place
