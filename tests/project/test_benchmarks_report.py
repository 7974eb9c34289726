"""The report of the benchmarks compares the right figures and omits none."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import pytest
from bench.figures import OURS, Figure, median, percentile
from bench.goals import BEST_CLIENT_GO, BEST_PYTHON, GOALS, Goal, against, unjudged
from bench.page import MARKS, missed, write_between_marks, write_page
from bench.record import new_run
from bench.report import SummaryRow, columns, markdown, rows, shown, summary

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
RUN = new_run().with_figures("list_sync", FIGURES, 90)


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
    wanted = table(FIGURES, goal(8, BEST_PYTHON))

    assert wanted[f"{BEST_PYTHON}: lightkube"] == ("9.62x", "≥ 8x", "reached")


def test_best_of_a_family_depends_on_the_direction() -> None:
    figures = [*FIGURES, figure("client-go typed protobuf", 9_000)]
    label = f"{BEST_CLIENT_GO}: client-go typed"

    most = table(figures, goal(20, BEST_CLIENT_GO, at="most"))
    assert most[f"{label} JSON"] == ("16x", "≤ 20x", "reached")
    least = table(figures, goal(5, BEST_CLIENT_GO))
    assert least[f"{label} protobuf"] == ("5.35x", "≥ 5x", "reached")


def test_missed_goals_are_explained() -> None:
    reached = replace(goal(10, "client-go typed JSON"), why="Of us.")
    goals = [
        reached,
        *(replace(goal(9, it), why="Of them.") for it in ("lightkube", "x")),
    ]
    assert list(missed(list(rows(FIGURES, goals)))) == []

    harder = [replace(it, bound=20) for it in goals]
    (both,) = missed(list(rows(FIGURES[:2], harder[:1])))
    (theirs,) = missed(list(rows(FIGURES, harder[1:])))

    assert both == f"* Missed: list_sync: {CASE}, ≥ 20x client-go typed JSON. Of us.\n"
    assert theirs == f"* Missed: list_sync: {CASE}, ≥ 20x lightkube. Of them.\n"

    alone = replace(goal(50_000, None), why="Of us.")
    (ours,) = missed(list(rows(FIGURES, [alone])))
    assert ours == f"* Missed: list_sync: {CASE}, ≥ 50,000. Of us.\n"


def test_goal_without_a_peer_is_judged_by_our_figure() -> None:
    assert table(FIGURES, goal(50_000, None))[""] == ("", "≥ 50,000", "missed")
    assert table(FIGURES[:1], goal(50_000, None, at="most"))[""][-1] == "reached"


def test_goal_with_unmeasured_peer_is_reported() -> None:
    for figures in (FIGURES[:1], [FIGURES[0], FIGURES[4]]):
        wanted = table(figures, goal(2, "client-go typed JSON"), goal(1, BEST_PYTHON))

        assert wanted["client-go typed JSON"][1:] == ("≥ 2x", "not measured")
        assert wanted[BEST_PYTHON][1:] == ("≥ 1x", "not measured")
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
    text = write_page(RUN, tmp_path)
    page = (tmp_path / "README.md").read_text()

    assert text in page
    for peer in FIGURES[1:]:
        assert peer.contestant in page

    assert "Not measured: memory: 10,000 pods stored" in page
    assert page.count(f"commit {RUN.commit}, {RUN.machine}; Python ") == 1
    assert "The run took 2 minutes: `list_sync` 1.5." in page
    assert (tmp_path / "list_sync.png").read_bytes().startswith(b"\x89PNG")


def test_summary_is_replaced_between_marks_only(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{MARKS[0]}\nold\n{MARKS[1]}\nbehind\n")
    for _ in range(2):
        write_between_marks(readme, RUN)

    text = readme.read_text()
    assert text.startswith(f"before\n{MARKS[0]}\n|  | aioinformer | client-go |")
    assert text.count(f"commit {RUN.commit}") == 1
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


def test_summary_may_leave_out_protobuf() -> None:
    figures = [*FIGURES, figure("client-go typed protobuf", 30_000)]
    line = SummaryRow(what="List", benchmark="list_sync", case=CASE)
    lines = [line, replace(line, protobuf=False)]

    *_, default, without = summary(figures, lines).splitlines()

    assert "| 30,000 pods/s (typed protobuf) |" in default
    assert "| 3,000 pods/s |" in without
    assert len(summary(FIGURES, lines).splitlines()) == 3


def test_summary_omits_rows_without_a_figure_of_ours() -> None:
    line = SummaryRow(what="List", benchmark="list_sync", case=CASE)

    assert len(summary(FIGURES, [line]).splitlines()) == 3
    assert len(summary(FIGURES[1:], [line]).splitlines()) == 2


def test_page_without_marks_is_unchanged(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text("nothing\n")

    with pytest.raises(ValueError, match="marks"):
        write_between_marks(readme, RUN)

    assert readme.read_text() == "nothing\n"


def test_contestants_may_be_columns() -> None:
    old, new = (f"{OURS}, Python 3.{minor}" for minor in (11, 14))
    elsewhere = Figure(benchmark="x", case="c", contestant=OURS, unit="ms", value=1.0)
    figures = [
        figure(old, 1_000),
        figure(new, 2_000),
        figure(new, 5, "other"),
        elsewhere,
    ]

    assert columns(figures, "list_sync").splitlines() == [
        "|  |  | Python 3.11 | Python 3.14 |",
        "| --- | --- | --: | --: |",
        f"| {CASE} | pods/s | 1,000 | 2,000 |",
        "| other | pods/s | - | 5 |",
    ]
    assert columns(figures, "memory") == ""


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
