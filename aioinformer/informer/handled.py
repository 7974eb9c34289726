"""`HandledCopy`: the part of an informer that has handlers."""

from __future__ import annotations

import asyncio
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from aioinformer.informer.awaited import AwaitedCopy
from aioinformer.informer.handler_options import HandlerKeywords, HandlerOptions
from aioinformer.informer.handlers import Handlers
from aioinformer.informer.inbox import Snapshot
from aioinformer.informer.listener import Listener
from aioinformer.informer.registration import Registration
from aioinformer.informer.resync import ListedOnce, Resync

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioinformer.informer.handlers import Outcome
    from aioinformer.informer.notifications import Notification
    from aioinformer.model.objects import KubeObject
    from aioinformer.model.times import Duration

__all__ = ["HandledCopy"]

F = TypeVar("F", bound="Callable[..., Any]")


class HandledCopy(AwaitedCopy):
    """A live copy that tells handlers of its changes.

    Args: those of `SharedInformer`.
    """

    def add_event_handler(
        self,
        on_add: Callable[[KubeObject], Outcome] | None = None,
        on_update: Callable[[KubeObject, KubeObject], Outcome] | None = None,
        on_delete: Callable[[KubeObject], Outcome] | None = None,
        on_event: Callable[[Notification], Outcome] | None = None,
        *,
        resync_period: Duration | None = None,
        filter: Callable[[KubeObject], object] | None = None,  # noqa: A002 - as spoken
        coalesce: bool = False,
        thread: bool = False,
        name: str | None = None,
    ) -> Registration:
        """Add handlers, plain or async; they share one queue and are called in order.

        May be called at any time: a late one first gets every stored object.

        Args:
            on_add: Called with each object that comes into the selection.
            on_update: Called with its old and new state when it changes.
            on_delete: Called with its last state when it leaves the selection.
            on_event: Instead of the other three, called with the `Added`, `Updated` or
                `Deleted`, which has the flags.
            resync_period: Seconds, or a timedelta, at least 1 s: after each the handler
                is reminded of every stored object, as of an update from a state to
                itself (`Updated(obj, obj, resync=True)`), but for those of which
                something waits for it. Asks the store, not the server. 0 for none; the
                informer's own if left out. For another period, remove the handler and
                add it anew.
            filter: Which objects the handler wants: a plain function, which is called
                in the loop when a notification is delivered. What it begins to accept
                is told as `Added`, what it ceases to accept as `Deleted`. The handler is
                synced when the filter has seen all. If it raises, that is reported, and
                counts as accepting.
            coalesce: What waits for the handler is merged for each object: it is told
                what became of it, not each step, and nothing of what came and went
                meanwhile. A slow handler then costs memory for each object, and not
                for each change.
            thread: Call the handlers, which must be plain, in a thread of their own, one
                call at a time: for code that blocks. They have the context variables of
                the informer's run, as with `asyncio.to_thread`. A call that has not
                returned when the informer has stopped is left alone, with a warning; it
                does not keep the process from ending.
            name: In log and metrics; made of the functions' names if left out.

        Returns:
            The hold on it: how it is doing, and its removal.

        Raises:
            OptionsError: No handler was given, or `on_event` together with others; a
                period under a second, a filter that is no plain function, or an async
                handler with `thread=True`.
            InformerStopped: The informer has ended.
            WrongLoop: Called from another event loop or thread.
        """
        handlers = Handlers(
            on_add=on_add, on_update=on_update, on_delete=on_delete, on_event=on_event
        )
        options = HandlerOptions(
            resync_period=resync_period,
            filter=filter,
            coalesce=coalesce,
            thread=thread,
            name=name,
        )
        return self._add(handlers, options)

    @cached_property
    def _reminded_of(self) -> ListedOnce:
        return ListedOnce(self._indexer)

    def _add(self, handlers: Handlers, options: HandlerOptions) -> Registration:
        self._check_open()
        options.check(handlers)
        seconds = options.seconds_of_resync(self._resync_seconds)
        listener = Listener(
            f"{self.name}/{options.name or handlers.describe()}",
            handlers,
            self._reporter,
            options,
            resync=Resync(seconds, self._reminded_of) if seconds else None,
            metrics=self._metrics,
        )

        # Atomic: the snapshot is queued and changes follow from here on, no await
        # between them.
        if len(self._indexer):
            snapshot = Snapshot(self._indexer.list())
            listener.put(snapshot, asyncio.get_running_loop().time())

        self._processor.add(listener)
        if self.has_synced:
            listener.mark_synced()

        return Registration(listener, self._processor.remove, self._live.check_loop)

    @overload
    def on_add(self, handler: F, /) -> F: ...

    @overload
    def on_add(self, /, **options: Unpack[HandlerKeywords]) -> Callable[[F], F]: ...

    def on_add(self, handler: Any = None, /, **options: Any) -> Any:
        """Decorate a function to be called with each object that comes in.

        As it is, `@pods.on_add`, or with the options of `add_event_handler`:
        `@pods.on_add(filter=is_ready, coalesce=True)`.
        """
        return self._decorate("on_add", handler, options)

    @overload
    def on_update(self, handler: F, /) -> F: ...

    @overload
    def on_update(self, /, **options: Unpack[HandlerKeywords]) -> Callable[[F], F]: ...

    def on_update(self, handler: Any = None, /, **options: Any) -> Any:
        """Decorate a function to be called with old and new state of a change.

        With or without the options of `add_event_handler`, as `on_add`.
        """
        return self._decorate("on_update", handler, options)

    @overload
    def on_delete(self, handler: F, /) -> F: ...

    @overload
    def on_delete(self, /, **options: Unpack[HandlerKeywords]) -> Callable[[F], F]: ...

    def on_delete(self, handler: Any = None, /, **options: Any) -> Any:
        """Decorate a function to be called with the last state of what leaves.

        With or without the options of `add_event_handler`, as `on_add`.
        """
        return self._decorate("on_delete", handler, options)

    @overload
    def on_event(self, handler: F, /) -> F: ...

    @overload
    def on_event(self, /, **options: Unpack[HandlerKeywords]) -> Callable[[F], F]: ...

    def on_event(self, handler: Any = None, /, **options: Any) -> Any:
        """Decorate a function to be called with every `Added | Updated | Deleted`.

        With or without the options of `add_event_handler`, as `on_add`.
        """
        return self._decorate("on_event", handler, options)

    def _decorate(self, kind: str, handler: Any, options: dict[str, Any]) -> Any:
        def add(function: F) -> F:
            functions: dict[str, Any] = {kind: function}
            self.add_event_handler(**functions, **options)
            return function

        return add if handler is None else add(handler)
