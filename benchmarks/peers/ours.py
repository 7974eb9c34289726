"""Contestant: this package, with a factory and its informers.

In addition to the options of all contestants, it has options for informers, for several
informers of as many collections, and for several handlers of each.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

from peer_program import (
    CA_FILE,
    TOKEN,
    PeerProgram,
    Unsupported,
    digest_of,
    parser_of,
    run_program,
)

from aioinformer import (
    Client,
    KubeObject,
    Resource,
    SharedInformer,
    SharedInformerFactory,
    index_by,
    strip_managed_fields,
)
from aioinformer.client import transport

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    from peer_program import Fields

    from aioinformer import Registration

TRANSFORMS = {"drop-managed-fields": strip_managed_fields}

# An entered client loads it, and aiohttp.
LOADED = transport


class Listener:
    """Additional handler, which counts for itself.

    Args:
        over: Called when it has got all expected changes.
    """

    __slots__ = ("_over", "missing")

    def __init__(self, over: Callable[[], None]) -> None:
        self.missing = 0
        self._over = over

    async def changed(self, old: KubeObject, new: KubeObject) -> None:
        """Count a change."""
        self.missing -= 1
        if not self.missing:
            self._over()

    def changed_plainly(self, old: KubeObject, new: KubeObject) -> None:
        """Count a change, as a plain function."""
        self.missing -= 1
        if not self.missing:
            self._over()


class Ours(PeerProgram):
    """Copies by informers of a `SharedInformerFactory`.

    Args:
        options: Arguments parsed by `parser()`.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__(options)
        self.watches = options.informers
        self._client = Client.from_url(options.url, token=TOKEN, ca_file=CA_FILE)
        self._factory = SharedInformerFactory(self._client)
        self._informers = [
            self._informer(number) for number in range(options.informers)
        ]
        self._waiting = 0
        self._listeners: list[Listener] = []
        self._registrations: list[Registration] = []
        for informer in self._informers:
            self._listen(informer)

    def _informer(self, number: int) -> SharedInformer:
        options = self.options
        settings: dict[str, Any] = {"streaming_list": options.list == "stream"}
        if options.body:
            settings["indexers"] = {"node": index_by("spec.nodeName")}

        if options.transform:
            settings["transform"] = TRANSFORMS[options.transform]

        if options.compression:
            settings["compression"] = options.compression

        if options.metadata_only:
            settings["metadata_only"] = True

        if options.informers == 1:
            return self._factory.informer("v1", "pods", **settings)

        # The canned server has all collections, which are equal.
        return self._factory.informer(Resource("", "v1", f"pods{number}"), **settings)

    def _listen(self, informer: SharedInformer) -> None:
        informer.set_watch_error_handler(self.fail)
        add = informer.add_event_handler
        self._registrations.append(add(*self._handlers()))
        for _ in range(self.options.listeners - 1):
            one = Listener(self.over)
            changed = one.changed_plainly if self.options.plain else one.changed
            self._listeners.append(one)
            self._registrations.append(add(on_update=changed))

    def _handlers(self) -> tuple[Callable[..., Any], Callable[..., Any]]:
        look = self._look if self.options.body else None

        if self.options.plain:

            def added_plainly(pod: KubeObject) -> None:
                if look:
                    look(pod)

            def changed_plainly(old: KubeObject, new: KubeObject) -> None:
                if look:
                    look(new)

                self.seen(new.resource_version)

            return added_plainly, changed_plainly

        async def added(pod: KubeObject) -> None:
            if look:
                look(pod)

        async def changed(old: KubeObject, new: KubeObject) -> None:
            if look:
                look(new)

            self.seen(new.resource_version)

        return added, changed

    def _look(self, pod: KubeObject) -> None:
        self.running += pod.at("status.phase") == "Running"

    # ------------------------------------------------------------ the run

    async def copy(self) -> None:
        """Copy all pods until cancelled."""
        self.begin()
        async with self._factory:
            for registration in self._registrations:
                await registration.wait_synced()

            self.listed(sum(len(it.store) for it in self._informers))
            await asyncio.Event().wait()

    async def ready(self) -> None:
        """Read the body of every object, if requested."""
        await super().ready()
        if self.options.touch:
            for informer in self._informers:
                handler = informer.add_event_handler(self._touched)
                await handler.wait_synced()
                await handler.aclose()

    async def _touched(self, pod: KubeObject) -> None:
        self._look(pod)

    def expect(self, changes: int) -> None:
        """Prepare all informers and handlers for a number of changes."""
        super().expect(changes * len(self._informers))
        self._waiting = 1 + len(self._listeners)
        for listener in self._listeners:
            listener.missing = changes

    def over(self) -> None:
        """Note that one of the counters has ended."""
        self._waiting -= 1
        if not self._waiting:
            super().over()

    def contents(self) -> Iterator[Fields]:
        """Return the contents of the first informer's store."""
        return contents(self._informers[0])

    def digest(self) -> str:
        """Return the digest that all copies must have."""
        digests = {digest_of(contents(informer)) for informer in self._informers}
        if len(digests) > 1:
            raise Unsupported("the informers hold different states")

        return digests.pop()


def contents(informer: SharedInformer) -> Iterator[Fields]:
    for pod in informer.store.list():
        yield (
            pod.namespace,
            pod.name,
            pod.uid,
            pod.resource_version,
            pod.at("spec.nodeName", ""),
            pod.at("status.phase", ""),
        )


def parser() -> argparse.ArgumentParser:
    made = parser_of(__doc__)
    add = made.add_argument
    add(
        "--list",
        choices=["rv0", "stream"],
        default="rv0",
        help="kind of the first list",
    )
    add("--transform", choices=TRANSFORMS, help="transform of each object")
    add("--compression", help="compression of bodies, such as zstd")
    add("--metadata-only", action="store_true", help="request only the metadata")
    add("--informers", type=int, default=1, help="number of informers and collections")
    add("--listeners", type=int, default=1, help="number of handlers of each informer")
    add("--plain", action="store_true", help="use plain handlers")
    add("--touch", action="store_true", help="read all phases before measuring memory")
    return made


if __name__ == "__main__":
    sys.exit(run_program(Ours, parser()))
