"""Download of what a recorder keeps in memory."""

from __future__ import annotations

import tempfile
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aioinformer._tasks import finish, in_thread
from aioinformer.errors import AioInformerError
from aioinformer.web.responses import HTTPResponse, refusal

if TYPE_CHECKING:
    from aioinformer.recording import Recorder
    from aioinformer.web.responses import EndpointRequest, Responder

__all__ = ["recording_responders"]

SAVE_SECONDS: Final = 300.0
"""Maximum time to write a recording for a download."""


def recording_responders(
    recorder: Recorder, *, path: str = "/debug/recording"
) -> dict[str, Responder]:
    """Return the responder of the download, by its path.

    Its response is a recording of the time that `record(last=...)` keeps. Everybody who
    reaches the path gets the objects of the informers, so put a guard before it.

    Args:
        recorder: Recorder with `last=`.
        path: Path of the download.
    """

    async def download(request: EndpointRequest) -> HTTPResponse:
        del request
        file = await in_thread(_unused_file)
        try:
            # It is written even if the client leaves, and is deleted after that.
            await finish(recorder.save(file), within_seconds=SAVE_SECONDS)
            body = await in_thread(file.read_bytes)
        except AioInformerError as exc:
            return refusal(503, str(exc))
        finally:
            await in_thread(lambda: file.unlink(missing_ok=True))

        name = f"recording-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.alog"
        headers = {
            "Cache-Control": "no-store",
            "Content-Disposition": f'attachment; filename="{name}"',
            "X-Content-Type-Options": "nosniff",
        }
        return HTTPResponse(200, body, "application/zstd", headers)

    return {path: download}


def _unused_file() -> Path:
    return Path(tempfile.gettempdir()) / f"{uuid.uuid4()}.alog"
