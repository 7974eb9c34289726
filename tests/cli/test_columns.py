"""Widths of columns."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from aioinformer.cli.columns import cut, fitted, line_of_cells, widened


@pytest.mark.parametrize(
    ("text", "width", "expected"),
    [
        pytest.param("web-0", 5, "web-0", id="fits"),
        pytest.param("web-10", 5, "web-…", id="too-long"),
        pytest.param("日本語", 6, "日本語", id="wide-fits"),
        pytest.param("日本語", 5, "日本…", id="wide-cut"),
        pytest.param("日本語", 4, "日…", id="wide-cut-inside-of-a-character"),
        pytest.param("web", 1, "…", id="one-cell"),
        pytest.param("web", 0, "", id="no-cell"),
    ],
)
def test_long_text_is_cut_with_ellipsis(text: str, width: int, expected: str) -> None:
    assert cut(text, width) == expected


def test_column_widths_never_shrink() -> None:
    widths = widened(widened([], ["NAME", "AGE"]), ["web", "5d4h"])

    assert widths == [4, 4]


@pytest.mark.parametrize(
    ("widths", "room", "expected"),
    [
        pytest.param([5, 5], 20, [5, 5], id="fits"),
        pytest.param([5, 63, 5], 40, [5, 24, 5], id="the-widest-gives"),
        pytest.param([20, 30, 5], 36, [13, 12, 5], id="then-the-next"),
        pytest.param([30, 30, 30], 42, [12, 12, 12], id="to-the-least"),
        pytest.param([30, 30, 30], 40, [19, 18, 0], id="then-the-last-goes"),
        pytest.param([30, 30, 30], 3, [3, 0, 0], id="one-stays"),
        pytest.param([], 3, [], id="none"),
    ],
)
def test_columns_are_cut_to_fit_room(
    widths: list[int], room: int, expected: list[int]
) -> None:
    assert fitted(widths, room) == expected


@given(st.lists(st.integers(1, 300), max_size=12), st.integers(0, 250))
def test_fitted_columns_fit_and_never_grow(widths: list[int], room: int) -> None:
    given_widths = fitted(widths, room)
    cells = ["x" * width for width in widths]

    assert cell_len(line_of_cells(cells, given_widths)) <= room
    assert all(new <= old for new, old in zip(given_widths, widths, strict=True))


def test_wide_characters_count_as_two_cells() -> None:
    assert line_of_cells(["日本", "x"], [6, 1]) == "日本     x"
