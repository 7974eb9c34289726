"""`Warnings`: the `Warning:` headers of responses, logged once each."""

from __future__ import annotations

import re
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from aioinformer._user_code import guarded_logger, user_errors
from aioinformer.client.redaction import redacted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["Warnings", "texts_in"]

logger: Final = guarded_logger(__name__)

# Warnings that are not logged a second time.
_KEPT = 1000
# Servers cut a warning at 256 characters, and all of a response at 4 KiB.
_MOST_CHARACTERS = 1024
# The code of warnings for users. The date of a warning is optional.
_WARNING = re.compile(
    r'\s*(?P<code>\d{3})\s+\S+\s+"(?P<text>(?:[^"\\]|\\.)*)"(?:\s+"[^"]*")?\s*(?:,|\Z)'
)
_ESCAPED = re.compile(r"\\(.)")
_CODE = "299"


class Warnings:
    """Warnings of one server: deprecated versions, unknown fields, webhooks.

    Args:
        server: URL of the server, for the log.
        handler: Function called with each warning; None to log each one once.
    """

    def __init__(self, server: str, handler: Callable[[str], object] | None) -> None:
        self._server = server
        self._handler = handler
        self._logged: OrderedDict[str, None] = OrderedDict()

    def report(self, headers: Iterable[str], request: str) -> None:
        """Report the warnings of one response.

        Args:
            headers: Values of its `Warning:` headers.
            request: Method and path of the request.
        """
        for header in headers:
            for text in texts_in(header):
                self._report(text, request)

    def _report(self, text: str, request: str) -> None:
        if self._handler is None:
            self._log(text, request)
            return

        try:
            self._handler(text)
        except user_errors():
            logger.exception("on_warning failed for a warning of %s", self._server)

    def _log(self, text: str, request: str) -> None:
        known = text in self._logged
        self._logged[text] = None
        self._logged.move_to_end(text)
        if len(self._logged) > _KEPT:
            self._logged.popitem(last=False)

        if not known:
            logger.warning("%s warns: %s (%s)", self._server, text, request)


def texts_in(header: str) -> Iterator[str]:
    r"""Yield the texts of the warnings in a header that are for users.

    Malformed warnings, and those after them, are left out.

    Example:
        >>> list(texts_in('299 - "unknown field \\"spec.x\\"", 199 - "cached"'))
        ['unknown field "spec.x"']
    """
    place = 0
    while place < len(header) and (found := _WARNING.match(header, place)):
        place = found.end()
        text = _ESCAPED.sub(r"\1", found["text"])
        shown = "".join(it if it.isprintable() else " " for it in text)
        if found["code"] == _CODE and shown.strip():
            yield redacted(shown[:_MOST_CHARACTERS])
