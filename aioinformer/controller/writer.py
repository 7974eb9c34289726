"""`Writer`: applies children, records events and writes the status for a reconcile."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any, Final

from aioinformer._user_code import guarded_logger, user_errors
from aioinformer.client import verbs
from aioinformer.controller.children import MAX_CHILDREN, AppliedChildren, Child
from aioinformer.controller.client import required_client
from aioinformer.controller.event_recorder import EventRecorder
from aioinformer.controller.object_status import StatusWriter
from aioinformer.controller.owner_references import (
    check_controller,
    owner_reference,
    set_controller_reference,
)
from aioinformer.errors import LeadershipLost, NotFound, OptionsError
from aioinformer.model.resources import check_resource
from aioinformer.model.selectors import LabelSelector
from aioinformer.model.validation import qualified_name_problem

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aioinformer.client.client import Client
    from aioinformer.client.verbs import Body
    from aioinformer.controller.client import ReconcileClient
    from aioinformer.controller.reconcile import ReconcileRequest
    from aioinformer.informer.shared_informer import SharedInformer
    from aioinformer.model.objects import KubeObject
    from aioinformer.model.resource import Resource

__all__ = ["ControllerEvents", "Writer", "Writers"]

logger: Final = guarded_logger(__name__)

STATUS_SECONDS: Final = 30.0
"""Maximum time to write the status after a reconcile."""


class ControllerEvents:
    """Recorder of `Context.event`, which the first event creates.

    Args:
        name: Name of the controller.
    """

    def __init__(self, name: str) -> None:
        self.running: bool = False
        """True while `run()` writes them."""
        self._name = name
        self._recorder: EventRecorder | None = None
        self._first = asyncio.Event()

    @property
    def current(self) -> EventRecorder | None:
        """Recorder; None before the first event."""
        return self._recorder

    def recorder(self, client: Client) -> EventRecorder:
        """Return the recorder."""
        if self._recorder is None:
            self._recorder = EventRecorder(client, _reporting(self._name))
            self._first.set()

        return self._recorder

    async def run(self) -> None:
        """Write events until cancelled.

        Cancellation:
            Stops it once the waiting events are written, or after 5 s.
        """
        self.running = True
        try:
            await self._first.wait()
            if self._recorder is not None:
                await self._recorder.run()
        finally:
            # The next run may have another client and loop.
            self._recorder, self._first = None, asyncio.Event()
            self.running = False


def _reporting(name: str) -> str:
    """Return the name of a controller as events require it."""
    if not qualified_name_problem(name, "a controller"):
        return name

    return re.sub(r"[^A-Za-z0-9]+", "-", name)[:63].strip("-") or "controller"


class Writers:
    """Writers of one controller, with the memory that they share.

    Args:
        name: Name of the controller.
        informers: Informers of the controller, that of `for_` first.
        events: Recorder of events.
        max_children: Maximum number of remembered children of one owner.
    """

    def __init__(
        self,
        name: str,
        informers: Iterable[SharedInformer],
        events: ControllerEvents,
        *,
        max_children: int = MAX_CHILDREN,
    ) -> None:
        self.name = name
        self.informers: tuple[SharedInformer, ...] = tuple(informers)
        self.events = events
        self.max_children: int = max_children
        self.children: AppliedChildren = AppliedChildren(
            self.informers, max_children=max_children
        )
        self.uncertain: set[ReconcileRequest] = set()
        """Requests whose status may have been written without a response. The cache
        may show the status from before."""
        # Resources whose objects no informer shows, and that were reported.
        self._unseen: set[tuple[str, str]] = set()

    def report_unseen(self, resource: Resource, child: KubeObject) -> None:
        """Log, once for each resource, that nothing is reconciled if a child changes."""
        kind = resource.group, resource.plural
        if kind in self._unseen:
            return

        informers = [
            it
            for it in self.informers[1:]  # the first is that of the owners
            if it.resource is None or (it.resource.group, it.resource.plural) == kind
        ]
        selectors = [it.selection.label_selector for it in informers]
        if not informers:
            logger.info(
                "controller %s: applies %s, but owns= has no informer of them: it does not "
                "notice when others change or delete them",
                self.name,
                resource,
            )
        elif not any(LabelSelector.parse(it).matches(child) for it in selectors):
            logger.warning(
                "controller %s: applies %s %s, but the informer in owns= selects %r: it does "
                "not notice when others change or delete the object",
                self.name,
                resource,
                child.key,
                selectors[0],
            )
        else:
            return

        self._unseen.add(kind)


class Writer:
    """Writes of one reconcile that `Context` offers besides its client.

    Args:
        shared: Name, informers and memory of the controller.
        request: Request of the reconcile.
        client: Client of the reconcile, or None.
        recording: Client of the event recorder, or None.
        stale: True if the informers do not show earlier writes.
        daemon: True for a daemon.
    """

    def __init__(
        self,
        shared: Writers,
        request: ReconcileRequest,
        client: ReconcileClient | None,
        recording: Client | None,
        *,
        stale: bool,
        daemon: bool = False,
    ) -> None:
        self._shared = shared
        self._request = request
        self._recording = recording
        self._used: dict[Child, None] = {}
        self._owner: KubeObject | None = None
        self._daemon = daemon
        self.status: StatusWriter = StatusWriter(
            shared.informers[0],
            request.key,
            shared.name,
            client,
            stale=stale or request in shared.uncertain,
            daemon=daemon,
        )
        self.begin()

    def begin(self) -> KubeObject | None:
        """Return the cached object, which the reconcile begins to act on.

        Another one of that name is not its object.
        """
        self._owner = self._cached()
        self.status.begin(self._owner)
        return self._owner

    @property
    def owner(self) -> KubeObject:
        """Object of the reconcile: see `Context.object`."""
        if self._owner is None:
            raise NotFound(
                f"no object {self._request.key} was in the cache when the reconcile began"
            )

        return self._owner

    def recorder(self) -> EventRecorder:
        """Return the recorder of the controller.

        Raises:
            OptionsError: If the controller has no client.
        """
        return self._shared.events.recorder(required_client(self._recording))

    async def apply(
        self, client: ReconcileClient, child: Body, resource: Resource | None
    ) -> KubeObject:
        """Apply a child of the object: see `Context.apply`."""
        owner, cached = self.owner, self._cached()
        if cached is not None and cached.uid != owner.uid:
            raise NotFound(
                f"object {self._request.key} was deleted and created again since the "
                "reconcile began: ctx.apply() writes no children of the old one"
            )

        children = self._shared.children
        body = verbs.plain(child)
        if resource is None:
            resource = children.resource_of(*verbs.type_of(body))
            resource = resource or await client.discovery.resource_of(body)
        else:
            check_resource(resource)

        metadata: dict[str, Any] = dict(body.get("metadata") or {})
        body["metadata"] = metadata
        _place(owner, resource, metadata)
        target = Child.of(resource, metadata)
        own = self._shared.informers[0].resource
        if own is not None and target == Child(own.group, own.plural, owner.key):
            raise OptionsError(
                f"ctx.apply() writes objects that {own} {owner.key} owns, not the object "
                "itself: use ctx.client.apply(), or ctx.set_status() for its status"
            )

        body = set_controller_reference(owner, body)
        shown = children.shown(target)
        if shown is not None:
            reference = owner_reference(owner, controller=True)
            what = f"{shown.type_meta['kind']} {shown.key}"
            check_controller(reference, shown.owner_references, what)
            if children.is_applied(self._request, target, body, shown):
                self._use(target)
                return shown

        # A write without a response may have succeeded.
        children.forget(self._request, target)
        answer = await client.apply(
            body, field_manager=self._shared.name, resource=resource, force=True
        )
        self._use(target)
        children.remember(self._request, target, body, answer)
        if not self._daemon:  # no change of a child calls it
            self._shared.report_unseen(resource, answer)

        return answer

    def _cached(self) -> KubeObject | None:
        return self._shared.informers[0].lister.get(self._request.key)

    def _use(self, child: Child) -> None:
        self._used[child] = None
        if len(self._used) > self._shared.max_children:  # by a daemon
            del self._used[next(iter(self._used))]

    async def end(self, failure: BaseException | None) -> BaseException | None:
        """Write the status, and forget children that are gone.

        Args:
            failure: Failure of the reconcile, or None.

        Returns:
            Failure of the reconcile or of the write, a group of both, or None.

        Cancellation:
            The status may have been written.
        """
        cached = self._shared.informers[0].store.get_by_key(self._request.key)
        used, exists = self._used, cached is not None
        self._shared.children.end(self._request, used, exists=exists)
        if not exists:
            self._shared.uncertain.discard(self._request)

        self.status.end()
        if isinstance(failure, LeadershipLost) or not self.status.pending:
            return failure

        problem: Exception
        try:
            async with asyncio.timeout(STATUS_SECONDS):
                await self.status.write()
        except LeadershipLost as exc:
            return failure or exc
        except TimeoutError:
            problem = TimeoutError(f"status not written within {STATUS_SECONDS:g} s")
        except Exception as exc:  # noqa: BLE001 - reported as a failure of the reconcile
            problem = exc
        else:
            self._shared.uncertain.discard(self._request)
            return failure

        if exists:
            self._shared.uncertain.add(self._request)

        if failure is None:
            return problem

        # The problem is retried, even if the failure is a `TerminalError`.
        text = f"{_text(failure)}, and the write of the status failed: {_text(problem)}"
        return BaseExceptionGroup(text, [failure, problem])


def _text(failure: BaseException) -> str:
    try:
        return f"{type(failure).__name__}: {failure}"
    except user_errors():  # an exception of the user, which cannot be shown
        return type(failure).__name__


def _place(owner: KubeObject, resource: Resource, metadata: dict[str, Any]) -> None:
    """Fill in the namespace of a child, which is that of its owner.

    Raises:
        OptionsError: If a cluster-scoped child would have a namespaced owner.
    """
    if not owner.namespace:
        return

    if resource.namespaced:
        if not metadata.get("namespace"):
            metadata["namespace"] = owner.namespace

        return

    raise OptionsError(
        f"{resource} {metadata.get('name')} cannot be owned by "
        f"{owner.type_meta['kind']} {owner.key}: it is cluster-scoped, and its owner is "
        "namespaced. Use ctx.client.apply(), and a finalizer to delete it"
    )
