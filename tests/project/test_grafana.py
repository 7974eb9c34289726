"""Dashboard and alerts: each metric and label of a query exists in real output."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import yaml
from measured_program import exposition, labels_of
from processes import ROOT

from aioinformer.metrics_prometheus import _HELP

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FOLDER = ROOT / "docs" / "grafana"
DASHBOARD = json.loads((FOLDER / "aioinformer.json").read_text())
ALERTS = yaml.safe_load((FOLDER / "alerts.yaml").read_text())

ADDED_BY_PROMETHEUS = {"job", "instance"}

# In a query without matchers, strings and `by (...)`, the names with an underscore that
# are not one of these are metrics.
FUNCTIONS = {"histogram_quantile", "min_over_time", "__rate_interval"}


def panels() -> list[dict[str, Any]]:
    return [it for it in DASHBOARD["panels"] if it["type"] != "row"]


def used_by(query: str) -> tuple[set[str], set[str]]:
    """Return the metrics and the labels of a query."""
    labels = set(re.findall(r"(\w+)\s*=~?", query))
    for group in re.findall(r"\bby \(([^)]*)\)", query):
        labels.update(it.strip() for it in group.split(","))

    bare = re.sub(r"\bby \([^)]*\)|\{[^}]*\}", "", query)
    names = {it for it in re.findall(r"[a-z_]+", bare) if "_" in it}
    return names - FUNCTIONS, labels - ADDED_BY_PROMETHEUS


def queries() -> Iterator[tuple[str, str, str]]:
    """Yield the title, query and texts of each panel and alert."""
    for panel in panels():
        for target in panel["targets"]:
            yield panel["title"], target["expr"], target["legendFormat"]

    for rule in ALERTS["groups"][0]["rules"]:
        yield rule["alert"], rule["expr"], rule["annotations"]["summary"]


async def test_queries_use_metrics_and_labels_that_exist(tmp_path: Path) -> None:
    exposed = labels_of(await exposition(tmp_path / "cache"))
    wrong = []
    for title, query, text in queries():
        names, labels = used_by(query)
        assert names, title
        shown = re.findall(r"\{\{ *(?:\$labels\.)?(\w+) *\}\}", text)
        labels.update(set(shown) - ADDED_BY_PROMETHEUS)
        wrong += [f"{title}: no metric {it}" for it in names if it not in exposed]
        known = set[str]().union(*(exposed.get(it, set()) for it in names))
        if missing := labels - known:
            wrong.append(f"{title}: no labels {missing} in {query}")

    assert not wrong, "\n".join(wrong)


def test_shown_labels_survive_the_aggregation() -> None:
    for title, query, text in queries():
        grouped = re.findall(r"\bby \(([^)]*)\)", query)
        kept = {it.strip() for group in grouped for it in group.split(",")}
        shown = set(re.findall(r"\{\{ *(?:\$labels\.)?(\w+) *\}\}", text))
        assert not kept or shown <= kept, title


def test_panels_have_their_own_places_and_numbers() -> None:
    numbers = [it["id"] for it in DASHBOARD["panels"]]
    assert len(set(numbers)) == len(numbers)
    cells = [
        (x, y)
        for place in (it["gridPos"] for it in DASHBOARD["panels"])
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


def test_parser_of_queries_finds_metrics_and_labels() -> None:
    query = 'sum by (name, le) (rate(a_bucket{job="x",code=~"5.."}[5m])) > 2 * b_total'
    assert used_by(query) == ({"a_bucket", "b_total"}, {"name", "le", "code"})


def test_page_lists_all_metrics() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    listed = {it for row in rows for it in re.findall(r"`([a-z]+_[a-z_]+)`", row)}
    assert set(_HELP) <= listed
    other = listed - set(_HELP)
    assert other == {"requeue_after"}
