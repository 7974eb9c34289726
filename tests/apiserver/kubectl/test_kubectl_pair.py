"""Normalization of kubectl's output for comparisons."""

from __future__ import annotations

import pytest
from each_case import each_case

# Imported late, because pytest must load the plugin first.
pytest_plugins = ["kubectl_pair"]


@each_case(
    "ours, real",
    [
        pytest.param("a  5s", "a      2m10s", id="age"),
        pytest.param('resourceVersion: "7"', 'resourceVersion: "12"', id="version"),
        pytest.param('"resourceVersion": "7",', '"resourceVersion": "12",', id="json"),
        pytest.param(
            r"\"resourceVersion\":\"7\"", r"\"resourceVersion\":\"8\"", id="text"
        ),
        pytest.param(
            "uid: 0a8b6a49-6e9d-4ac1-8d9c-d0a05d8a0b1c",
            "uid: 1b8b6a49-6e9d-4ac1-8d9c-d0a05d8a0b1d",
            id="uid",
        ),
        pytest.param("2025-01-01T00:00:00Z", "2026-02-03T04:05:06Z", id="time"),
        pytest.param("10.96.0.1", "10.0.0.17", id="address"),
        pytest.param("http://127.0.0.1:80/x", "https://127.0.0.1:443/x", id="server"),
    ],
)
def test_pair_normalizes_varying_output(ours: str, real: str) -> None:
    from kubectl_pair import plain

    assert plain(ours) == plain(real)


@each_case(
    "ours, real",
    [
        pytest.param("web  0/2", "web  0/3", id="number"),
        pytest.param("  a: 1", "    a: 1", id="indentation"),
        pytest.param("cpu: 500m", "cpu: 1", id="quantity"),
        pytest.param("app-5s", "app-6s", id="name"),
        pytest.param("period: 5s", "period: 6s", id="seconds"),
        pytest.param("  500m  ", "  600m  ", id="milli"),
        pytest.param("image: web:1", "image: web:2", id="image"),
    ],
)
def test_pair_keeps_significant_differences(ours: str, real: str) -> None:
    from kubectl_pair import plain

    assert plain(ours) != plain(real)
