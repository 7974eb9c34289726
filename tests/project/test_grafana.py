"""Dashboard and alerts: each metric and label of a query exists in real output."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import yaml
from measured_program import exposition, kinds_of, labels_of
from processes import ROOT

from aioinformer.metrics_prometheus import _HELP

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FOLDER = ROOT / "docs" / "grafana"
DASHBOARD = json.loads((FOLDER / "aioinformer.json").read_text())
ALERTS = yaml.safe_load((FOLDER / "alerts.yaml").read_text())

ADDED_BY_PROMETHEUS = {"job", "instance"}

# Gauges that only grow, with the values of the event loop: `rate()` is right for them.
GROWING_GAUGES = {"aioinformer_loop_slices", "aioinformer_loop_stalls"}

# In a query without matchers, strings and `by (...)`, the names with an underscore that
# are not one of these are metrics.
FUNCTIONS = {"histogram_quantile", "min_over_time", "__rate_interval"}


def panels() -> list[dict[str, Any]]:
    return [it for it in DASHBOARD["panels"] if it["type"] != "row"]


def used_by(query: str) -> tuple[set[str], set[str]]:
    """Return the metrics and the labels of a query."""
    labels = set(re.findall(r"(\w+)\s*(?:=~?|!=|!~)\s*\"", query))
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
    output = await exposition(tmp_path / "cache")
    exposed, kinds = labels_of(output), kinds_of(output)
    wrong = []
    for title, query, text in queries():
        for function, metric in re.findall(r"\b([a-z_]+)\(([a-z_]+)[{[]", query):
            counts = kinds[metric] in {"counter", "histogram"}
            if (function in {"rate", "increase"}) != (
                counts or metric in GROWING_GAUGES
            ):
                wrong.append(f"{title}: {function} of the {kinds[metric]} {metric}")

        names, labels = used_by(query)
        assert names, title
        shown = re.findall(r"\{\{ *(?:\$labels\.)?(\w+) *\}\}", text)
        labels.update(set(shown) - ADDED_BY_PROMETHEUS)
        wrong += [f"{title}: no metric {it}" for it in names if it not in exposed]
        known = set[str]().union(*(exposed.get(it, set()) for it in names))
        if missing := labels - known:
            wrong.append(f"{title}: no labels {missing} in {query}")

    assert not wrong, "\n".join(wrong)


def test_alerts_name_the_instance_unless_they_are_about_all_of_them() -> None:
    rules = ALERTS["groups"][0]["rules"]
    about_all = {
        it["alert"]
        for it in rules
        if any("instance" not in by for by in re.findall(r"by \([^)]*\)", it["expr"]))
    }
    assert all("by (job, " in it["expr"] for it in rules)
    assert about_all == {"NoLeader", "ReconcilesFail", "RangesWithoutOwner"}


def test_alerts_ignore_ages_that_are_not_known_yet() -> None:
    for rule in ALERTS["groups"][0]["rules"]:
        if re.search(r"_(age|heartbeat)_seconds", rule["expr"]):
            assert rule["expr"].endswith(" < +Inf"), rule["alert"]


def test_relists_after_changes_of_the_selection_raise_no_alert() -> None:
    (rule,) = [it for it in ALERTS["groups"][0]["rules"] if "relists" in it["expr"]]
    assert '{reason!="Selection"}' in rule["expr"]


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
    query = (
        'sum by (name, le) (rate(a_bucket{job="x",code=~"5..",at!="y"}[5m]))'
        " > 2 * b_total"
    )
    assert used_by(query) == ({"a_bucket", "b_total"}, {"name", "le", "code", "at"})


def test_variables_have_values_of_programs_with_informers() -> None:
    variables = {
        it["name"]: it["query"]["query"]
        for it in DASHBOARD["templating"]["list"]
        if it["type"] == "query"
    }
    metric = "aioinformer_informer_synced"
    assert variables == {
        "job": f"label_values({metric}, job)",
        "instance": f'label_values({metric}{{job=~"$job"}}, instance)',
    }


def test_panels_that_add_up_gauges_say_so() -> None:
    silent = [
        panel["title"]
        for panel in panels()
        for target in panel["targets"]
        if re.match(r"sum by \((name|handler|controller)\) \([a-z]", target["expr"])
        and "rate(" not in target["expr"]
        and not re.search(r"added up|that lead|that write", panel["description"])
    ]
    assert silent == []


def test_page_lists_all_metrics() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    listed = {it for row in rows for it in re.findall(r"`([a-z]+_[a-z_]+)`", row)}
    assert set(_HELP) <= listed
    other = listed - set(_HELP)
    assert other == {"requeue_after"}
