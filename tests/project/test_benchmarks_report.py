"""The report of the benchmarks compares the right figures and omits none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import pytest
from bench import record
from bench.figures import OURS, Figure, median, percentile
from bench.goals import FASTEST_PYTHON, GOALS, Goal, against, unjudged
from bench.page import MARKS, write_between_marks, write_page
from bench.report import SummaryRow, markdown, rows, shown, summary

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CASE = "10,000 pods, body not read"


def figure(
    contestant: str, value: float | None, case: str = CASE, note: str = ""
) -> Figure:
    return Figure(
        benchmark="list_sync",
        case=case,
        contestant=contestant,
        unit="pods/s",
        value=value,
        runs=[] if value is None else [value],
        note=note,
    )


FIGURES = [
    figure(OURS, 48_123.4),
    figure("client-go typed JSON", 3_000),
    figure("lightkube", 5_000),
    figure("kr8s", 300),
    figure("kube-rs", None, note="cargo is not installed"),
]


def goal(
    bound: float,
    peer: str | None,
    *,
    at: Literal["least", "most"] = "least",
    contestant: str = OURS,
) -> Goal:
    return Goal(
        benchmark="list_sync",
        case=CASE,
        at=at,
        bound=bound,
        peer=peer,
        contestant=contestant,
    )


def table(figures: list[Figure], *goals: Goal) -> dict[str, tuple[str, ...]]:
    """Return the ratio, the goal and the verdict of each row, by the peer."""
    lines = [shown(it) for it in rows(figures, goals)]
    return {line[3]: line[5:] for line in lines}


def test_missing_peer_has_a_row_with_the_reason() -> None:
    assert table(FIGURES) == {
        "client-go typed JSON": ("16x", "", ""),
        "lightkube": ("9.62x", "", ""),
        "kr8s": ("160x", "", ""),
        "kube-rs": ("", "", "cargo is not installed"),
    }


def test_goal_is_judged_by_the_ratio_to_its_peer() -> None:
    wanted = table(FIGURES, goal(15, "client-go typed JSON"), goal(10, "lightkube"))

    assert wanted["client-go typed JSON"] == ("16x", "≥ 15x", "reached")
    assert wanted["lightkube"] == ("9.62x", "≥ 10x", "missed")


def test_fastest_python_peer_excludes_ours_and_go() -> None:
    wanted = table(FIGURES, goal(8, FASTEST_PYTHON))

    assert wanted[f"{FASTEST_PYTHON}: lightkube"] == ("9.62x", "≥ 8x", "reached")


def test_goal_without_a_peer_is_judged_by_our_figure() -> None:
    assert table(FIGURES, goal(50_000, None))[""] == ("", "≥ 50,000", "missed")
    assert table(FIGURES[:1], goal(50_000, None, at="most"))[""][-1] == "reached"


def test_goal_with_unmeasured_peer_is_reported() -> None:
    for figures in (FIGURES[:1], [FIGURES[0], FIGURES[4]]):
        wanted = table(
            figures, goal(2, "client-go typed JSON"), goal(1, FASTEST_PYTHON)
        )

        assert wanted["client-go typed JSON"][1:] == ("≥ 2x", "not measured")
        assert wanted[FASTEST_PYTHON][1:] == ("≥ 1x", "not measured")
        assert against(goal(2, "client-go typed JSON"), figures) is None


def test_variant_of_ours_is_compared_with_the_peers_of_its_case() -> None:
    variant = figure(f"{OURS}, compressed", 30_000)
    lines = [shown(it) for it in rows([variant, *FIGURES[1:2]], [])]

    assert lines == [
        (
            f"list_sync: {CASE} (compressed)",
            "30,000",
            "pods/s",
            "client-go typed JSON",
            "3,000",
            "10x",
            "",
            "",
        )
    ]


def test_our_own_failure_is_reported() -> None:
    failed = figure(OURS, None, note="it has another state than the server")

    assert table([failed, *FIGURES[1:2]], goal(15, "client-go typed JSON")) == {
        "client-go typed JSON": (
            *("", "≥ 15x"),
            "it has another state than the server",
        )
    }


def test_goal_without_measurement_is_reported() -> None:
    other = goal(1, None, contestant=f"{OURS}, compressed")

    assert unjudged([goal(1, None), other], FIGURES) == [other]


def test_goals_are_unique() -> None:
    places = [(it.benchmark, it.case, it.contestant, it.peer) for it in GOALS]

    assert len(set(places)) == len(places)


def test_page_has_a_line_for_each_figure(tmp_path: Path) -> None:
    measured = {"list_sync": record.circumstances(FIGURES, 3)}
    text = write_page(measured, tmp_path)
    page = (tmp_path / "README.md").read_text()

    assert text in page
    for peer in FIGURES[1:]:
        assert peer.contestant in page

    assert "Not measured: memory: 10,000 pods stored" in page
    assert f"commit {measured['list_sync'].commit}" in page
    assert (tmp_path / "list_sync.png").read_bytes().startswith(b"\x89PNG")


def test_summary_is_replaced_between_marks_only(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{MARKS[0]}\nold\n{MARKS[1]}\nbehind\n")
    measured = {"list_sync": record.circumstances(FIGURES, 3)}
    for _ in range(2):
        write_between_marks(readme, measured)

    text = readme.read_text()
    assert text.startswith(f"before\n{MARKS[0]}\n|  | aioinformer | client-go |")
    assert text.endswith(f"{MARKS[1]}\nbehind\n")
    assert "old" not in text


@pytest.mark.parametrize(
    ("best", "go", "python"),
    [
        (max, "6,000 pods/s (plain list)", "5,000 pods/s (lightkube)"),
        (min, "3,000 pods/s", "300 pods/s (kr8s)"),
    ],
)
def test_summary_names_the_fastest_setting_of_each_family(
    best: Callable[..., Figure], go: str, python: str
) -> None:
    plain = figure("client-go typed JSON, plain list", 6_000)
    line = SummaryRow(what="List", benchmark="list_sync", case=CASE, best=best)

    *_, last = summary([*FIGURES, plain], [line]).splitlines()

    assert last == f"| List | **48,100 pods/s** | {go} | - | {python} |"


def test_page_without_marks_is_unchanged(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text("nothing\n")

    with pytest.raises(ValueError, match="marks"):
        write_between_marks(readme, {})

    assert readme.read_text() == "nothing\n"


def test_figures_survive_a_round_trip(tmp_path: Path) -> None:
    measured = {"list_sync": record.circumstances(FIGURES, 3)}
    path = tmp_path / "deep" / "figures.json"
    assert record.read(path) == {}

    record.write(path, measured)

    assert record.read(path) == measured


def test_table_columns_are_aligned() -> None:
    lines = markdown(list(rows(FIGURES, []))).splitlines()

    assert len({len(line) for line in lines}) == 1
    assert len(lines) == 2 + len(FIGURES) - 1


def test_figure_is_the_median_of_its_runs() -> None:
    made = median("q", "c", OURS, "ms", [3.0, 1.0, 2.0])

    assert (made.value, made.runs) == (2.0, [3.0, 1.0, 2.0])


@pytest.mark.parametrize(
    ("share", "value"), [(0.5, 50.0), (0.99, 99.0), (1.0, 100.0), (0.0, 1.0)]
)
def test_percentiles_are_observed_values(share: float, value: float) -> None:
    assert percentile([float(it) for it in range(100, 0, -1)], share) == value


def test_percentile_of_no_values_is_none() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)
