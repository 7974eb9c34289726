"""Error messages of one line, with advice. Pure."""

from __future__ import annotations

import re

from aioinformer.cli.output import one_line
from aioinformer.errors import (
    ApiError,
    DecodeError,
    Forbidden,
    HistoryReset,
    InformerStopped,
    Invalid,
    NotFound,
    NotSynced,
    SelectorSyntaxError,
    TransportError,
    Unauthorized,
)
from aioinformer.model.resources import built_in_resources

__all__ = ["ANONYMOUS", "CommandError", "message_of", "trouble_of", "unreadable"]

ANONYMOUS = "system:anonymous"
"""User of requests without credentials."""

# The library's advice, as options of the command.
_OPTIONS = {
    "use Client.from_url()": "pass --server",
    "Pass an existing file": "Pass an existing file by --kubeconfig",
}

# Messages of the client that contain advice already.
_ADVISED = ("not a Kubernetes Status", "serves no such resource")

_CHECK_RESOURCE = (
    "check its name, version and group against `kubectl api-resources`, and that its "
    "CRD is installed."
)


class CommandError(Exception):
    """Invalid command. Its text is shown to the user."""

    def __init__(self, message: str) -> None:
        super().__init__(message)


def message_of(error: BaseException) -> str:
    """Return the message and advice for an error, in one line safe for terminals.

    For `NotSynced` it is that of the last error.
    """
    if isinstance(error, NotSynced) and error.__cause__ is not None:
        error = error.__cause__

    text = str(error)
    if isinstance(error, InformerStopped) and error.__cause__ is not None:
        text += f" of {error.__cause__!r}"

    text = " ".join(text.split()) or type(error).__name__
    for python, option in _OPTIONS.items():
        text = text.replace(python, option)

    advice = _advice(error)
    return one_line(f"{_ended(text)} {advice}" if advice else text)


def unreadable(error: DecodeError, server: str) -> str:
    """Return the message for a response that cannot be decoded, in one line."""
    text = message_of(error)
    if server in text:
        return text

    return one_line(
        f"{server} returned an invalid list: {_ended(text)} "
        "Is the URL that of an API server?"
    )


def trouble_of(error: BaseException) -> str:
    """Return what happens to an informer whose last list or watch failed, in short."""
    match error:
        case HistoryReset():
            return "server reset, relisting"
        case Unauthorized() | Forbidden():
            return "refused"
        case TransportError():
            return "connection lost"
        case _:
            return "failing"


def _ended(text: str) -> str:
    return text if text.endswith(("?", "!", ".")) else f"{text}."


def _advice(error: BaseException) -> str:
    """Return advice for an error that has none."""
    match error:
        case ApiError() if _has_advice(error):
            return ""
        case Unauthorized():
            return (
                "The server rejected the credentials: pass a valid --token, or fix the "
                "user of the kubeconfig's context."
            )
        case Forbidden():
            return _advice_for_forbidden(error.message)
        case NotFound():
            return f"The server does not serve this resource: {_CHECK_RESOURCE}"
        case Invalid():
            return (
                "The server rejected the request: check --field-selector. Only a few "
                "fields of each resource are supported."
            )
        case ApiError(status=405):
            return "This resource cannot be listed or watched."
        case ApiError() if error.status == 429 or error.status >= 500:
            return "Server error: try again later."
        case SelectorSyntaxError():
            return (
                "Selectors look like 'app=web,tier in (a,b),!canary' (-l) and "
                "'status.phase!=Running' (--field-selector)."
            )
        case InformerStopped():
            return "This is a bug in aioinformer: run with -v for details, and please report it."
        case _:
            return ""


_AT_CLUSTER_SCOPE = re.compile(
    r'resource "([^"]+)" in API group "([^"]*)" at the cluster scope'
)


def _advice_for_forbidden(refusal: str) -> str:
    if f'"{ANONYMOUS}"' in refusal:
        return (
            "No credentials were sent: pass --token, or a kubeconfig whose context has "
            "a user."
        )

    ask = "Ask an administrator for permission to list and watch it"
    found = _AT_CLUSTER_SCOPE.search(refusal)
    if found is None:
        return f"{ask}."

    known = {(it.plural, it.group): it.namespaced for it in built_in_resources()}
    match known.get((found[1], found[2])):
        case True:
            return f"{ask}, or use one namespace (-n)."
        case False:
            return f"{ask}."
        case None:
            return f"{ask}, or use one namespace (-n) if it has namespaces."


def _has_advice(error: ApiError) -> bool:
    advised = any(it in error.message for it in _ADVISED)
    return advised or 300 <= error.status < 400
