"""Creation defaults, and allocation of service addresses."""

from __future__ import annotations

from typing import Any

import pytest
from each_case import each_case

from aioinformer.model import resources
from aioinformer_apiserver.schema.creation_defaults import (
    qos_class,
    restore_creation_defaults,
)
from aioinformer_apiserver.schema.service_allocation import with_addresses


def service(**spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "a", "namespace": "b"},
        "spec": {"type": "ClusterIP", "ports": [{"port": 80}], **spec},
    }


def limited(**amounts: str) -> dict[str, Any]:
    return {"resources": {"limits": amounts, "requests": amounts}}


def test_service_gets_same_address_again() -> None:
    first, second = with_addresses(service()), with_addresses(service())

    assert first["spec"]["clusterIP"].startswith("10.96.")
    assert first == second


def test_service_does_not_get_taken_address() -> None:
    address = with_addresses(service())["spec"]["clusterIP"]

    other = with_addresses(service(), taken={address})["spec"]["clusterIP"]

    assert other != address


def test_exhausted_addresses_raise() -> None:
    class Everything(frozenset[str]):
        def __contains__(self, item: object) -> bool:
            return True

    with pytest.raises(ValueError, match="addresses"):
        with_addresses(service(), taken=Everything())


def test_node_ports_are_distinct() -> None:
    ports = [{"port": 80}, {"port": 81}]
    found = with_addresses(service(type="NodePort", ports=ports))["spec"]["ports"]
    given = {it["nodePort"] for it in found}

    assert len(given) == 2
    assert all(30000 <= it < 32768 for it in given)
    again = with_addresses(service(type="NodePort", ports=ports), taken_ports=given)
    assert not given & {it["nodePort"] for it in again["spec"]["ports"]}


def test_exhausted_node_ports_raise() -> None:
    with pytest.raises(ValueError, match="ports"):
        with_addresses(service(type="NodePort"), taken_ports=range(30000, 32768))


def test_local_load_balancer_gets_health_check_port() -> None:
    local = service(type="LoadBalancer", externalTrafficPolicy="Local")

    assert "healthCheckNodePort" in with_addresses(local)["spec"]


def test_update_keeps_omitted_addresses() -> None:
    old = with_addresses(service(type="NodePort"))

    assert with_addresses(service(type="NodePort"), old=old, taken={"x"}) == old


def test_update_drops_values_its_type_does_not_need() -> None:
    old = with_addresses(service(type="NodePort", externalTrafficPolicy="Cluster"))
    given = {**old["spec"], "type": "ClusterIP"}

    spec = with_addresses({**old, "spec": given}, old=old)["spec"]

    assert "externalTrafficPolicy" not in spec
    assert "nodePort" not in spec["ports"][0]
    assert spec["clusterIP"] == old["spec"]["clusterIP"]


def test_external_name_service_gets_no_address() -> None:
    old = with_addresses(service())
    given = {**old["spec"], "type": "ExternalName"}

    spec = with_addresses({**old, "spec": given}, old=old)["spec"]

    assert not {"clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"} & spec.keys()


@each_case(
    "containers, expected",
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
def test_qos_class_depends_on_resources(containers: Any, expected: str) -> None:
    assert qos_class({"containers": containers}) == expected


def test_other_kinds_preserve_nothing_on_update() -> None:
    new: dict[str, Any] = {"metadata": {}, "spec": {}}

    assert (
        restore_creation_defaults(resources.CONFIG_MAPS, {"metadata": {}}, new) is new
    )
