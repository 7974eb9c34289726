"""`TypedLister`: reads from an informer's cache, as objects of a type of the user's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    import builtins

    from aioinformer.informer.lister import Lister
    from aioinformer.model.selectors import LabelSelector
    from aioinformer.model.times import Duration

__all__ = ["TypedLister"]

T = TypeVar("T")


class TypedLister(Generic[T]):
    """Reads objects as a type; made by `Lister.into`.

    ::

        class Pod(msgspec.Struct):
            metadata: Metadata
            spec: PodSpec

        pods.lister.into(Pod).namespace("shop").list("app=web")  # list[Pod]

    Options and errors of its reads are those of the `Lister`. Besides, they raise
    `DecodeError` if an object does not fit the type.

    What is read is decoded by that read and belongs to the caller: nothing is kept. The
    fewer fields the type has, the less that takes; many objects take many milliseconds,
    during which the event loop does not turn.

    Args:
        lister: Where the objects come from.
        kind: What they are decoded into.
    """

    def __init__(self, lister: Lister, kind: type[T]) -> None:
        self._lister = lister
        self._kind = kind

    def __repr__(self) -> str:
        name = getattr(self._kind, "__name__", self._kind)
        return f"<TypedLister of {name}, {self._lister!r}>"

    def namespace(self, namespace: str) -> TypedLister[T]:
        """The same for one namespace."""
        return TypedLister(self._lister.namespace(namespace), self._kind)

    def get(
        self,
        key: str,
        *,
        max_staleness: Duration | None = None,
        allow_unsynced: bool = False,
    ) -> T | None:
        """One object, or None if there is none.

        Raises:
            DecodeError: If it does not fit the type.
            NotSynced, InformerStopped, Stale, OptionsError: As `Lister.get`.
        """
        found = self._lister.get(
            key, max_staleness=max_staleness, allow_unsynced=allow_unsynced
        )
        return None if found is None else found.into(self._kind)

    def list(
        self,
        selector: str | LabelSelector = "",
        *,
        limit: int | None = None,
        max_staleness: Duration | None = None,
        allow_unsynced: bool = False,
    ) -> builtins.list[T]:
        """The objects whose labels match, in a fresh list.

        Raises:
            DecodeError: If one of them does not fit the type.
            SelectorSyntaxError: If the selector cannot be parsed.
            NotSynced, InformerStopped, Stale, OptionsError: As `Lister.get`.
        """
        found = self._lister.list(
            selector,
            limit=limit,
            max_staleness=max_staleness,
            allow_unsynced=allow_unsynced,
        )
        return [obj.into(self._kind) for obj in found]

    def by_index(
        self,
        name: str,
        value: str,
        *,
        max_staleness: Duration | None = None,
        allow_unsynced: bool = False,
    ) -> builtins.list[T]:
        """The objects that have `value` in the index `name`, in a fresh list.

        Raises:
            DecodeError: If one of them does not fit the type.
            OptionsError: If the informer has no such index; and as `Lister.get`.
            NotSynced, InformerStopped, Stale: As `Lister.get`.
        """
        found = self._lister.by_index(
            name, value, max_staleness=max_staleness, allow_unsynced=allow_unsynced
        )
        return [obj.into(self._kind) for obj in found]
