"""Errors in one line: what happened, and what to do about it. Pure."""

from __future__ import annotations

from aioinformer.cli.output import one_line
from aioinformer.errors import (
    ApiError,
    DecodeError,
    Forbidden,
    InformerStopped,
    Invalid,
    NotFound,
    NotSynced,
    SelectorSyntaxError,
    Unauthorized,
)

__all__ = ["CommandError", "message_of", "unreadable"]

# How the library's advice reads at a command line.
_TYPED = {"use Client.from_url()": "give --server", "from the caller": "--kubeconfig"}

# What the client says of answers that are none of Kubernetes', or of no known path.
_ADVISED = ("not a Kubernetes Status", "serves no such resource")

_CHECK_RESOURCE = (
    "check its name, version and group against `kubectl api-resources`, and that its "
    "CRD is installed."
)


class CommandError(Exception):
    """What was typed cannot work; its text is the line to show."""


def message_of(error: BaseException) -> str:
    """Say in one line what is wrong, and what to do; nothing in it commands a terminal.

    Of an informer that did not get its list, the last error is what counts.
    """
    if isinstance(error, NotSynced) and error.__cause__ is not None:
        error = error.__cause__

    text = str(error)
    if isinstance(error, InformerStopped) and error.__cause__ is not None:
        text += f" of {error.__cause__!r}"

    text = " ".join(text.split()) or type(error).__name__
    for python, typed in _TYPED.items():
        text = text.replace(python, typed)

    advice = _advice(error)
    return one_line(f"{_ended(text)} {advice}" if advice else text)


def unreadable(error: DecodeError, server: str) -> str:
    """Say in one line whose answer could not be read, and what may be wrong."""
    text = message_of(error)
    if server in text:
        return text

    return one_line(
        f"{server} did not answer with a list that can be read: {_ended(text)} "
        "Is the URL that of an API server?"
    )


def _ended(text: str) -> str:
    return text if text.endswith(("?", "!", ".")) else f"{text}."


def _advice(error: BaseException) -> str:
    """What to do, where the error does not say so itself."""
    match error:
        case ApiError() if _speaks_for_itself(error):
            return ""
        case Unauthorized():
            return (
                "The server does not accept the credentials: give a valid --token, or "
                "mend the user of the kubeconfig's context."
            )
        case Forbidden():
            return (
                "Ask for the permission to list and watch it, or try one namespace: -n."
            )
        case NotFound():
            return f"The server does not serve this resource: {_CHECK_RESOURCE}"
        case Invalid():
            return (
                "The server does not accept the request: check --field-selector, only "
                "a few fields of each resource can be selected by."
            )
        case ApiError():
            return "The server is in trouble: try again later."
        case SelectorSyntaxError():
            return (
                "Selectors look like 'app=web,tier in (a,b),!canary' (-l) and "
                "'status.phase!=Running' (--field-selector)."
            )
        case InformerStopped():
            return "This is a bug of aioinformer: -v shows where; please report it."
        case _:
            return ""  # those that say so themselves


def _speaks_for_itself(error: ApiError) -> bool:
    advised = any(it in error.message for it in _ADVISED)
    return advised or 300 <= error.status < 400
