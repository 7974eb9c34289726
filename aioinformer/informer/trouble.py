"""What is wrong with an informer, in one line for a person."""

from __future__ import annotations

from aioinformer.errors import Forbidden, NotFound, Unauthorized

__all__ = ["trouble_of"]


def trouble_of(
    phase: str,
    error: Exception | None,
    failures: int,
    *,
    streams_given_up: bool = False,
) -> str:
    """Tell the phase, and what went wrong.

    Args:
        phase: As in `InformerStatus`.
        error: The last failure, or None.
        failures: How many there were in a row.
        streams_given_up: Lists were asked for as streams, which the server does not do.
    """
    parts = [phase]
    if error is None:
        parts.append("not started yet" if phase == "idle" else "no error so far")
    else:
        attempts = "1 attempt" if failures == 1 else f"{failures} attempts"
        parts.append(f"{attempts} failed: {error}{_hint_for(error)}")

    if streams_given_up:
        parts.append("lists are asked for in pages, as the server did not stream them")

    return ", ".join(parts)


def _hint_for(error: Exception) -> str:
    """What to look at, where the server's words do not always say it."""
    match error:
        case Unauthorized():
            return " (the server does not accept the credentials)"
        case Forbidden():
            return " (to list and to watch must both be allowed)"
        case NotFound():
            return " (the server has no such resource)"
        case _:
            return ""
