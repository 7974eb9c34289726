"""Every error that aioinformer raises, named by what the reader should do about it.

The tree::

    AioInformerError
    ├─ ApiError                     the server said no
    │  ├─ Unauthorized              401: credentials
    │  ├─ Forbidden                 403: permissions
    │  ├─ NotFound                  404
    │  ├─ Conflict                  409: read again, then write again
    │  │  └─ AlreadyExists          409 on create
    │  ├─ ResourceExpired           410: list again
    │  ├─ Invalid                   400, 422: the request itself is wrong
    │  ├─ TooManyRequests           429: wait `retry_after` seconds
    │  └─ ServerError               5xx: back off
    ├─ TransportError               the network failed: connect, TLS, read, silence
    ├─ DecodeError                  what the server sent cannot be read
    ├─ SelectorSyntaxError          the caller's mistake, raised at once (a ValueError)
    ├─ OptionsError                 the caller's mistake, raised at once (a ValueError)
    │  └─ NoKey                     an object that has no key cannot be kept
    ├─ NotSynced                    too early: the first complete list is not here yet
    ├─ InformerStopped              too late: the informer has ended
    ├─ WatchClosed                  a watch ended before what was waited for
    ├─ Stale                        the cache is older than the caller accepts
    ├─ HistoryReset                 the server's versions went backwards
    ├─ WrongLoop                    called from another event loop or thread
    ├─ QueueShutDown                the queue is closed and empty
    ├─ HandlerError                 a user's code failed (reported, never raised at others)
    ├─ TerminalError                raised BY a reconciler: do not retry
    ├─ LeadershipLost               the lease is no longer ours
    └─ InternalError                a broken invariant: our bug, please report it
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "AioInformerError",
    "AlreadyExists",
    "ApiError",
    "Conflict",
    "DecodeError",
    "Forbidden",
    "HandlerError",
    "HistoryReset",
    "InformerStopped",
    "InternalError",
    "Invalid",
    "LeadershipLost",
    "NoKey",
    "NotFound",
    "NotSynced",
    "OptionsError",
    "QueueShutDown",
    "ResourceExpired",
    "SelectorSyntaxError",
    "ServerError",
    "Stale",
    "TerminalError",
    "TooManyRequests",
    "TransportError",
    "Unauthorized",
    "WatchClosed",
    "WrongLoop",
]


class AioInformerError(Exception):
    """The base of every error of this package; all of them can be copied and pickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        # The default would call the class with its text alone, which is not enough for
        # those that make their text of keyword arguments.
        return (_rebuild, (type(self), self.args, self.__dict__))


class ApiError(AioInformerError):
    """The API server refused a request, or ended a watch with an ERROR event.

    Attributes:
        status: The HTTP status code, or the `code` of the Status object.
        reason: The machine-readable reason, such as `"AlreadyExists"`; may be empty.
        message: The server's own words.
        retry_after: Seconds that the server asked to wait, or None.
        details: The `details` of the Status object, as the server sent them.

    Recovery:
        See the subclass. `ApiError` itself is raised for codes without one.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        reason: str = "",
        retry_after: float | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.reason = reason
        self.retry_after = retry_after
        self.details: Mapping[str, Any] = details or {}

    def __str__(self) -> str:
        parts = [str(self.status) if self.status else "", self.reason]
        head = " ".join(part for part in parts if part)
        return f"{head}: {self.message}" if head else self.message

    @staticmethod
    def from_status(
        status: Mapping[str, Any], *, code: int = 0, retry_after: float | None = None
    ) -> ApiError:
        """Turn a Kubernetes Status object into the error that names it.

        Args:
            status: The decoded Status; missing and null fields are allowed.
            code: The HTTP status code, used where the Status has no `code`.
            retry_after: Seconds from a `Retry-After` header; the Status's own
                `details.retryAfterSeconds` is used where this is None.

        Returns:
            The most specific subclass for its code and reason.
        """
        code = _integer(status.get("code")) or code
        reason = str(status.get("reason") or "")
        message = str(status.get("message") or "") or f"the server answered {code}"
        details = status.get("details")
        details = details if isinstance(details, dict) else {}

        if retry_after is None:
            # A zero is how Go leaves it out.
            retry_after = float(_integer(details.get("retryAfterSeconds"))) or None

        kind = _BY_REASON.get(reason) or _BY_CODE.get(code)
        if kind is None:
            kind = ServerError if code >= 500 else ApiError

        return kind(
            message,
            status=code,
            reason=reason,
            retry_after=retry_after,
            details=details,
        )


class Unauthorized(ApiError):
    """The server does not know who we are (401).

    Recovery: mend the token or certificate. An informer keeps trying.
    """


class Forbidden(ApiError):
    """The server knows us and says no (403).

    Recovery: grant the permission (list and watch, for an informer). An informer
    keeps its cache and keeps trying, because permissions are mended while we run.
    """


class NotFound(ApiError):
    """The object, or the whole resource, does not exist (404)."""


class Conflict(ApiError):
    """The object changed since it was read (409).

    Recovery: read it again, make the change again, write it again.
    """


class AlreadyExists(Conflict):
    """An object of this name exists (409 on create)."""


class ResourceExpired(ApiError):
    """The resource version is older than the server's history (410).

    Recovery: list again without that version. A reflector does so by itself.
    """


class Invalid(ApiError):
    """The request or its body is not acceptable (400 or 422): sending it again fails."""


class TooManyRequests(ApiError):
    """The server, or the client's own limiter, asks for patience (429).

    Recovery: wait `retry_after` seconds (if not None), then try again.
    """


class ServerError(ApiError):
    """The server failed (5xx). Recovery: back off, then try again."""


class TransportError(AioInformerError):
    """The network failed: name look-up, connect, TLS, read, or silence.

    `__cause__` is the error of the HTTP library, where there was one.

    Attributes:
        unreachable: True if no connection to the server was made (refused, no route, no
            such name), or it was reset before the answer began.

    Recovery: back off, then try again.
    """

    def __init__(self, message: str, *, unreachable: bool = False) -> None:
        super().__init__(message)
        self.unreachable = unreachable


class DecodeError(AioInformerError):
    """The server sent something that cannot be read.

    Attributes:
        offset: Where in the data, in bytes from its start; -1 if unknown.
    """

    def __init__(self, message: str, *, offset: int = -1) -> None:
        super().__init__(message)
        self.offset = offset


class SelectorSyntaxError(AioInformerError, ValueError):
    """A label or field selector that cannot be parsed.

    Attributes:
        text: The selector as given.
        position: Where the first error is, counted in characters from 0.
    """

    def __init__(self, message: str, *, text: str, position: int) -> None:
        super().__init__(f"{message} at position {position} of {text!r}")
        self.text = text
        self.position = position


class OptionsError(AioInformerError, ValueError):
    """Options that cannot work, or that contradict earlier ones; the text says which."""


class NoKey(OptionsError):
    """An object without a key: its key function failed, or answered no string.

    client-go calls it a KeyError. `__cause__` is what the key function raised.

    Attributes:
        obj: The object.
    """

    def __init__(self, obj: object, reason: str) -> None:
        # Not the object itself: it may be a secret.
        super().__init__(f"this {type(obj).__name__} has no key: {reason}")
        self.obj = obj


class NotSynced(AioInformerError):
    """The first complete list is not in the cache yet.

    Attributes:
        results: For each informer waited for, by name, why it is not synced:
            its phase and last error. An informer that is synced maps to "synced".
    """

    def __init__(
        self, message: str, *, results: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.results: Mapping[str, str] = results or {}


class InformerStopped(AioInformerError):
    """The informer has ended; `__cause__` is the reason, if it was an error."""


class WatchClosed(AioInformerError):
    """A watch ended before what was waited for had happened.

    `__cause__` is the `ApiError` of its last event, if that was an ERROR.

    Attributes:
        last_event: The `WatchEvent` that came last, of any type; None if none did.
    """

    def __init__(self, message: str, *, last_event: Any = None) -> None:
        super().__init__(message)
        self.last_event = last_event


class Stale(AioInformerError):
    """The cache may be further behind the server than the reader accepts."""


class HistoryReset(AioInformerError):
    """The server's versions went backwards (restored from an older backup).

    Recovery: versions from before are void; read again.
    """


class WrongLoop(AioInformerError, RuntimeError):
    """Called from another event loop or thread than the one that owns the object."""


class QueueShutDown(AioInformerError):
    """The queue has been shut down, and everything in it was handed out."""


class HandlerError(AioInformerError):
    """A user's code failed; `__cause__` is its exception.

    Never raised into the machinery: it is logged, counted, and given to `on_error`;
    what repeats is logged in part.

    Attributes:
        where: Which code failed: `"handler"`, `"filter"`, `"transform"`, ...
        name: The name it was registered under.
        subject: What it was called with: an event or an object.
    """

    def __init__(self, where: str, name: str, subject: object) -> None:
        super().__init__(f"{where} {name} failed")
        self.where = where
        self.name = name
        self.subject = subject


class TerminalError(AioInformerError):
    """Raised by a reconciler to say that trying again is useless."""


class LeadershipLost(AioInformerError):
    """The lease was not renewed in time: another replica may lead now."""


class InternalError(AioInformerError):
    """An invariant of aioinformer is broken. This is our bug: please report it.

    Except if it says that a task was cancelled: then look for the code that did it.
    """


_BY_REASON: dict[str, type[ApiError]] = {
    "Unauthorized": Unauthorized,
    "Forbidden": Forbidden,
    "NotFound": NotFound,
    "Conflict": Conflict,
    "AlreadyExists": AlreadyExists,
    "Expired": ResourceExpired,
    "Gone": ResourceExpired,
    "Invalid": Invalid,
    "BadRequest": Invalid,
    "TooManyRequests": TooManyRequests,
}

_BY_CODE: dict[int, type[ApiError]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: ResourceExpired,
    422: Invalid,
    429: TooManyRequests,
}


def _integer(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _rebuild(
    kind: type[AioInformerError], args: tuple[Any, ...], state: dict[str, Any]
) -> AioInformerError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error
