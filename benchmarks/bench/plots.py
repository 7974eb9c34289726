"""Pictures: rates, memory, and growth."""

from __future__ import annotations

from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib.figure import Figure as Picture

from bench.figures import OURS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from bench.figures import Figure

__all__ = ["draw"]

INK, GREY = "#326ce5", "#9aa5b1"

# Benchmark, title, case, and scale of the axis.
BARS = (
    (
        "list_sync",
        "A list of 10,000 pods, to handlers synced",
        "10,000 pods, body not read",
        "log",
    ),
    (
        "watch_throughput",
        "Changes of pods, to an async handler",
        "16 per chunk, body not read",
        "log",
    ),
    ("memory", "Resident memory for each of 10,000 pods", "10,000 pods stored", "log"),
)


def draw(figures: Sequence[Figure], folder: Path) -> list[Path]:
    """Draw the pictures for which there are figures.

    Args:
        figures: Figures of all benchmarks.
        folder: Folder of the PNG files.

    Returns:
        Written files.
    """
    mpl.rcParams["font.size"] = 9
    return [*_bars(figures, folder), *_growth(figures, folder)]


def _bars(figures: Sequence[Figure], folder: Path) -> Iterator[Path]:
    for benchmark, title, case, scale in BARS:
        found = [
            it
            for it in figures
            if (it.benchmark, it.case) == (benchmark, case) and it.value is not None
        ]
        if not found:
            continue

        picture = Picture(figsize=(8, 0.5 + 0.32 * len(found)), layout="constrained")
        axes = picture.subplots()
        names = [it.contestant for it in found]
        values = [it.value or 0.0 for it in found]
        colours = [INK if name.startswith(OURS) else GREY for name in names]
        bars = axes.barh(names, values, color=colours)
        axes.bar_label(
            bars,
            [f"{value:,.3g}" if value < 100 else f"{value:,.0f}" for value in values],
            padding=3,
        )
        axes.set_xscale(scale)
        axes.margins(x=0.15)
        axes.invert_yaxis()
        axes.set_title(f"{title} ({found[0].unit})", loc="left")
        axes.spines[["top", "right"]].set_visible(False)
        yield _saved(picture, folder / f"{benchmark}.png")


def _growth(figures: Sequence[Figure], folder: Path) -> Iterator[Path]:
    """Plot the cost of one object against their number: flat is linear."""
    series: dict[str, list[tuple[float, float]]] = {}
    for it in figures:
        what, found, count = it.case.partition(": ")
        if it.benchmark == "scale" and found and it.value is not None:
            try:
                amount = float(count.replace(",", ""))
            except ValueError:
                continue

            series.setdefault(f"{what} ({it.unit})", []).append((amount, it.value))

    if not series:
        return

    picture = Picture(figsize=(4 * len(series), 3), layout="constrained")
    for axes, (name, points) in zip(
        picture.subplots(1, len(series), squeeze=False)[0], series.items(), strict=True
    ):
        amounts, values = zip(*sorted(points), strict=True)
        axes.plot(amounts, values, "o-", color=INK)
        axes.set_xscale("log")
        axes.set_ylim(0, max(values) * 1.3)
        axes.set_title(name, loc="left")
        axes.spines[["top", "right"]].set_visible(False)

    yield _saved(picture, folder / "scale.png")


def _saved(picture: Picture, path: Path) -> Path:
    # No date and no version of the library, so that equal figures give equal files.
    picture.savefig(path, dpi=110, metadata={"Software": None})
    return path
