"""Health: what a server answers to who asks whether it lives. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioinformer_apiserver.discovery.document import Document

if TYPE_CHECKING:
    from aioinformer_apiserver.requests.request import Call

__all__ = ["health_at"]

_ROOTS = frozenset({"healthz", "livez", "readyz"})
# Nothing but the server itself can be ill here: it has no storage of its own.
_CHECKS = ("ping",)


def health_at(call: Call) -> Document | None:
    """Answer a health check; None if the path is none, nor a part of one."""
    root, *checks = call.path.removeprefix("/").split("/")
    if root not in _ROOTS or len(checks) > 1 or not set(checks) <= set(_CHECKS):
        return None

    if checks:
        return Document(body=b"ok", content_type="text/plain; charset=utf-8")

    if "verbose" not in call.query:
        return Document.text("ok")

    excluded = call.query.get("exclude", "")
    lines = [
        f"[+]{name} excluded: ok" if name == excluded else f"[+]{name} ok"
        for name in _CHECKS
    ]
    return Document.text("\n".join([*lines, f"{root} check passed\n"]))
