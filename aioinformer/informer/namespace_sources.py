"""`NamespaceSource`: one list-watch of an informer, and its way into the store.

Most informers have one; an informer of several namespaces has one for each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aioinformer.errors import OptionsError
from aioinformer.informer.status import InformerStatus, describe_state

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioinformer.informer.listwatch.reflector import Reflector
    from aioinformer.informer.store.pipeline import Pipeline
    from aioinformer.watch.interface import ListerWatcher

__all__ = ["NamespaceSource", "describe_sources", "sources_of"]


@dataclass(frozen=True, slots=True)
class NamespaceSource:
    """One list-watch of an informer, and its way into the store.

    Attributes:
        namespace: What it has; None for all that the informer has.
        reflector: Lists and watches.
        pipeline: Takes what the reflector learns into the store.
    """

    namespace: str | None
    reflector: Reflector
    pipeline: Pipeline

    @property
    def synced(self) -> bool:
        """Its first complete list is in the store."""
        return self.pipeline.synced

    def age(self, now: float) -> float | None:
        """For how many seconds the store may be behind the server."""
        in_step = self.reflector.in_step
        return None if in_step is None else now - in_step

    def status(self, phase: str, now: float | None) -> InformerStatus:
        """How it is doing.

        Args:
            phase: That of the whole informer; empty for what it is at itself.
            now: The time of the loop; None if it does not run.
        """
        reflector, pipeline = self.reflector, self.pipeline
        return InformerStatus(
            phase=phase or reflector.phase,
            synced=pipeline.synced,
            last_contact=reflector.last_contact,
            last_event=reflector.last_event,
            age=None if now is None else self.age(now),
            resource_version=pipeline.version,
            restarts=reflector.restarts,
            duplicates=reflector.duplicates + pipeline.duplicates,
            history_resets=reflector.history_resets,
            degraded=reflector.skipped,
            not_served=reflector.not_served,
            last_error=reflector.last_error,
            failures=reflector.failures,
        )

    def trouble(self, phase: str) -> str:
        """The phase, and what went wrong."""
        reflector = self.reflector
        text = describe_state(
            phase or reflector.phase,
            reflector.last_error,
            reflector.failures,
            streams_given_up=reflector.streamless,
        )
        return text if self.namespace is None else f"{self.namespace}: {text}"


def describe_sources(parts: Sequence[NamespaceSource], phase: str) -> str:
    """What is wrong with an informer, in one line for a person.

    Args:
        parts: Those it has. Of several only those are told that have a trouble, or all
            if none has.
        phase: That of the whole informer; empty for what they are at themselves.
    """
    troubled = [it for it in parts if not it.synced or it.reflector.failures]
    return "; ".join(part.trouble(phase) for part in troubled or parts)


def sources_of(
    source: ListerWatcher | Mapping[str, ListerWatcher],
) -> dict[str | None, ListerWatcher]:
    """The sources by their namespaces; None for a source of whatever it has.

    Raises:
        OptionsError: If there are none, or something else than a name stands for one.
    """
    if not isinstance(source, Mapping):
        return {None: source}

    if not source:
        raise OptionsError("an informer of no namespaces has nothing to watch")

    for namespace in source:
        if not namespace:
            raise OptionsError(f"not the name of a namespace: {namespace!r}")

    return {namespace: source[namespace] for namespace in source}
