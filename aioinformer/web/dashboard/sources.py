"""`Sources`: the informers and controllers that a dashboard shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioinformer.errors import AioInformerError
from aioinformer.model.validation import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from aioinformer.client.client import Client
    from aioinformer.controller.controller import Controller
    from aioinformer.controller.manager import Manager
    from aioinformer.informer.factory import SharedInformerFactory
    from aioinformer.informer.shared_informer import SharedInformer

__all__ = ["NotShown", "Sources", "find_informer"]


class NotShown(AioInformerError):
    """The dashboard has no such informer, controller or state."""


class Sources:
    """Informers and controllers, also those that are requested or added later.

    Args:
        factory: Factory of informers, or None for that of the manager.
        manager: Manager of controllers, or None.
        added: Function called once with each informer.
        removed: Function called with informers that have been removed.
        follow_controllers: Function called with all controllers.

    Raises:
        Exception: Exception of one of the functions. Nothing is followed then.
    """

    def __init__(
        self,
        factory: SharedInformerFactory | None,
        manager: Manager | None,
        *,
        added: Callable[[SharedInformer], None],
        removed: Callable[[SharedInformer], None],
        follow_controllers: Callable[[Sequence[Controller]], None],
    ) -> None:
        self.manager: Manager | None = manager
        self._factories: list[SharedInformerFactory] = (
            [] if factory is None else [factory]
        )
        if manager is not None and manager.factory is not factory:
            self._factories.append(manager.factory)

        self._added = added
        self._removed = removed
        self._follow_controllers = follow_controllers
        self._ids: dict[SharedInformer, str] = {}
        self._closed = False
        self._ends: list[Callable[[], None]] = []
        try:
            for it in self._factories:
                self._ends.append(it.follow(self._follow_new))

            if manager is not None:
                self._ends.append(manager.follow(self.refresh))

            self.refresh()
        except BaseException:
            self.close()
            raise

    @property
    def client(self) -> Client:
        """Client of the first factory."""
        return self._factories[0].client

    def informers(self) -> dict[str, SharedInformer]:
        """Return the current informers by their ids: their names, if these are unique."""
        self.refresh()
        return {name: informer for informer, name in self._ids.items()}

    def id_of(self, informer: SharedInformer) -> str:
        """Return the id of an informer, or an empty string if it is not shown."""
        return self._ids.get(informer, "")

    def controllers(self) -> dict[str, Controller]:
        """Return the current controllers by name."""
        self.refresh()
        manager = self.manager
        return {} if manager is None else {it.name: it for it in manager.controllers}

    def refresh(self) -> None:
        """Follow what was added, and forget informers that were removed."""
        if self._closed:
            return

        current = [it for factory in self._factories for it in factory.informers]
        if self.manager is not None:
            current += self.manager.informers
            self._follow_controllers(self.manager.controllers)

        for informer in current:
            self._follow(informer)

        self._forget_all_but(current)

    def close(self) -> None:
        """Follow nothing more. Idempotent."""
        self._closed = True
        for end in self._ends:
            end()

        self._follow_controllers(())
        self._forget_all_but(())

    def _follow_new(self, informer: SharedInformer) -> None:
        # Without an open page, nothing else notices the end of temporary informers.
        self.refresh()
        self._follow(informer)

    def _forget_all_but(self, informers: Iterable[SharedInformer]) -> None:
        for informer in self._ids.keys() - set(informers):
            del self._ids[informer]
            self._removed(informer)

    def _follow(self, informer: SharedInformer) -> None:
        if informer in self._ids:
            return

        taken = set(self._ids.values())
        name, number = informer.name, 2
        while name in taken:
            name, number = f"{informer.name} #{number}", number + 1

        self._ids[informer] = name
        self._added(informer)


def find_informer(
    informers: Mapping[str, SharedInformer], place: str
) -> SharedInformer:
    """Return the informer with an id.

    Args:
        informers: Informers by their ids.
        place: Id of the informer, from a request.

    Raises:
        NotShown: If there is no such informer.
    """
    informer = informers.get(place)
    if informer is None:
        raise NotShown(f"there is no informer {shown(place)}")

    return informer
