"""Takes a picture of a real run of `aioinformer watch`, on a server with a small shop.

The terminal is drawn as SVG, character by character, in its colours.
"""

from __future__ import annotations

import asyncio
import io
import re
import sys
from datetime import UTC, datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from processes import ROOT
from rich.console import Console
from rich.style import Style
from rich.text import Text
from terminals import in_terminal

from aioinformer.model.resources import PODS
from aioinformer.testing import APIServer

if TYPE_CHECKING:
    import pyte
    from pyte.screens import Char

__all__ = ["PICTURE", "take"]

PICTURE = ROOT / "docs" / "images" / "watch.svg"
COMMAND = ("watch", "pods", "-n", "shop")
COLUMNS, LINES = 84, 13

# pyte's names of the ECMA-48 colours, mapped to rich's.
_COLOURS = {"default": None, "brown": "yellow", "brightblack": "bright_black"}

_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)

RUNNING: dict[str, Any] = {"running": {}}
CREATING = {"waiting": {"reason": "ContainerCreating"}}
CRASHING = {"waiting": {"reason": "CrashLoopBackOff"}}


async def take() -> str:
    """Return the picture."""
    async with APIServer(auto_namespaces=True) as server:
        _open_shop(server)
        arguments = (*COMMAND, "--server", server.url)
        async with in_terminal(*arguments, columns=COLUMNS, lines=LINES) as terminal:
            await terminal.shows(lambda lines: any("web-7d9" in it for it in lines))
            _change(server)
            await terminal.shows(
                lambda lines: {"+", "~", "-"} <= {it[:1] for it in lines}
            )
            return _drawn(terminal.screen)


def _open_shop(server: APIServer) -> None:
    for name, age, restarts in (
        ("cart-6f7b9c4d5-k8zxm", timedelta(days=3, hours=5), 0),
        ("cart-6f7b9c4d5-w2q7r", timedelta(days=3, hours=5), 0),
        ("checkout-58c9d7f6b-9hj4t", timedelta(hours=21), 1),
        ("db-0", timedelta(days=41), 0),
        ("db-1", timedelta(days=41), 0),
        ("mailer-84d5f6c7b-ptl5n", timedelta(minutes=52), 3),
        ("web-7d9c5b8f6-4vx2l", timedelta(days=3, hours=5), 0),
        ("web-7d9c5b8f6-nq8s7", timedelta(days=3, hours=5), 0),
    ):
        _create(server, name, age, _status(RUNNING, restarts=restarts))


def _change(server: APIServer) -> None:
    _create(server, "web-9b6f4d7c8-zt5kd", timedelta(0), _status(CREATING, restarts=0))
    crashed = {"status": _status(CRASHING, restarts=4)}
    server.patch(PODS, "mailer-84d5f6c7b-ptl5n", crashed, namespace="shop")
    server.delete(PODS, "web-7d9c5b8f6-4vx2l", namespace="shop")


def _create(
    server: APIServer, name: str, age: timedelta, status: dict[str, Any]
) -> None:
    born = datetime.now(UTC) - age
    stamp = born.strftime("%Y-%m-%dT%H:%M:%SZ")
    body = {
        "metadata": {"name": name, "creationTimestamp": stamp},
        "spec": {"containers": [{"name": "main", "image": "example.com/main:1"}]},
        "status": status,
    }
    server.create(PODS, body, namespace="shop")


def _status(state: dict[str, Any], *, restarts: int) -> dict[str, Any]:
    container = {
        "name": "main",
        "ready": state is RUNNING,
        "restartCount": restarts,
        "state": state,
    }
    phase = "Pending" if state is CREATING else "Running"
    return {"phase": phase, "containerStatuses": [container]}


def _drawn(screen: pyte.Screen) -> str:
    console = Console(
        record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True
    )
    for row in range(screen.lines):
        cells = [screen.buffer[row][column] for column in range(screen.columns)]
        text = Text(no_wrap=True)
        for style, run in groupby(cells, _style):
            text.append("".join(it.data for it in run), style)

        console.print(text, crop=False)

    title = " ".join(("aioinformer", *COMMAND))
    picture = console.export_svg(title=title, unique_id="watch")
    # Use the reader's own font, so that nothing has to be fetched.
    return _FONTS.sub("", picture)


def _style(cell: Char) -> Style:
    return Style(color=_COLOURS.get(cell.fg, cell.fg), bold=cell.bold)


if __name__ == "__main__":
    picture = asyncio.run(take())
    path = Path(sys.argv[1]) if sys.argv[1:] else PICTURE
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(picture, encoding="utf-8")
