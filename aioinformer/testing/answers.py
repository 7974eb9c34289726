"""Answers: what is sent back, made of what has been done. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioinformer.testing.calls import Call
from aioinformer.testing.encoding import plain, status_of
from aioinformer.testing.formats import shown_plainly
from aioinformer.testing.outlet import Answer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aioinformer.errors import ApiError
    from aioinformer.testing.changes import Stored
    from aioinformer.testing.formats import Format
    from aioinformer.testing.kinds import Kind
    from aioinformer.testing.routes import Target
    from aioinformer.testing.writes import Deleted

__all__ = ["deletion", "document", "refusal", "showing", "warn_of_kind"]


def document(content: dict[str, Any], *, status: int = 200) -> Answer:
    """Answer with JSON that is no stored object."""
    return Answer(status=status, body=[plain(content) + b"\n"])


def refusal(error: ApiError, call: Call | None = None) -> Answer:
    """Answer with an error, as the call would have it written; if it is known."""
    headers = {}
    if error.retry_after is not None:
        headers["Retry-After"] = str(int(error.retry_after))

    asked = call or Call(method="", path="")
    answer = _status(asked, status_of(error), code=error.status)
    answer.headers.update(headers)
    return answer


def showing(
    shown: Format, stored: Stored, *, status: int = 200, warnings: Iterable[str] = ()
) -> Answer:
    """Answer with one object, in the format that was asked for."""
    answer = Answer(
        status=status, body=[shown.object(stored)], content_type=shown.content_type
    )
    _warn(answer, warnings)
    return answer


def deletion(call: Call, target: Target, shown: Format, deleted: Deleted) -> Answer:
    """Answer a deletion: with the object if it waits, with a Status if it is gone."""
    if deleted.shown:
        return showing(shown, deleted.stored, warnings=deleted.warnings)

    answer = _status(call, _success(target, deleted.stored.uid))
    _warn(answer, deleted.warnings)
    return answer


def _warn(answer: Answer, texts: Iterable[str]) -> None:
    """Add warnings for the user to read: one header carries them all."""
    quoted = [it.replace("\\", "\\\\").replace('"', '\\"') for it in texts]
    told = [f'299 - "{it}"' for it in quoted]
    if told:
        before = [answer.headers["Warning"]] if "Warning" in answer.headers else []
        answer.headers["Warning"] = ", ".join(told + before)


def warn_of_kind(answer: Answer, kind: Kind) -> None:
    """Tell everyone who uses a deprecated version of a custom resource that it is one."""
    _warn(answer, [kind.warning] if kind.warning else [])


def _status(call: Call, content: dict[str, Any], *, code: int = 200) -> Answer:
    media, body = shown_plainly(content, call.headers, call.query)
    return Answer(status=code, body=[body], content_type=media)


def _success(target: Target, uid: str) -> dict[str, Any]:
    """Make the Status that says that an object is gone; it names no version."""
    resource = target.collection.kind.resource
    details = {
        "name": target.name,
        "group": resource.group,
        "kind": resource.plural,
        "uid": uid,
    }
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {key: value for key, value in details.items() if value},
    }
