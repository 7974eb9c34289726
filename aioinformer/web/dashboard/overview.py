"""`Overview`: the state of all informers, controllers and the event loop at one moment."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from aioinformer._tasks import in_thread
from aioinformer.budget import LoopBudget
from aioinformer.client.redaction import redacted
from aioinformer.errors import OptionsError
from aioinformer.web.dashboard.trouble import trouble_in
from aioinformer.web.health import report_of
from aioinformer.web.responses import encode_json_event

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator
    from typing import NoReturn

    from aioinformer.controller.lease_record import LeaseStatus
    from aioinformer.controller.manager import Manager
    from aioinformer.informer.shared_informer import SharedInformer
    from aioinformer.web.dashboard.reconciles import ReconcileHistory
    from aioinformer.web.dashboard.sources import Sources
    from aioinformer.web.dashboard.states import StateHistory

__all__ = ["REFRESH_SECONDS", "Overview"]

REFRESH_SECONDS = 1.0
"""Interval of the overview."""

SIZED_SECONDS = 30.0
"""Interval at which the stored bytes are counted, while a page is open."""


class Overview:
    """State of everything that a dashboard shows, computed once for all its pages.

    Args:
        sources: Informers and controllers.
        states: History of their objects.
        reconciles: History of the reconciles.
        title: Name of the program.
        version: Version of aioinformer.
        actions: True if the page may requeue requests.
        reasons: True to show error messages.
    """

    def __init__(
        self,
        sources: Sources,
        states: StateHistory,
        reconciles: ReconcileHistory,
        *,
        title: str,
        version: str,
        actions: bool,
        reasons: bool,
    ) -> None:
        self._sources = sources
        self._states = states
        self._reconciles = reconciles
        self._fixed: dict[str, object] = {
            "started": datetime.now(tz=UTC).timestamp(),
            "title": title,
            "version": version,
            "actions": actions,
            "refresh": REFRESH_SECONDS,
        }
        self._reasons = reasons
        self._sizes = _Sizes()
        # The last snapshot as an event, and its time on the loop's clock.
        self._encoded = b""
        self._encoded_at = float("-inf")
        self._lag = 0.0
        self._resident: int | None = None

    async def feed(self, send: Callable[[bytes], Awaitable[None]]) -> NoReturn:
        """Send the overview at once, and each second.

        Cancellation:
            Ends it.
        """
        loop = asyncio.get_running_loop()
        while True:
            await self._sizes.count(self._sources.informers().values())
            if loop.time() - self._encoded_at > REFRESH_SECONDS / 2:
                self._resident = await in_thread(resident_bytes)
                self._encoded_at = loop.time()
                snapshot = self.snapshot(self._encoded_at)
                self._encoded = encode_json_event("overview", snapshot)

            await send(self._encoded)
            due = loop.time() + REFRESH_SECONDS
            await asyncio.sleep(REFRESH_SECONDS)
            self._lag = loop.time() - due

    def snapshot(self, now: float) -> dict[str, Any]:
        """Return the overview at a time of the loop's clock."""
        manager = self._sources.manager
        informers = self._sources.informers()
        rows = [self._informer(name, it, now) for name, it in informers.items()]
        controllers = [
            self._reconciles.overview_row(it)
            for it in self._sources.controllers().values()
        ]
        found: dict[str, Any] = {
            "now": datetime.now(tz=UTC).timestamp(),
            **self._fixed,
            "informers": rows,
            "controllers": controllers,
            "loop": self._loop(),
            "memory": self._memory(informers.values()),
            "manager": None if manager is None else self._manager(manager),
            "shards": [] if manager is None else list(self._shards(manager)),
            "recorders": [
                {
                    "name": it.controller,
                    "instance": it.instance,
                    "waiting": it.waiting,
                    "dropped": it.dropped,
                }
                for it in (() if manager is None else manager.recorders)
            ],
        }
        return {**found, "trouble": [it._asdict() for it in trouble_in(found)]}

    def _informer(
        self, name: str, informer: SharedInformer, now: float
    ) -> dict[str, Any]:
        status, resource = informer.status, informer.resource
        selection = informer.selection
        report = report_of(informer, reasons=self._reasons)
        cache = status.cache
        return {
            "id": name,
            "name": informer.name,
            "group": "" if resource is None else resource.group,
            "resource": "" if resource is None else resource.plural,
            "kind": "" if resource is None else resource.kind,
            "phase": status.phase,
            "synced": status.synced,
            "objects": len(informer.store),
            "bytes": self._sizes.of(informer),
            "age": status.age,
            "per_second": self._states.per_second(informer, now),
            "rates": self._states.rates(informer, now),
            "restarts": status.restarts,
            "relists": status.relists,
            "last_relist": status.last_relist,
            "failures": status.failures,
            "history_resets": status.history_resets,
            "degraded": status.degraded,
            "duplicates": status.duplicates,
            "error": redacted(report.get("reason") or report["trouble"]),
            "resource_version": status.resource_version,
            "namespaces": list(status.namespaces),
            "selector": " ".join(
                filter(None, (selection.label_selector, selection.field_selector))
            ),
            "store": None
            if cache is None
            else {
                "role": cache.role,
                "path": str(cache.path) if self._reasons else "",
                "writer": cache.writer,
                "readers": cache.readers,
                "behind": cache.behind,
                "heartbeat_age": cache.heartbeat_age,
                "bytes": cache.size,
            },
        }

    def _loop(self) -> dict[str, Any]:
        statistics = LoopBudget.current().statistics()
        return {
            "slices": statistics.slices,
            "stalls": statistics.stalls,
            "longest": statistics.longest,
            "waiting": statistics.waiting,
            "lag": max(0.0, self._lag),
        }

    def _memory(self, informers: Iterable[SharedInformer]) -> dict[str, Any]:
        budgets = {it.status.memory for it in informers}
        known = [it for it in budgets if it is not None]
        return {
            "resident": self._resident,
            "budget": {
                "limit": sum(it.limit for it in known),
                "held": sum(it.held for it in known),
                "over": any(it.over for it in known),
                "text": "; ".join(map(str, known)),
            }
            if known
            else None,
        }

    def _manager(self, manager: Manager) -> dict[str, Any]:
        elector = manager.elector
        reasons = manager.not_ready()
        # Informers and shards have trouble of their own.
        own = reasons.get("manager", "")
        return {
            "running": manager.running,
            "leads": elector is None or elector.is_leader,
            "elects": elector is not None,
            "identity": "" if elector is None else elector.identity,
            "leader": "" if elector is None else elector.leader,
            # A replica that has ended observes the Lease no more.
            "lease": _lease(elector.lease) if elector and manager.running else None,
            "not_ready": [
                f"{name}: {redacted(why)}" if self._reasons else name
                for name, why in reasons.items()
            ],
            "trouble": redacted(own) if self._reasons else own and "not ready",
        }

    def _shards(self, manager: Manager) -> Iterator[dict[str, Any]]:
        for group in manager.shards:
            with suppress(OptionsError):  # it does not run
                status = group.status()
                trouble = status.problem or group.why_not_ready()
                if trouble and not self._reasons:
                    trouble = "not ready"

                yield {
                    "group": status.name,
                    "identity": status.identity,
                    "lease": _lease(status.lease),
                    "state": status.state,
                    "members": len(status.members),
                    "ranges": len(status.ranges),
                    "owned": len(status.owned),
                    "unowned": len(status.unowned),
                    "trouble": redacted(trouble),
                }


class _Sizes:
    """Bytes of the stored bodies, counted in slices while a page is open."""

    def __init__(self) -> None:
        self._bytes: dict[SharedInformer, int] = {}
        self._counted_at = float("-inf")

    def of(self, informer: SharedInformer) -> int | None:
        """Return the bytes at the last count; None before, or on disk."""
        return self._bytes.get(informer)

    async def count(self, informers: Iterable[SharedInformer]) -> None:
        """Count the bytes again, unless that was done lately.

        Cancellation:
            Safe: they are counted the next time.
        """
        now = asyncio.get_running_loop().time()
        if now - self._counted_at < SIZED_SECONDS:
            return

        before, self._counted_at = self._counted_at, now
        counted: dict[SharedInformer, int] = {}
        budget = LoopBudget.current()
        try:
            await budget.start()
            for informer in tuple(informers):
                cache = informer.status.cache
                if cache is not None and cache.role != "memory":
                    continue

                total = 0
                for obj in informer.store.list():
                    total += len(obj.body)
                    if budget.over():
                        await budget.start()

                counted[informer] = total

            budget.end()
        except asyncio.CancelledError:
            self._counted_at = before
            raise

        self._bytes = counted


def _lease(status: LeaseStatus | None) -> dict[str, Any] | None:
    return None if status is None else asdict(status)


def resident_bytes() -> int | None:
    """Return the resident memory of this process; None where it is not known."""
    if sys.platform != "linux":
        return None

    import resource

    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()
