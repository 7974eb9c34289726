"""Errors of aioinformer, named by the reaction that they call for.

The tree::

    AioInformerError
    ├─ ApiError                     the server refused the request
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
    ├─ DecodeError                  a response of the server cannot be read
    ├─ SelectorSyntaxError          the caller's mistake, raised immediately (a ValueError)
    ├─ OptionsError                 the caller's mistake, raised immediately (a ValueError)
    │  └─ NoKey                     an object without a key cannot be stored
    ├─ NotSynced                    too early: the first list is not complete yet
    ├─ InformerStopped              too late: the informer has stopped
    ├─ WatchClosed                  a watch ended before its conditions were met
    ├─ Stale                        the cache is older than the caller accepts
    ├─ CacheError                   a cache directory cannot be used
    ├─ RecordingError               a recording cannot be read or written
    ├─ HistoryReset                 the server's versions went backwards
    ├─ WrongLoop                    called from another event loop or thread
    ├─ QueueShutDown                the queue is closed and empty
    ├─ HandlerError                 user code failed (reported, not raised to others)
    ├─ TerminalError                raised BY a reconciler: do not retry
    ├─ AlreadyOwned                 another object controls the one to write
    ├─ LeadershipLost               the Lease is not held any more
    └─ InternalError                a broken invariant: our bug, please report it
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "AioInformerError",
    "AlreadyExists",
    "AlreadyOwned",
    "ApiError",
    "CacheError",
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
    "RecordingError",
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
    """Base of all errors of this package, which can be copied and pickled.

    Args:
        message: Description for people.
    """

    # That of `BaseException` has no signature for `help()` and editors.
    def __init__(self, message: str = "") -> None:
        super().__init__(message)

    def __reduce__(self) -> tuple[Any, ...]:
        # The default calls the class with its text only, which is not enough for
        # classes that build their text from keyword arguments.
        return (_rebuild, (type(self), self.args, self.__dict__))


class ApiError(AioInformerError):
    """Refusal of a request by the API server, or an ERROR event that ended a watch.

    Attributes:
        status: HTTP status code, or the `code` of the Status object.
        reason: Machine-readable reason, such as `"AlreadyExists"`; may be empty.
        message: Message of the server.
        retry_after: Seconds that the server requested to wait, or None.
        details: `details` of the Status object.

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
        if not head or self.message == self.reason:
            return head or self.message

        return f"{head}: {self.message}"

    @staticmethod
    def from_status(
        status: Mapping[str, Any], *, code: int = 0, retry_after: float | None = None
    ) -> ApiError:
        """Return the error for a Kubernetes Status object.

        Args:
            status: Decoded Status; missing and null fields are allowed.
            code: HTTP status code, used if the Status has no `code`.
            retry_after: Seconds from a `Retry-After` header; None for the Status's own
                `details.retryAfterSeconds`.

        Returns:
            Error of the most specific class for its code and reason.
        """
        code = _integer(status.get("code")) or code
        reason = str(status.get("reason") or "")
        message = str(status.get("message") or "") or f"the server answered {code}"
        details = status.get("details")
        details = details if isinstance(details, dict) else {}

        if retry_after is None:
            # Go encodes an absent value as zero.
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
    """Credentials that the server does not accept (401).

    Recovery: fix the token or certificate. An informer keeps retrying.
    """


class Forbidden(ApiError):
    """Missing permission of the user (403).

    Recovery: grant it (list and watch, for an informer). An informer keeps its cache
    and keeps retrying.
    """


class NotFound(ApiError):
    """Object, or whole resource, that does not exist (404)."""


class Conflict(ApiError):
    """Write to an object that has changed since it was read (409).

    Recovery: read it again, repeat the change, write it again.
    """


class AlreadyExists(Conflict):
    """Creation of an object that already exists (409)."""


class ResourceExpired(ApiError):
    """Resource version that is older than the server's history (410).

    Recovery: list again without that version, as a reflector does by itself.
    """


class Invalid(ApiError):
    """Invalid request or body (400 or 422). Retrying it fails, too."""


class TooManyRequests(ApiError):
    """Rate limit of the server, or of the client's own limiter (429).

    Recovery: wait `retry_after` seconds (if not None), then retry.
    """


class ServerError(ApiError):
    """Failure of the server (5xx). Recovery: back off, then retry."""


class TransportError(AioInformerError):
    """Network failure: name look-up, connect, TLS, read, or silence.

    `__cause__` is the error of the HTTP library, if there was one.

    Attributes:
        unreachable: True if no connection to the server was established (refused, no
            route, unknown name), or it was reset before the response began.

    Recovery: back off, then retry.
    """

    def __init__(self, message: str, *, unreachable: bool = False) -> None:
        super().__init__(message)
        self.unreachable = unreachable


class DecodeError(AioInformerError):
    """Data from the server that cannot be read.

    Attributes:
        offset: Position in the data, in bytes from its start; -1 if unknown.
    """

    def __init__(self, message: str, *, offset: int = -1) -> None:
        super().__init__(message)
        self.offset = offset


class SelectorSyntaxError(AioInformerError, ValueError):
    """Label or field selector that cannot be parsed.

    Attributes:
        text: Selector as given.
        position: Position of the first error, in characters from 0.
    """

    def __init__(self, message: str, *, text: str, position: int) -> None:
        super().__init__(f"{message} at position {position} of {text!r}")
        self.text = text
        self.position = position


class OptionsError(AioInformerError, ValueError):
    """Options that are invalid or contradict earlier ones; the text says which."""


class NoKey(OptionsError):
    """Object without a key: its key function raised, or returned no string.

    client-go calls it a KeyError. `__cause__` is the error of the key function.

    Attributes:
        obj: The object.
    """

    def __init__(self, obj: object, reason: str) -> None:
        # Without the object itself, which may be a Secret.
        super().__init__(f"{type(obj).__name__} has no key: {reason}")
        self.obj = obj


class NotSynced(AioInformerError):
    """Cache that does not have the complete first list yet.

    Attributes:
        results: State of each informer waited for, by name: "synced", or its phase and
            last error.
    """

    def __init__(
        self, message: str, *, results: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.results: Mapping[str, str] = results or {}


class InformerStopped(AioInformerError):
    """Use of a stopped informer. `__cause__` is the error that stopped it, if any."""


class WatchClosed(AioInformerError):
    """End of a watch before its conditions were met.

    `__cause__` is the `ApiError` of its last event, if that was an ERROR.

    Attributes:
        last_event: Last `WatchEvent`, of any type; None without events.
    """

    def __init__(self, message: str, *, last_event: Any = None) -> None:
        super().__init__(message)
        self.last_event = last_event


class Stale(AioInformerError):
    """Cache that may be older than the caller accepts."""


class CacheError(AioInformerError):
    """A cache directory, or a file in it, cannot be used.

    The message has the path, the cause, and what to do. Informers do not end by it: they
    go on in memory.
    """


class RecordingError(AioInformerError):
    """A recording that cannot be written or read; the message has its path and why."""


class HistoryReset(AioInformerError):
    """Server whose history was reset, as after a restore from a backup.

    Its resource versions went backwards, or stand for other states.

    Recovery: earlier resource versions are invalid; read again.
    """


class WrongLoop(AioInformerError, RuntimeError):
    """Call of an object from another event loop or thread than its own."""


class QueueShutDown(AioInformerError):
    """Queue that was shut down, and whose items were all taken."""


class HandlerError(AioInformerError):
    """Failure of user code. `__cause__` is its exception.

    It is not raised by the package, but logged, counted and passed to `on_error`.
    Repeated failures are logged in part.

    Attributes:
        where: Kind of code that failed: `"handler"`, `"filter"`, `"transform"`, ...
        name: Name under which it was registered.
        subject: Its argument: an event or an object.
    """

    def __init__(self, where: str, name: str, subject: object) -> None:
        super().__init__(f"{where} {name} failed")
        self.where = where
        self.name = name
        self.subject = subject


class TerminalError(AioInformerError):
    """Error raised by a reconciler whose request must not be retried."""


class AlreadyOwned(AioInformerError):
    """Object that another object controls, so that this one must not write it.

    Attributes:
        owner: Owner reference of its controller.

    Recovery: delete the object, or choose another name.
    """

    def __init__(self, message: str, *, owner: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.owner: Mapping[str, Any] = owner or {}


class LeadershipLost(AioInformerError):
    """Lease that was not renewed in time: another replica may lead now."""


class InternalError(AioInformerError):
    """Broken invariant of aioinformer: a bug, please report it.

    The exception is a message that a task was cancelled: find the code that cancelled
    it.
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
