"""`ReflectorOptions`: how one reflector lists and watches."""

from __future__ import annotations

from dataclasses import dataclass

from aioinformer.errors import OptionsError
from aioinformer.model.times import Duration, seconds_of

__all__ = ["WATCH_SECONDS", "ReflectorOptions"]

WATCH_SECONDS = 300.0

INTERNAL_ERROR_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReflectorOptions:
    """How one reflector lists and watches."""

    page_size: int | None = None
    """Objects in a page; None for 500 where pages make sense. A server with a watch
    cache answers the first list whole, whatever this says. No effect on streams, nor on
    the list that is asked for whole after one whose further pages could not be had."""

    watch_seconds: Duration = WATCH_SECONDS
    """How long the server should keep one watch open: drawn from [w, 2w) for each,
    so that many informers do not come back together. At least 1 s; whole seconds."""

    streaming_list: bool = False
    """Ask for lists as streams: a watch that begins with the current objects and goes
    on. It spares an older server's memory, and takes longer. A server that does not do
    it is asked for pages instead, from then on."""

    internal_error_seconds: Duration = INTERNAL_ERROR_SECONDS
    """For how long watches that end in an internal error of the server (500), one after
    the other and without news, are resumed; then a list gets over what the server
    perhaps cannot read any more. 0 lists again at once, as client-go does."""

    def __post_init__(self) -> None:
        if self.page_size is not None and self.page_size < 1:
            raise OptionsError(f"page_size must be at least 1, not {self.page_size}")

        if seconds_of(self.watch_seconds) < 1:
            raise OptionsError(
                f"watch_seconds must be at least 1, not {self.watch_seconds}"
            )

        if seconds_of(self.internal_error_seconds) < 0:
            raise OptionsError(
                "internal_error_seconds must not be negative, as "
                f"{self.internal_error_seconds}"
            )
