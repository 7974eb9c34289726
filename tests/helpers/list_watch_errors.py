"""Every error that may end a list or watch, by its effect on the list-watch machine."""

from __future__ import annotations

from aioinformer import errors
from aioinformer.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    DecodeError,
    Forbidden,
    HistoryReset,
    Invalid,
    NotFound,
    ResourceExpired,
    ServerError,
    TooManyRequests,
    TransportError,
    Unauthorized,
)

PASSING, PATIENCE, INTERNAL = "passing", "patience", "internal"
STUCK, UNSUPPORTED = "stuck", "unsupported"
VERSION, INVALID, RESET = "version", "invalid", "reset"
KINDS = {PASSING, PATIENCE, INTERNAL, STUCK, UNSUPPORTED, VERSION, INVALID, RESET}

TOO_LARGE = {"causes": [{"reason": "ResourceVersionTooLarge"}]}
OLD_TOO_LARGE = {"causes": [{"message": "Too large resource version"}]}

ERRORS: dict[str, tuple[Exception, str]] = {
    "transport": (TransportError("broken"), PASSING),
    "401": (Unauthorized("?", status=401), PASSING),
    "403": (Forbidden("?", status=403), PASSING),
    "406": (ApiError("?", status=406), PASSING),
    "409": (Conflict("?", status=409), PASSING),
    "409-exists": (AlreadyExists("?", status=409), PASSING),
    "no-status": (ApiError("?"), PASSING),
    "501": (ServerError("?", status=501), PASSING),
    "503": (ServerError("?", status=503, retry_after=9.0), PASSING),
    "504": (ServerError("?", status=504, reason="Timeout"), PASSING),
    "429": (TooManyRequests("?", status=429, retry_after=9.0), PATIENCE),
    "500": (ServerError("?", status=500), INTERNAL),
    "500-reason": (ServerError("?", status=500, reason="InternalError"), INTERNAL),
    "404": (NotFound("?", status=404), STUCK),
    "unreadable": (DecodeError("?"), STUCK),
    "storage": (ServerError("?", status=500, reason="StorageReadError"), STUCK),
    "405": (ApiError("?", status=405), UNSUPPORTED),
    "405-reason": (ApiError("?", status=405, reason="MethodNotAllowed"), UNSUPPORTED),
    "410-expired": (ResourceExpired("?", status=410, reason="Expired"), VERSION),
    "410-gone": (ResourceExpired("?", status=410, reason="Gone"), VERSION),
    "too-large": (ServerError("?", status=504, details=TOO_LARGE), VERSION),
    "too-large-1.18": (ServerError("?", status=504, details=OLD_TOO_LARGE), VERSION),
    "too-large-1.16": (
        ServerError("Too large resource version: 9, current: 5", status=504),
        VERSION,
    ),
    "400": (Invalid("?", status=400), INVALID),
    "422": (Invalid("?", status=422), INVALID),
    "history": (HistoryReset("backwards"), RESET),
}

# Errors that neither a source raises nor the reflector creates from responses.
NEVER = {
    errors.AioInformerError,
    errors.AlreadyOwned,
    errors.CacheError,
    errors.HandlerError,
    errors.InformerStopped,
    errors.InternalError,
    errors.LeadershipLost,
    errors.NoKey,
    errors.NotSynced,
    errors.OptionsError,
    errors.QueueShutDown,
    errors.RecordingError,
    errors.SelectorSyntaxError,
    errors.Stale,
    errors.TerminalError,
    errors.WatchClosed,
    errors.WrongLoop,
}
