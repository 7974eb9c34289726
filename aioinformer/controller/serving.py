"""`Serving`: the endpoints of a manager, and the tables of its debug page."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from aioinformer._user_code import guarded_logger
from aioinformer.budget import LoopBudget
from aioinformer.client.redaction import redacted
from aioinformer.errors import OptionsError
from aioinformer.web.debug import debug_responders
from aioinformer.web.health import health_responders, report_of
from aioinformer.web.metrics import metrics_responders
from aioinformer.web.recording import recording_responders
from aioinformer.web.responses import HTTPResponse, refusal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from aioinformer.controller.manager import Manager
    from aioinformer.metrics import MetricsSink
    from aioinformer.recording import Recorder
    from aioinformer.web.dashboard.app import DashboardOptions
    from aioinformer.web.debug import Tables, Value
    from aioinformer.web.responses import EndpointRequest, Responder

__all__ = ["Serving", "default_sink"]

logger: Final = guarded_logger(__name__)

NO_LIBRARY = "metrics need prometheus-client: pip install 'aioinformer[metrics]'"

NO_REGISTRY = (
    "the metrics sink of this manager has no registry to read: pass "
    "Manager(metrics=PrometheusSink()), or leave metrics= out"
)


class Serving:
    """Endpoints of a manager, and the address on which it serves them.

    Args:
        manager: Manager to show.
        port: Port to listen on; 0 for any free one.
        host: Address to listen on; None for all.
        metrics: Sink of the manager; None if prometheus-client is missing.
        debug: True for the debug page.
        dashboard: Options of the dashboard; None for no dashboard.
        recorder: Recorder whose recording is served; None for none.
        reasons: True to show error messages.
        **health: Further options of the health endpoints.

    Raises:
        OptionsError: If the port or an option of an endpoint is invalid.
    """

    def __init__(
        self,
        manager: Manager,
        *,
        port: int,
        host: str | None,
        metrics: MetricsSink | None,
        debug: bool,
        dashboard: DashboardOptions | None = None,
        recorder: Recorder | None = None,
        reasons: bool,
        **health: Any,
    ) -> None:
        # Imports aiohttp, which only a manager that serves needs.
        from aioinformer.web.aiohttp import check_port
        from aioinformer.web.aiohttp import dashboard as dashboard_app

        check_port(port)
        self.port: int = port
        """Port that it listens on: 0 for any free one, until it runs."""
        self._given = port
        self._host = host
        self._manager = manager
        self._reasons = reasons
        self.responders: dict[str, Responder] = health_responders(
            manager, reasons=reasons, **health
        ) | _responders_of(metrics)
        """Responders of the endpoints, by path."""
        self._mounts = {}
        if dashboard is not None:
            self._mounts["/debug"] = dashboard_app(manager=manager, **dashboard)

        if debug:
            path = "/debug" if dashboard is None else "/debug/tables"
            self.responders |= debug_responders("aioinformer", self.tables, path=path)

        if recorder is not None:
            self.responders |= recording_responders(recorder)

        self.responders["/"] = _list_of([*self.responders, *self._mounts])

    def __repr__(self) -> str:
        return f"<Serving {self._host or '*'}:{self.port}>"

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Serve the endpoints during the block.

        Raises:
            OSError: If the address is in use, or not one of this machine.

        Cancellation:
            Deferred until all connections are closed, within 2 s.
        """
        from aioinformer.web.aiohttp import app_of, listening, routes_of

        app = app_of(routes_of(self.responders), self._mounts)
        async with listening(app, port=self._given, host=self._host) as self.port:
            logger.info("manager: serving health and metrics (port=%d)", self.port)
            yield

    # ------------------------------------------------------------ debug page

    def tables(self) -> Tables:
        """Return what the manager does at the moment, without contents of objects.

        It takes time for each informer, controller and failing request, but none for
        each object.
        """
        manager, reasons = self._manager, self._reasons
        statuses = [it.status() for it in manager.controllers]
        return {
            "manager": [self._manager_row()],
            "informers": [report_of(it, reasons=reasons) for it in manager.informers],
            "controllers": [
                {
                    "name": it.name,
                    "synced": it.synced,
                    "queued": it.queued,
                    "delayed": it.delayed,
                    "running": len(it.running),
                    "failing": it.failing_total,
                    "writes_not_shown": it.unshown,
                    "storms": it.storms,
                }
                for it in statuses
            ],
            "running reconciles": [
                {
                    "controller": status.name,
                    "key": it.request.key,
                    "seconds": round(it.seconds, 3),
                    "attempt": it.attempt,
                    "causes": [f"{c.change} {c.kind} {c.key}" for c in it.causes],
                    "stale": it.stale,
                }
                for status in statuses
                for it in status.running
            ],
            "failing requests": [
                {
                    "controller": status.name,
                    "key": it.request.key,
                    "attempts": it.attempts,
                    "error": it.error,
                    **({"reason": redacted(it.message)} if reasons else {}),
                    "seconds_ago": round(it.seconds_ago, 3),
                    "retry_in": None if it.retry_in is None else round(it.retry_in, 3),
                }
                for status in statuses
                for it in status.failing
            ],
            "event recorders": [
                {
                    "name": it.controller,
                    "instance": it.instance,
                    "waiting": it.waiting,
                    "dropped": it.dropped,
                }
                for it in manager.recorders
            ],
            "event loop": [_loop_row()],
        }

    def _manager_row(self) -> dict[str, Value]:
        manager, elector = self._manager, self._manager.elector
        trouble = manager.not_ready()
        return {
            "running": manager.running,
            "leads": elector is None or elector.is_leader,
            "identity": "" if elector is None else elector.identity,
            "leader": "" if elector is None else elector.leader,
            "not_ready": [
                f"{name}: {redacted(why)}" if self._reasons else name
                for name, why in trouble.items()
            ],
        }


def _loop_row() -> dict[str, Value]:
    statistics = LoopBudget.current().statistics()
    return {
        "slices": statistics.slices,
        "stalls": statistics.stalls,
        "longest_ms": round(statistics.longest * 1000.0, 3),
        "waiting": statistics.waiting,
    }


def default_sink() -> MetricsSink | None:
    """Return a sink for the default registry; None if prometheus-client is missing."""
    from aioinformer.metrics_prometheus import PrometheusSink

    try:
        return PrometheusSink()
    except OptionsError:
        return None


def _list_of(paths: Iterable[str]) -> Responder:
    """Return the responder of a list of paths, each in a line."""
    distinct = sorted({it.rstrip("/") for it in paths})
    body = "".join(f"{it}\n" for it in distinct).encode()

    async def show(_: EndpointRequest) -> HTTPResponse:
        return HTTPResponse(200, body)

    return show


def _responders_of(metrics: MetricsSink | None) -> dict[str, Responder]:
    """Return the responder of `/metrics`: of the sink's registry, or an explanation."""
    registry: Any = getattr(metrics, "registry", None)
    if registry is not None:
        return metrics_responders(registry)

    why = NO_LIBRARY if metrics is None else NO_REGISTRY

    async def explain(_: EndpointRequest) -> HTTPResponse:
        return refusal(501, why)

    return {"/metrics": explain}
