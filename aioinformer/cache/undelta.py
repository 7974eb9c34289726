"""`UndeltaStore`: a store that hands on all it holds whenever that changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from aioinformer._user_code import user_errors
from aioinformer.cache.store import Store
from aioinformer.errors import HandlerError
from aioinformer.model.callables import check_plain
from aioinformer.model.keys import meta_namespace_key

if TYPE_CHECKING:
    import builtins
    from collections.abc import Callable

    from aioinformer.cache.contents import Contents

__all__ = ["UndeltaStore"]

T = TypeVar("T")


class UndeltaStore(Store[T]):
    """Turns changes back into states: after each write, the whole content is pushed.

    For whoever acts on the state as a whole, and has few objects: each write costs as
    much as there are. A write that changes nothing is pushed as well; one that is
    refused is not, and no read is.

    Args:
        push: Called behind each write, with all objects in a fresh list. It must not
            wait. What it raises is reported: the write has happened.
        key_func: As for `Store`.
        on_error: Told of what `push` raises; logged if left out.

    Raises:
        OptionsError: `push` or `on_error` is no plain function.
    """

    def __init__(
        self,
        push: Callable[[builtins.list[T]], None],
        *,
        key_func: Callable[[T], str] = meta_namespace_key,
        on_error: Callable[[HandlerError], None] | None = None,
    ) -> None:
        super().__init__(key_func=key_func, on_error=on_error)
        check_plain(push, "the push function")
        self._push = push

    def add(self, obj: T) -> None:
        """As `Store.add`, and push."""
        super().add(obj)
        self._hand_on()

    update = add

    def delete(self, obj: T) -> None:
        """As `Store.delete`, and push, whether there was such an object or not."""
        super().delete(obj)
        self._hand_on()

    def swap(self, replacement: Contents[T], resource_version: str = "") -> Contents[T]:
        """As `Store.swap`, and push; `replace` ends in this, and so pushes once."""
        old = super().swap(replacement, resource_version)
        self._hand_on()
        return old

    def _hand_on(self) -> None:
        objects = self.list()
        try:
            self._push(objects)
        except user_errors() as exc:  # reported
            name = getattr(self._push, "__qualname__", repr(self._push))
            failure = HandlerError("push function", name, objects)
            failure.__cause__ = exc
            self._report(failure)
