"""A user's handlers, plain or async, behind one call for each kind of notification."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from aioinformer.errors import OptionsError
from aioinformer.informer.notifications import Added, Deleted, Notification, Updated
from aioinformer.model.callables import check_runs, check_takes

if TYPE_CHECKING:
    from aioinformer.model.objects import KubeObject

__all__ = ["Handlers", "Outcome"]

Outcome: TypeAlias = Awaitable[Any] | None
Call: TypeAlias = Callable[[Any], Outcome]


@dataclass(frozen=True, slots=True, kw_only=True)
class Handlers:
    """What to call for which notification: either `on_event`, or some of the others."""

    on_add: Callable[[KubeObject], Outcome] | None = None
    """Called with the object."""

    on_update: Callable[[KubeObject, KubeObject], Outcome] | None = None
    """Called with the old and the new state."""

    on_delete: Callable[[KubeObject], Outcome] | None = None
    """Called with the last state."""

    on_event: Callable[[Notification], Outcome] | None = None
    """Called with the `Added`, `Updated` or `Deleted` itself, which has the flags."""

    def __post_init__(self) -> None:
        specific = (self.on_add, self.on_update, self.on_delete)
        if (self.on_event is None) == (specific == (None, None, None)):
            raise OptionsError(
                "give either on_event, or some of on_add, on_update and on_delete"
            )

        for form, call in zip(_FORMS, (*specific, self.on_event), strict=True):
            if call is None:
                continue

            if not callable(call):
                raise OptionsError(f"{call!r} cannot be called: not a handler")

            check_runs(call, "a handler")
            check_takes(call, "a handler", form)

    def functions(self) -> list[Callable[..., Outcome]]:
        """Those that were given."""
        given = (self.on_add, self.on_update, self.on_delete, self.on_event)
        return [function for function in given if function is not None]

    def describe(self) -> str:
        """A name for the log, made of the functions' own names."""
        names = [
            str(getattr(function, "__qualname__", type(function).__qualname__))
            for function in self.functions()
        ]
        return "+".join(dict.fromkeys(names))

    def calls(self) -> dict[type, Call]:
        """For each kind of notification that is wanted, what to call with it."""
        if self.on_event is not None:
            return dict.fromkeys((Added, Updated, Deleted), self.on_event)

        calls: dict[type, Call] = {}
        if (on_add := self.on_add) is not None:
            calls[Added] = lambda event: on_add(event.obj)

        if (on_update := self.on_update) is not None:
            calls[Updated] = lambda event: on_update(event.old, event.new)

        if (on_delete := self.on_delete) is not None:
            calls[Deleted] = lambda event: on_delete(event.obj)

        return calls


# How each is called: with what its parameters are usually called.
_FORMS = ("on_add(obj)", "on_update(old, new)", "on_delete(obj)", "on_event(event)")
