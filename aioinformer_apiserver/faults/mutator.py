"""Application of the faults that change the content of a response. No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from aioinformer_apiserver.storage.encoding import error_line

if TYPE_CHECKING:
    from aioinformer_apiserver.faults.base import Fault

__all__ = ["ResponseMutator"]

_BOOKMARK = b'{"type":"BOOKMARK"'
_ERROR = b'{"type":"ERROR"'


class ResponseMutator:
    """Runs the hooks of a fault on one response.

    A watch passes its lines as it writes them, a list its whole body. JSON is decoded
    only where the fault strikes.

    Attributes:
        ended: True if the watch must end, cleanly, after the lines returned last.
        altered: True if the returned content differs from the given content.
    """

    def __init__(self, fault: Fault) -> None:
        self.ended = False
        self.altered = False
        self._fault = fault
        self._events = 0

    def initial_lines(self) -> list[bytes]:
        """Return the lines to send before the first event of a watch."""
        return self._end()

    def mutate_lines(self, lines: list[bytes]) -> list[bytes]:
        """Return the lines to send instead of these complete lines of a watch."""
        sent: list[bytes] = []
        for line in lines:
            if self.ended:
                break

            if line.startswith(_ERROR):
                sent.append(line)  # It reports on the watch and has no object.
                continue

            if line.startswith(_BOOKMARK):
                sent += self._record_change(
                    line, self._fault.alter_bookmark(line, self._events)
                )
                continue

            sent += self._record_change(
                line, self._fault.alter_event(line, self._events)
            )
            self._events += 1
            sent += self._end()

        return sent

    def mutate_body(self, body: bytes) -> bytes:
        """Return the body to send instead of a whole body; only lists change."""
        listed = _list_in(body)
        changed = None if listed is None else self._fault.alter_list(listed)
        if changed is None:
            return body

        self.altered |= changed != body
        return changed

    def _record_change(self, line: bytes, changed: list[bytes]) -> list[bytes]:
        self.altered |= changed != [line]
        return changed

    def _end(self) -> list[bytes]:
        """End the watch if the fault says so, and return its last line."""
        end = self._fault.watch_end(self._events)
        if end is False:
            return []

        self.ended = self.altered = True
        return [] if end is True else [error_line(end)]


def _list_in(body: bytes) -> dict[str, Any] | None:
    try:
        decoded = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None

    is_list = isinstance(decoded, dict) and isinstance(decoded.get("items"), list)
    return decoded if is_list else None
