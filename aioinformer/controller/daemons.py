"""Daemons: coroutine functions that run for each object, as long as it exists.

@with_object(KubeObject)
async def watch_site(site: KubeObject, ctx: Context) -> None:
    while True:
        print(site.name, await probe(site))
        await asyncio.sleep(10)

Controller("sites", reconcile, for_=sites, daemons=[watch_site])
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from aioinformer.budget import LoopBudget
from aioinformer.controller.context import check_reconcile
from aioinformer.controller.predicates import (
    annotations_changed,
    generation_changed,
    labels_changed,
    resource_version_changed,
)
from aioinformer.controller.reconcile import ReconcileRequest
from aioinformer.errors import OptionsError, TerminalError
from aioinformer.informer.notifications import Deleted, Updated

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aioinformer.controller.background import Background, BackgroundFunction
    from aioinformer.controller.context import Reconcile
    from aioinformer.informer.handlers.error_reporter import ErrorReporter
    from aioinformer.informer.notifications import Notification

__all__ = ["Daemon", "DaemonRuns", "daemons_of"]

# Changes after which a `TerminalError` may not be raised again. The status is none, as
# the daemon itself may write it.
_may_help = resource_version_changed & (
    generation_changed | labels_changed | annotations_changed
)


@dataclass(frozen=True, slots=True)
class Daemon:
    """Coroutine function that runs for each object of a controller.

    Attributes:
        function: Coroutine function of a `ReconcileRequest` and a `Context`, as a
            reconcile. It may be decorated by `with_object`.
        while_deleting: True to cancel it when the object is deleted. False to cancel it
            as soon as its deletion is requested, even if finalizers delay that.

    Raises:
        OptionsError: If the function is not a coroutine function of two arguments.
    """

    function: Reconcile
    while_deleting: bool = False

    def __post_init__(self) -> None:
        check_reconcile(self.function, "a daemon")

    @property
    def name(self) -> str:
        """Name of the function, for logs."""
        return getattr(self.function, "__qualname__", type(self.function).__name__)


def daemons_of(given: Iterable[Reconcile | Daemon]) -> list[Daemon]:
    """Return the daemons of the option `Controller(daemons=)`.

    Raises:
        OptionsError: If the option is invalid.
    """
    if callable(given) or not isinstance(given, Iterable):
        raise OptionsError(f"daemons= takes a list, not {given!r}")

    return [it if isinstance(it, Daemon) else Daemon(it) for it in given]


class _Life:
    """Life of an object, from its addition to its deletion.

    After a `TerminalError` of the daemon, a change of the object begins another one.
    """

    __slots__ = ("changed", "failed")

    def __init__(self) -> None:
        self.failed = False
        """True after a `TerminalError`."""
        self.changed = False
        """True after a change, since the last call began, that may help."""


class DaemonRuns:
    """Runs of one daemon, one for each object.

    The next life of an object begins after the run for its previous life has ended.

    Args:
        daemon: Daemon to run.
        background: Background functions of the controller.
        call: Coroutine function that calls the daemon's function with a request and the
            number of attempts. It returns the seconds until the next call, or None.
        reporter: Reporter of failures.
    """

    def __init__(
        self,
        daemon: Daemon,
        background: Background,
        call: Callable[[Reconcile, ReconcileRequest, int], Awaitable[float | None]],
        reporter: ErrorReporter,
    ) -> None:
        self._daemon = daemon
        self._background = background
        self._call = call
        self._reporter = reporter
        self._started = False
        # Current lives by key, without those that the daemon must not run for.
        self._lives: dict[str, _Life] = {}
        # Last run of each key, and the life that it is for. It has ended if it is None.
        # Invariant: has the keys of `_lives`, once started, and those that still run.
        self._runs: dict[str, tuple[_Life, BackgroundFunction | None]] = {}

    async def start(self) -> None:
        """Run the daemon for all objects seen so far, and from now on for new ones."""
        self._started = True
        budget = LoopBudget.current()
        await budget.start()
        for key in tuple(self._lives):
            self._adjust(key)
            if budget.over():
                await budget.start()

        budget.end()

    def changed(self, event: Notification) -> None:
        """Note a change of an object."""
        obj = event.new if isinstance(event, Updated) else event.obj
        if isinstance(event, Deleted) or (
            not self._daemon.while_deleting
            and obj.at("metadata.deletionTimestamp") is not None
        ):
            self._lives.pop(obj.key, None)
        else:
            life = self._lives.get(obj.key)  # a deletion precedes another object of it
            if life is None:
                self._lives[obj.key] = _Life()
            elif not life.changed and _may_help(event):
                life.changed = True
                self._revive(obj.key, life)

        if self._started:
            self._adjust(obj.key)

    def _adjust(self, key: str) -> None:
        """Start or cancel the run of a key, if necessary."""
        life = self._lives.get(key)
        held, run = self._runs.get(key, (None, None))
        if held is life or self._background.closed:
            return

        if run is not None:
            run.cancel()  # `_ended()` follows
            return

        self._runs.pop(key, None)
        if life is not None:
            self._begin(key, life)

    def _begin(self, key: str, life: _Life) -> None:
        request = ReconcileRequest.of(key)
        name = self._daemon.name
        run = self._background.run(
            f"daemon {name} {key}",
            partial(self._call_for, request, life),
            partial(self._failed, request, life),
            partial(self._ended, key, life),
        )
        self._runs[key] = life, run

    def _call_for(
        self, request: ReconcileRequest, life: _Life, attempt: int
    ) -> Awaitable[float | None]:
        life.changed = False
        return self._call(self._daemon.function, request, attempt)

    def _failed(
        self, request: ReconcileRequest, life: _Life, failure: BaseException
    ) -> None:
        life.failed = isinstance(failure, TerminalError)
        self._revive(request.key, life)
        self._reporter.failed("daemon", self._daemon.name, request, failure)

    def _revive(self, key: str, life: _Life) -> None:
        """Begin another life if a change may help after a `TerminalError`."""
        if life.failed and life.changed and self._lives.get(key) is life:
            self._lives[key] = _Life()

    def _ended(self, key: str, life: _Life) -> None:
        self._runs[key] = life, None
        self._adjust(key)
