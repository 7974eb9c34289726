"""The picture of `watch` in the documentation can be taken again."""

from __future__ import annotations

import asyncio
import os
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

from processes import ROOT, in_real_time
from screenshot import PICTURE

pytestmark = in_real_time

SEEN = ["synced", "NAME", "READY", "web-9b6f4d7c8-zt5kd", "CrashLoopBackOff", "db-1"]


def words_of(picture: str) -> list[str]:
    text = " ".join(ET.fromstring(picture).itertext())
    return text.replace("\N{NO-BREAK SPACE}", " ").split()


async def test_script_takes_a_picture_of_the_running_command(
    tmp_path: Path,
) -> None:
    path = tmp_path / "images" / "watch.svg"
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    process = await asyncio.create_subprocess_exec(
        ROOT / "scripts" / "screenshot", path, env=environment
    )

    assert await process.wait() == 0
    picture = await asyncio.to_thread(path.read_text, encoding="utf-8")
    assert set(SEEN) <= set(words_of(picture))


def test_committed_picture_shows_the_same() -> None:
    assert set(SEEN) <= set(words_of(PICTURE.read_text(encoding="utf-8")))
