"""What an overview says is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from aioinformer.web.dashboard.trouble import LAG_SECONDS, trouble_in

INFORMER: dict[str, Any] = {
    "id": "pods #2",
    "name": "pods",
    "phase": "watching",
    "synced": True,
    "failures": 0,
    "degraded": 0,
    "error": "",
    "store": None,
}
CONTROLLER: dict[str, Any] = {
    "name": "web/apps",
    "failing": 0,
    "last_failure": "Conflict of shop/web",
    "storms": 0,
}
PROGRAM: dict[str, Any] = {
    "informers": [],
    "controllers": [],
    "manager": None,
    "shards": [],
    "recorders": [],
    "memory": {"budget": None},
    "loop": {"lag": LAG_SECONDS},
}


def informer(**changed: Any) -> dict[str, Any]:
    return {"informers": [INFORMER | changed]}


def controller(**changed: Any) -> dict[str, Any]:
    return {"controllers": [CONTROLLER | changed]}


@pytest.mark.parametrize(
    "parts",
    [
        informer(store={"role": "writer"}) | controller(),
        {"manager": {"trouble": ""}, "memory": {"budget": {"over": False}}},
        {"shards": [{"trouble": ""}], "recorders": [{"dropped": 0}]},
    ],
)
def test_program_that_works_has_no_trouble(parts: dict[str, Any]) -> None:
    assert trouble_in(PROGRAM | parts) == []


@pytest.mark.parametrize(
    ("parts", "level", "what", "text"),
    [
        (informer(error="old"), "warning", "informer pods", "old"),
        (informer(error="new", synced=False), "error", "informer pods", "new"),
        (informer(error="refused", failures=3), "error", "informer pods", "refused"),
        (informer(error="bug", phase="stopped"), "error", "informer pods", "bug"),
        (informer(phase="backing off"), "warning", "informer pods", "interrupted"),
        (informer(degraded=1234), "warning", "informer pods", "1,234 objects"),
        (informer(store={"role": "memory"}), "warning", "informer pods", "in memory"),
        (controller(failing=1), "error", "controller web/apps", "1 request fails: Con"),
        (controller(failing=2), "error", "controller web/apps", "2 requests fail: Con"),
        (controller(storms=2), "warning", "controller web/apps", "2 of its keys"),
        ({"manager": {"trouble": "not running"}}, "warning", "manager", "not running"),
        (
            {"shards": [{"group": "a", "trouble": "no lease"}]},
            "error",
            "shards a",
            "no lease",
        ),
        (
            {"recorders": [{"name": "apps", "dropped": 3}]},
            "warning",
            "events of apps",
            "3 events were not",
        ),
        (
            {"memory": {"budget": {"over": True, "text": "9 of 8"}}},
            "warning",
            "memory",
            "9 of 8",
        ),
        ({"loop": {"lag": 0.25}}, "warning", "event loop", "250 ms"),
    ],
)
def test_trouble_has_a_level_and_words(
    parts: dict[str, Any], level: str, what: str, text: str
) -> None:
    (found,) = trouble_in(PROGRAM | parts)
    assert (found.level, found.what) == (level, what)
    assert text in found.text
    assert found.page.startswith("https://aioinformer.github.io/aioinformer/")


def test_errors_come_first_and_lead_to_their_place() -> None:
    parts = informer(phase="backing off") | controller(failing=1)
    first, second = trouble_in(PROGRAM | parts)
    assert first.link == "#/controllers/web%2Fapps"
    assert second.link == "#/objects/pods%20%232"
