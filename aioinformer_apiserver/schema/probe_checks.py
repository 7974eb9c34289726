"""Probe checks: how the state of a container is found out, and what its hooks do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioinformer_apiserver.schema import field_checks as fields
from aioinformer_apiserver.schema import findings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioinformer_apiserver.errors.field_errors import Problem

__all__ = ["handler_problems", "probe_problems"]

_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
_NUMBERS = (
    "initialDelaySeconds",
    "timeoutSeconds",
    "periodSeconds",
    "successThreshold",
    "failureThreshold",
)


def probe_problems(
    path: str, probe: dict[str, Any], *, only_once: bool
) -> Iterator[Problem]:
    """Find what is wrong with a probe.

    Args:
        path: Where it is.
        probe: With its defaults.
        only_once: It may not have to succeed more than once.
    """
    yield from handler_problems(path, probe)
    for field in _NUMBERS:
        yield from fields.at_least(f"{path}.{field}", probe.get(field))

    threshold = probe.get("successThreshold", 1)
    if only_once and threshold != 1:
        yield findings.invalid(f"{path}.successThreshold", threshold, "must be 1")


def handler_problems(path: str, handler: dict[str, Any]) -> Iterator[Problem]:
    """Find what is wrong with what a probe or a hook does.

    Args:
        path: Where it is.
        handler: It must do exactly one thing.
    """
    found = [it for it in _HANDLERS if it in handler]
    if not found:
        yield findings.required(path, "must specify a handler type")

    for index, field in enumerate(found):
        where = f"{path}.{field}"
        if index:
            why = "may not specify more than 1 handler type"
            yield findings.forbidden(where, why)
        else:
            yield from _action_problems(where, field, handler[field])


def _action_problems(
    path: str, field: str, action: dict[str, Any]
) -> Iterator[Problem]:
    match field:
        case "exec":
            if not action.get("command"):
                yield findings.required(f"{path}.command")
        case "httpGet":
            if not action.get("path"):
                yield findings.required(f"{path}.path")

            yield from fields.port(f"{path}.port", action.get("port"))
            schemes = ("HTTP", "HTTPS")
            yield from fields.one_of(f"{path}.scheme", action.get("scheme"), schemes)
        case "tcpSocket" | "grpc":
            yield from fields.port(f"{path}.port", action.get("port"))
        case _:
            pass
