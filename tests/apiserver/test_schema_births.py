"""What a new object is given once: addresses, qualities, and what is kept later."""

from __future__ import annotations

from typing import Any

import pytest

from aioinformer.model import resources
from aioinformer_apiserver.schema.creation_defaults import (
    preserved_on_update,
    qos_class,
)
from aioinformer_apiserver.schema.service_allocation import with_addresses


def service(**spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "a", "namespace": "b"},
        "spec": {"type": "ClusterIP", "ports": [{"port": 80}], **spec},
    }


def limited(**amounts: str) -> dict[str, Any]:
    return {"resources": {"limits": amounts, "requests": amounts}}


def test_a_service_is_given_the_same_address_again() -> None:
    first, second = with_addresses(service()), with_addresses(service())

    assert first["spec"]["clusterIP"].startswith("10.96.")
    assert first == second


def test_addresses_of_others_are_not_given() -> None:
    address = with_addresses(service())["spec"]["clusterIP"]

    other = with_addresses(service(), taken={address})["spec"]["clusterIP"]

    assert other != address


def test_there_is_an_end_of_addresses() -> None:
    class Everything(frozenset[str]):
        def __contains__(self, item: object) -> bool:
            return True

    with pytest.raises(ValueError, match="addresses"):
        with_addresses(service(), taken=Everything())


def test_node_ports_differ() -> None:
    ports = [{"port": 80}, {"port": 81}]
    found = with_addresses(service(type="NodePort", ports=ports))["spec"]["ports"]
    given = {it["nodePort"] for it in found}

    assert len(given) == 2
    assert all(30000 <= it < 32768 for it in given)
    again = with_addresses(service(type="NodePort", ports=ports), taken_ports=given)
    assert not given & {it["nodePort"] for it in again["spec"]["ports"]}


def test_there_is_an_end_of_node_ports() -> None:
    with pytest.raises(ValueError, match="ports"):
        with_addresses(service(type="NodePort"), taken_ports=range(30000, 32768))


def test_a_balancer_that_stays_local_is_checked_on_a_port() -> None:
    local = service(type="LoadBalancer", externalTrafficPolicy="Local")

    assert "healthCheckNodePort" in with_addresses(local)["spec"]


def test_an_update_keeps_what_it_leaves_out() -> None:
    old = with_addresses(service(type="NodePort"))

    assert with_addresses(service(type="NodePort"), old=old, taken={"x"}) == old


def test_an_update_gives_back_what_its_type_does_not_need() -> None:
    old = with_addresses(service(type="NodePort", externalTrafficPolicy="Cluster"))
    given = {**old["spec"], "type": "ClusterIP"}

    spec = with_addresses({**old, "spec": given}, old=old)["spec"]

    assert "externalTrafficPolicy" not in spec
    assert "nodePort" not in spec["ports"][0]
    assert spec["clusterIP"] == old["spec"]["clusterIP"]


def test_a_name_elsewhere_needs_no_address() -> None:
    old = with_addresses(service())
    given = {**old["spec"], "type": "ExternalName"}

    spec = with_addresses({**old, "spec": given}, old=old)["spec"]

    assert not {"clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"} & spec.keys()


@pytest.mark.parametrize(
    ("containers", "expected"),
    [
        ([{}], "BestEffort"),
        ([limited(cpu="1", memory="1Gi")], "Guaranteed"),
        ([limited(cpu="1", memory="1Gi"), {}], "Burstable"),
        ([limited(cpu="1")], "Burstable"),
        ([{"resources": {"requests": {"cpu": "1"}}}], "Burstable"),
        ([limited(cpu="0", memory="0")], "BestEffort"),
        (None, "BestEffort"),
    ],
)
def test_quality_follows_from_resources(containers: Any, expected: str) -> None:
    assert qos_class({"containers": containers}) == expected


def test_other_kinds_carry_nothing_over() -> None:
    new: dict[str, Any] = {"metadata": {}, "spec": {}}

    assert preserved_on_update(resources.CONFIG_MAPS, {"metadata": {}}, new) is new
