"""Synced state of several informers: waiting for it, and readiness."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioinformer._tasks import run_concurrently
from aioinformer.errors import NotSynced

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aioinformer.informer.shared_informer import SharedInformer
    from aioinformer.model.times import Duration

__all__ = ["not_ready", "wait_for_cache_sync", "why_not_ready"]


async def wait_for_cache_sync(
    *informers: SharedInformer,
    timeout: Duration | None = None,
    fail_fast: bool = True,
) -> None:
    """Wait until the first complete lists of all these informers are in their stores.

    Args:
        informers: Whom to wait for.
        timeout: Seconds, or a timedelta, for all of them together; None waits as long
            as it takes.
        fail_fast: Give up when one was refused twice in a row, as
            `SharedInformer.wait_synced` says.

    Raises:
        NotSynced: Not all of them are; the text and `results` say for each why.
        InformerStopped: One has ended, synced or not.

    Cancellation:
        Safe.
    """
    try:
        # At the same time: one that is just slow must not hide that another is refused.
        await run_concurrently(
            *(each.wait_synced(timeout, fail_fast=fail_fast) for each in informers)
        )
    except NotSynced as exc:
        results = _results(informers)
        missing = [f"{name}: {it}" for name, it in results.items() if it != "synced"]
        if missing:  # the last one may have come in the very moment
            raise NotSynced(
                f"not synced: {'; '.join(missing)}", results=results
            ) from exc.__cause__


def not_ready(informers: Iterable[SharedInformer]) -> dict[str, str]:
    """Of each whose lister refuses to answer, by its name: why."""
    return {it.name: why for it in informers if (why := why_not_ready(it))}


def why_not_ready(informer: SharedInformer) -> str:
    """Why its lister refuses to answer; empty if it does answer."""
    status = informer.status
    if status.phase == "stopped":
        died = status.last_error
        return "stopped" if died is None else f"stopped: {died!r}"

    return "" if informer.has_synced else informer.why_not_synced()


def _results(informers: Sequence[SharedInformer]) -> dict[str, str]:
    """Of each name why it is not synced, or `"synced"`."""
    results: dict[str, str] = {}
    for informer in informers:
        if results.get(informer.name, "synced") == "synced":  # two may have one name
            results[informer.name] = informer.why_not_synced()

    return results
