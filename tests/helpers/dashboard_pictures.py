"""Takes the pictures of the dashboard in the documentation, in Chromium."""

from __future__ import annotations

import asyncio
import base64
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from dashboard_shop import CRASHING, shop
from processes import ROOT
from site_browser import find_chromium, started

if TYPE_CHECKING:
    from site_browser import Browser

__all__ = ["FOLDER", "PICTURES", "VIEWS", "dressed", "take"]

FOLDER = ROOT / "docs" / "images"

VIEWS = {
    "overview": "#/",
    "objects": "#/objects/pods",
    "object": f"#/objects/pods/{quote(f'shop/{CRASHING}', safe='')}",
    "controller": "#/controllers/probes",
}
"""Places of the views."""

PICTURES = {
    "dashboard": ("overview", "dark"),
    "dashboard-objects": ("objects", "light"),
    "dashboard-object": ("object", "light"),
    "dashboard-controller": ("controller", "dark"),
}
"""Views and themes of the pictures, by the names of their files."""

WIDTH, HEIGHT = 1440, 900
BEFORE_SECONDS = 75.0
"""Time that the program runs before the pictures, for its histories."""


async def dressed(tab: Browser, theme: str) -> None:
    """Prefer a theme, and no motion, so that a picture is always the same."""
    features = [
        {"name": "prefers-color-scheme", "value": theme},
        {"name": "prefers-reduced-motion", "value": "reduce"},
    ]
    await tab.call("Emulation.setEmulatedMedia", features=features)


async def take(chromium: str, seconds: float = BEFORE_SECONDS) -> dict[str, bytes]:
    """Return the pictures as PNG, by the names of their files.

    Args:
        chromium: Path of the browser.
        seconds: Time that the program runs before.
    """
    taken: dict[str, bytes] = {}
    async with shop(actions=True) as shown, asyncio.TaskGroup() as group:
        changing = group.create_task(shown.keep_changing())
        await asyncio.sleep(seconds)
        async with started(chromium) as tab:
            for name, (view, theme) in PICTURES.items():
                await dressed(tab, theme)
                await tab.open(f"{shown.url}{VIEWS[view]}", width=WIDTH, height=HEIGHT)
                await asyncio.sleep(
                    3
                )  # two overviews, and the difference of two states
                picture = await tab.call("Page.captureScreenshot", format="png")
                taken[f"{name}.png"] = base64.b64decode(picture["data"])

        changing.cancel()

    return taken


def main() -> None:
    chromium = find_chromium()
    if chromium is None:
        sys.exit("no Chromium here: the pictures of the dashboard need one")

    folder = Path(sys.argv[1]) if sys.argv[1:] else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for name, picture in asyncio.run(take(chromium)).items():
        (folder / name).write_bytes(picture)


if __name__ == "__main__":
    main()
