"""Metrics endpoint for Prometheus."""

from __future__ import annotations

import sys

import pytest
from prometheus_client import CollectorRegistry

from aioinformer.errors import OptionsError
from aioinformer.metrics_prometheus import PrometheusSink
from aioinformer.web.metrics import exposition, metrics_responders
from aioinformer.web.responses import EndpointRequest


def registry() -> CollectorRegistry:
    made = CollectorRegistry()
    PrometheusSink(made).count("reflector_lists_total", name="pods")
    return made


def test_metrics_are_in_text_format() -> None:
    answer = exposition(registry())

    assert answer.status == 200
    assert answer.content_type.startswith("text/plain; version=")
    assert b'reflector_lists_total{name="pods"} 1.0\n' in answer.body


def test_metrics_are_in_format_of_accept_header() -> None:
    answer = exposition(registry(), "application/openmetrics-text; version=1.0.0")

    assert answer.content_type.startswith("application/openmetrics-text")
    assert answer.body.endswith(b"# EOF\n")


@pytest.mark.parametrize(
    "accept",
    [
        "application/openmetrics-text; version=abc",
        "application/openmetrics-text; version=",
        "text/plain; version=1.0.x",
        "text/plain; escaping=\x00",
        ";;,,==",
    ],
)
def test_metrics_are_in_text_format_for_invalid_accept_header(accept: str) -> None:
    answer = exposition(registry(), accept)

    assert answer.status == 200
    assert answer.content_type.isprintable()


async def test_default_registry_is_that_of_process() -> None:
    (responder,) = metrics_responders().values()

    assert b"process_open_fds" in (await responder(EndpointRequest())).body, (
        "read in a thread"
    )


def test_metrics_path_is_configurable() -> None:
    assert list(metrics_responders(path="/internal/metrics")) == ["/internal/metrics"]
    with pytest.raises(OptionsError, match="slash"):
        metrics_responders(path="metrics")


def test_missing_prometheus_client_is_reported_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)

    with pytest.raises(OptionsError, match=r"aioinformer\[metrics\]"):
        metrics_responders()
