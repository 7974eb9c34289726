"""`Columns`: the labels of all objects, in a form that is fast to search."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any, Final

import msgspec

from aioinformer.cache.disk.records import LONGEST_NAME, labels_text, name_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import lmdb

    from aioinformer.cache.disk.environment import Environment
    from aioinformer.errors import CacheError
    from aioinformer.model.selectors import LabelSelector

__all__ = ["Columns"]

CHUNK: Final = 100
"""Largest number of objects in a chunk. A change of labels writes the whole chunk."""

SPARSE: Final = CHUNK * 3 // 4
"""Number of objects up to which a chunk gets others again."""

_NUMBER: Final = Struct(">I")

_TAB: Final = b"\t"

_DAMAGES: Final = (ValueError, msgspec.MsgspecError)

_json_string: Final = msgspec.json.Encoder().encode
_read_key: Final = msgspec.json.Decoder(str).decode
_read_labels: Final = msgspec.json.Decoder(dict[str, str]).decode


class Columns:
    """Labels of the objects of one generation, in numbered chunks.

    A chunk has two lines for each set of labels: the set, and the keys of the objects
    that have it, with tabs in between. All of them are JSON, which has no line breaks
    and no tabs, and in which a quote within a key or a value is written `\"`. So the
    text `"app":"web"` is only found where that is a label.

    Changes are collected by chunk; `flush()` writes them.

    Args:
        env: Environment.
        database: Database of the chunks.
    """

    def __init__(self, env: Environment, database: Any) -> None:
        self._env = env
        self._database = database
        # Changed chunks: labels by key, both as JSON.
        self._changed: dict[int, dict[bytes, bytes]] = {}
        # The chunk that gets new objects; 0 for none. A hint, as an aborted transaction
        # may have removed it.
        self._open = 0
        # Chunks that got sparse. Hints, too.
        self._sparse: set[int] = set()

    # ------------------------------------------------------------ changes

    def add(self, txn: lmdb.Transaction[bytes], key: str, labels: bytes) -> int:
        """Add the labels of a new object; return the number of its chunk."""
        chunk = self._changed.get(self._open)
        if chunk is None or len(chunk) >= CHUNK:
            chunk = self._chunk_with_room(txn)

        chunk[_json_string(key)] = labels
        return self._open

    def change(
        self, txn: lmdb.Transaction[bytes], number: int, key: str, labels: bytes
    ) -> None:
        """Replace the labels of an object, in its chunk."""
        self._chunk(txn, number)[_json_string(key)] = labels

    def remove(self, txn: lmdb.Transaction[bytes], number: int, key: str) -> None:
        """Remove the labels of an object from its chunk."""
        chunk = self._chunk(txn, number)
        chunk.pop(_json_string(key), None)
        if len(chunk) <= SPARSE:
            self._sparse.add(number)

    def flush(self, txn: lmdb.Transaction[bytes]) -> None:
        """Write the changed chunks, in a write transaction."""
        for number, chunk in self._changed.items():
            if chunk:
                txn.put(_NUMBER.pack(number), _written(chunk), db=self._database)
            else:
                txn.delete(_NUMBER.pack(number), db=self._database)
                self._sparse.discard(number)

        self._changed.clear()

    def forget(self) -> None:
        """Drop collected changes, after a transaction was aborted."""
        self._changed.clear()

    def _chunk(self, txn: lmdb.Transaction[bytes], number: int) -> dict[bytes, bytes]:
        chunk = self._changed.get(number)
        if chunk is None:
            text = txn.get(_NUMBER.pack(number), b"", self._database)
            try:
                chunk = {
                    key: labels
                    for labels, keys in _sets(text)
                    for key in keys.split(_TAB)
                }
            except _DAMAGES as exc:
                raise self._damaged(exc) from exc

            self._changed[number] = chunk

        return chunk

    def _chunk_with_room(self, txn: lmdb.Transaction[bytes]) -> dict[bytes, bytes]:
        """Open a chunk for new objects."""
        if not self._open:
            self._open = self._newest(txn)

        for number in (self._open, *self._sparse):
            chunk = self._chunk(txn, number)
            self._sparse.discard(number)
            if number and len(chunk) < CHUNK:
                self._open = number
                return chunk

        self._open = self._newest(txn) + 1
        return self._chunk(txn, self._open)

    def _newest(self, txn: lmdb.Transaction[bytes]) -> int:
        with txn.cursor(self._database) as cursor:
            stored = _NUMBER.unpack(cursor.key())[0] if cursor.last() else 0

        return max(stored, *self._changed) if self._changed else stored

    # ------------------------------------------------------------ checks

    def next(self, txn: lmdb.Transaction[bytes], after: int) -> int | None:
        """Return the number of the next stored chunk; None after the last one."""
        with txn.cursor(self._database) as cursor:
            if not cursor.set_range(_NUMBER.pack(after + 1)):
                return None

            return int(_NUMBER.unpack(cursor.key())[0])

    def stored(self, txn: lmdb.Transaction[bytes], number: int) -> dict[str, bytes]:
        """Return the labels in a stored chunk, as JSON, by key.

        Raises:
            CacheError: If the chunk is damaged.
        """
        try:
            return {
                _read_key(key): labels
                for labels, keys in _sets(
                    txn.get(_NUMBER.pack(number), b"", self._database)
                )
                for key in keys.split(_TAB)
            }
        except _DAMAGES as exc:
            raise self._damaged(exc) from exc

    # ------------------------------------------------------------ search

    def search(
        self,
        txn: lmdb.Transaction[bytes],
        selector: LabelSelector,
        namespace: str | None,
    ) -> list[bytes]:
        """Return the names in LMDB of the objects whose labels match.

        Args:
            txn: Transaction.
            selector: Selector, not empty.
            namespace: Namespace of the objects, empty for those without one; None for
                all.

        Raises:
            CacheError: If a chunk is damaged.
        """
        texts = _texts(selector)
        answers = _Answers(selector)
        found: list[bytes] = []
        with txn.cursor(self._database) as cursor:
            for text in cursor.iternext(keys=False):
                if texts and not any(it in text for it in texts):
                    continue

                try:
                    for labels, keys in _sets(text):
                        if answers[labels]:
                            found += _names(keys, namespace)
                except _DAMAGES as exc:
                    raise self._damaged(exc) from exc

        return found

    def _damaged(self, why: Exception) -> CacheError:
        return self._env.damaged("label chunk", why)


def _written(chunk: dict[bytes, bytes]) -> bytes:
    """Return a chunk as it is stored."""
    sets: dict[bytes, list[bytes]] = {}
    for key, labels in chunk.items():
        sets.setdefault(labels, []).append(key)

    lines = [
        line for labels, keys in sets.items() for line in (labels, _TAB.join(keys))
    ]
    return b"\n".join(lines)


def _sets(text: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the sets of labels of a stored chunk, and the line of keys of each."""
    lines = text.split(b"\n") if text else []
    return zip(lines[::2], lines[1::2], strict=True)


def _names(keys: bytes, namespace: str | None) -> list[bytes]:
    """Return the names in LMDB for a line of keys, of one namespace or None for all."""
    if keys[:1] == b'"' == keys[-1:] and b"\\" not in keys and b'""' not in keys:
        names = keys[1:-1].split(b'"\t"')
        if max(map(len, names)) <= LONGEST_NAME:  # the usual case
            if namespace is None:
                return names

            prefix = namespace.encode() + b"/"
            return [
                name
                for name in names
                if (name.startswith(prefix) if namespace else b"/" not in name)
            ]

    read = map(_read_key, keys.split(_TAB))
    return [name_of(key) for key in read if namespace in {None, _namespace_of(key)}]


def _namespace_of(key: str) -> str:
    namespace, slash, _ = key.partition("/")
    return namespace if slash else ""


class _Answers(dict[bytes, bool]):
    """Whether label sets match a selector, by their JSON."""

    def __init__(self, selector: LabelSelector) -> None:
        super().__init__()
        self._matches = selector.matches

    def __missing__(self, labels: bytes) -> bool:
        found = self[labels] = self._matches(_read_labels(labels))
        return found


def _texts(selector: LabelSelector) -> list[bytes]:
    """Return texts of which the labels of each selected object have one, if known."""
    best: list[bytes] = []
    for it in selector.requirements:
        if it.operator in {"=", "in"} and (not best or len(it.values) < len(best)):
            best = [
                labels_text(it.key) + b":" + labels_text(value) for value in it.values
            ]

    return best
