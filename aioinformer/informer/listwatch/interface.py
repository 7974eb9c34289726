"""`ReflectorOptions` and `ReflectorStore`: the options and the store of a reflector."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypedDict

from aioinformer.errors import CacheError, InternalError, OptionsError
from aioinformer.model.times import Duration, seconds_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import TypeAlias

    from aioinformer.cache.deltas import Delta
    from aioinformer.model.objects import KubeObject

    Selects: TypeAlias = Callable[[KubeObject], bool]

__all__ = [
    "INTERNAL_ERROR_SECONDS",
    "WATCH_GRACE_SECONDS",
    "WATCH_SECONDS",
    "ReflectorKeywords",
    "ReflectorOptions",
    "ReflectorStore",
    "Resume",
    "Staging",
    "store_calls",
    "store_failed",
]


WATCH_SECONDS = 300.0

WATCH_GRACE_SECONDS = 10.0


INTERNAL_ERROR_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReflectorOptions:
    """Options of one reflector.

    `SharedInformerFactory.informer` has options with the same names.
    """

    page_size: int | None = None
    """Number of objects in a page of a list. None means 500, and no pages for a relist
    that needs a minimum version. Servers with a watch cache ignore the limit of the
    first list. Streams have no pages. If later pages of a list fail, the next list has
    none."""

    watch_seconds: Duration = WATCH_SECONDS
    """Minimum duration of a watch, at least 1 s. The client requests a random duration
    from [w, 2w) for each watch, so that informers do not reconnect together."""

    watch_grace_seconds: Duration = WATCH_GRACE_SECONDS
    """Seconds after which the client ends a watch that the server should have ended."""

    streaming_list: bool = False
    """True to request lists as streams: watches that begin with the current objects.
    Streams save memory in older servers, but take longer. If the server does not
    support them, the reflector lists in pages from then on."""

    internal_error_seconds: Duration = INTERNAL_ERROR_SECONDS
    """Seconds for which the reflector resumes watches that keep ending with internal
    errors (500). Then it relists, in case the server cannot read its storage. With 0 it
    relists at once, as client-go does."""

    def __post_init__(self) -> None:
        if self.page_size is not None and self.page_size < 1:
            raise OptionsError(f"page_size must be at least 1, not {self.page_size}")

        if seconds_of(self.watch_seconds) < 1:
            raise OptionsError(
                f"watch_seconds must be at least 1, not {self.watch_seconds}"
            )

        if seconds_of(self.watch_grace_seconds) < 0:
            raise OptionsError(
                f"watch_grace_seconds must not be negative: {self.watch_grace_seconds}"
            )

        if seconds_of(self.internal_error_seconds) < 0:
            raise OptionsError(
                "internal_error_seconds must not be negative: "
                f"{self.internal_error_seconds}"
            )


class ReflectorKeywords(TypedDict, total=False):
    """The same options as keyword arguments."""

    page_size: int | None
    watch_seconds: Duration
    watch_grace_seconds: Duration
    streaming_list: bool
    internal_error_seconds: Duration


def _ignore_uid(_: str) -> None:
    """Ignore the uid of the cluster."""


def _ignore() -> None:
    """Ignore the confirmation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """Complete list in the store, left by an earlier reflector.

    The reflector watches from its version, without a list. It first checks that the
    server has the same history: by the uid of the cluster, or else by a list of one
    object. If the history is another, it lists, and compares all objects.
    """

    version: str = ""
    """Version that the store has; empty to begin with a list, as the store has none."""

    comparable: bool = True
    """False if equal versions may be other states in the store: those of another
    cluster, or of another transform. Then it begins with a list, and compares all
    objects, whatever `version` is."""

    cluster: str = ""
    """Uid of the cluster that the store has objects of; empty if unknown."""

    in_step: float | None = None
    """Time at which the store was last known to be up to date, on the loop's clock."""

    on_cluster: Callable[[str], None] = _ignore_uid
    """Function called before each list with the uid of the server's cluster, or with
    `""` if it is unknown. Must not wait. If the uid is another one, the stored objects
    are not of that cluster, until the list is applied: do not resume from them."""

    on_confirmed: Callable[[], None] = _ignore
    """Function called once the watch has shown that the store is up to date: a
    bookmark came, or it paused for 0.1 s after its first events, or it was silent for
    half a second. Events without a pause show that after 5 s of waiting for them. Not
    called after a list, whose commit shows the same. Must not wait."""


class Staging(Protocol):
    """Place where a list is staged in pieces."""

    async def stage(
        self, objects: list[KubeObject], *, after_reset: bool = False
    ) -> None:
        """Stage some objects of the current list.

        Args:
            objects: Objects as the server sent them.
            after_reset: True after a history reset: a known version may now be another
                state.
        """

    def stage_deleted(self, keys: list[str]) -> None:
        """Unstage objects that were deleted while the list was streamed."""

    async def stage_unreadable(self, keys: list[str]) -> None:
        """Stage the known states of objects that exist but cannot be read."""


class ReflectorStore(Staging, Protocol):
    """Store of a reflector. A list is staged in pieces and then committed."""

    def known(self, key: str) -> KubeObject | None:
        """Return the newest known state of an object, or None."""

    async def discard(self) -> None:
        """Drop the staged objects, because the list failed."""

    async def commit(
        self,
        resource_version: str,
        *,
        after_reset: bool = False,
        selects: Selects | None = None,
    ) -> None:
        """Replace all objects by the staged ones, because the list is complete.

        Args:
            resource_version: Version of the list.
            after_reset: See `stage`.
            selects: Function of the list's selection, if that is another one than
                before. Objects that it does not select have not been deleted.
        """

    async def clear(self) -> None:
        """Remove all objects, because the server no longer has the resource."""

    async def feed(
        self, deltas: list[Delta[KubeObject]], resource_version: str
    ) -> None:
        """Queue changes, and the version of the store after them."""

    async def narrow(self, selects: Selects) -> None:
        """Queue the removal of all objects that are not selected any more.

        Nothing else is queued meanwhile, and nothing is when it is called.
        """

    async def widen(
        self, objects: list[KubeObject], resource_version: str, repeated: int
    ) -> None:
        """Queue the objects of a list that is added to the known objects.

        Args:
            objects: Objects as the server sent them.
            resource_version: Version of the store after them. The watch continues from
                it.
            repeated: Version up to which the watch repeats changes that the store has.
        """

    async def applied(self) -> None:
        """Wait until the store has everything that was queued."""


def store_failed(error: Exception) -> InternalError:
    """Return the error that ends the reflector after an error of its store."""
    return InternalError(f"the store failed: {error!r}")


class _StoreCalls:
    """Reentrant context manager that turns errors of the store into `InternalError`.

    `CacheError` stays: another store can replace one on disk.
    """

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, CacheError | InternalError):
            return

        if isinstance(error, Exception):
            raise store_failed(error) from error


store_calls: Final = _StoreCalls()
"""Context manager for calls of a store, whose errors then end the reflector."""
