"""`Records`: objects as bytes, and bytes as objects."""

from __future__ import annotations

import struct
from hashlib import sha256
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from aioinformer.errors import CacheError, DecodeError
from aioinformer.model.compression import Codec, DifferenceCodec
from aioinformer.model.object_meta import LabelTable
from aioinformer.model.objects import KubeObject
from aioinformer.model.views import ObjectContext

if TYPE_CHECKING:
    from collections.abc import Mapping

    import lmdb

    from aioinformer.cache.disk.environment import Environment
    from aioinformer.cache.index import Packed
    from aioinformer.model.resource import Resource

__all__ = ["Head", "Records", "key_of", "labels_text", "name_of", "state_of"]

LONGEST_NAME: Final = 440
"""Size of the longest key that is a key in LMDB, too. Those of Kubernetes have at most
317 bytes, except for a few kinds that allow any name."""

DICTIONARIES_KEPT: Final = 32
"""Number of dictionaries that are kept though no stored object names them. Entries of
the journal may."""

# A record:
#   label chunk, size of the index values, size of the key if it is too long for LMDB
#   index values, key
#   dictionary, sizes of uid, version and labels
#   uid, version, labels as JSON, body
# From the dictionary on, records of equal states are equal.
_HEAD: Final = Struct("<IIH")
_STATE: Final = Struct("<IIII")
_unpack_head: Final = _HEAD.unpack_from
_unpack_state: Final = _STATE.unpack_from

# Instead of the number of a dictionary.
_PLAIN: Final = 0
_WITHOUT_DICTIONARY: Final = 1

_NO_NAME: Final = b"\0"

_NUMBER: Final = Struct(">I")
# Numbers of all dictionaries, oldest first.
_ORDER: Final = b"order"

_values_encoder: Final = msgspec.msgpack.Encoder()
_values_decoder: Final = msgspec.msgpack.Decoder(dict[int, Any])
labels_text: Final = msgspec.json.Encoder().encode
"""Function that returns labels as JSON."""


def name_of(key: str) -> bytes:
    """Return what a key of an object is in LMDB, whose keys are not empty, nor long.

    Names sort like keys, except for long ones that begin with the same 440 bytes.
    """
    name = key.encode("utf-8", "surrogatepass")
    if 0 < len(name) <= LONGEST_NAME:
        return name

    return name[:LONGEST_NAME] + sha256(name).digest() if name else _NO_NAME


def key_of(name: bytes, record: bytes) -> str:
    """Return the key of an object, by the key in LMDB and its record."""
    if len(name) > LONGEST_NAME:
        _, values, size = _HEAD.unpack_from(record)
        start = _HEAD.size + values
        name = record[start : start + size]

    return "" if name == _NO_NAME else name.decode("utf-8", "surrogatepass")


def state_of(record: bytes) -> bytes:
    """Return the part of a record that is equal for equal states."""
    _, values, size = _HEAD.unpack_from(record)
    return record[_HEAD.size + values + size :]


class Head(NamedTuple):
    """Parts of a record that writers compare."""

    chunk: int
    values: bytes
    labels: bytes


class Records:
    """Encoder and decoder of the records of one environment.

    A record has the uid, version, labels, index values and stored body of an object, and
    the number of the dictionary that its body was compressed with. It copies what it
    reads: nothing refers to LMDB's memory after the transaction.

    Decoding works in any thread. Its objects share one cache of decoded bodies.

    Args:
        env: Environment; its database `dict` holds the dictionaries by number.
        resource: Resource of metadata-only objects, or None.
    """

    def __init__(self, env: Environment, resource: Resource | None = None) -> None:
        self._env = env
        self._dictionaries = env.database("dict")
        self._labels = LabelTable()
        self._plain = ObjectContext(resource=resource)
        self._contexts: dict[int, ObjectContext] = {_PLAIN: self._plain}
        # The last write transaction, and the codecs whose dictionaries are known to be
        # stored in it, with the generation. An aborted one leaves nothing wrong.
        self._transaction: lmdb.Transaction[bytes] | None = None
        self._stored: set[tuple[Codec, int | None]] = set()
        # Codecs whose dictionaries were compared with the stored ones.
        self._compared: set[Codec] = set()

    def encode(
        self,
        obj: KubeObject,
        values: bytes = b"",
        *,
        chunk: int = 0,
        labels: bytes = b"",
        generation: int | None = None,
        txn: lmdb.Transaction[bytes] | None = None,
    ) -> bytes:
        """Return the record of an object; store its dictionary if that is new.

        In a write transaction.

        Args:
            obj: Object.
            values: Index values, see `pack`.
            chunk: Number of the label chunk; 0 for none.
            labels: Result of `labels_text`, if known.
            generation: Generation that gets the record: its dictionary is kept as long
                as the generation. None for the journal.
            txn: Transaction, if known.
        """
        codec = obj.context.codec
        body = obj.body
        number = _PLAIN
        if isinstance(codec, DifferenceCodec):  # without the body that it differs from
            body = obj.raw
        elif codec is not None:
            number = codec.number or _WITHOUT_DICTIONARY
            known = txn is not None and txn is self._transaction
            if known and (codec, generation) in self._stored:
                pass  # the usual case
            elif not self._keep(codec, number, generation):
                number, body = _PLAIN, obj.raw

        labels = labels or labels_text(obj.label_set)
        uid = obj.uid.encode()
        version = obj.resource_version.encode()
        key = b""
        if len(obj.key) > LONGEST_NAME // 4:  # may be long in UTF-8
            name = obj.key.encode("utf-8", "surrogatepass")
            key = name if len(name) > LONGEST_NAME else b""

        return b"".join(
            (
                _HEAD.pack(chunk, len(values), len(key)),
                values,
                key,
                _STATE.pack(number, len(uid), len(version), len(labels)),
                uid,
                version,
                labels,
                body,
            )
        )

    def decode(self, key: str, record: bytes) -> KubeObject:
        """Return the object of a record, in a transaction.

        Raises:
            CacheError: If the record is damaged or names an unknown dictionary.
        """
        # A selector of many objects takes most of its time here.
        try:
            _, values, size = _unpack_head(record)
            start = _HEAD.size + values + size
            number, uid, version, labels = _unpack_state(record, start)
            start += _STATE.size
            uid += start
            version += uid
            labels += version
            if labels > len(record):
                raise self._damaged(key, "it is too short")

            context = self._contexts.get(number)
            return KubeObject(
                record[labels:],
                key,
                record[start:uid].decode(),
                record[uid:version].decode(),
                self._labels.get(record[version:labels]),
                self._context(number, key) if context is None else context,
            )
        except (struct.error, UnicodeDecodeError, DecodeError) as exc:
            raise self._damaged(key, exc) from exc

    def head(self, record: bytes) -> Head:
        """Return the parts of a record that writers compare.

        Raises:
            CacheError: If the record is damaged.
        """
        try:
            chunk, values, size = _HEAD.unpack_from(record)
            state = _HEAD.size + values + size
            _, uid, version, labels = _STATE.unpack_from(record, state)
        except struct.error as exc:
            raise self._damaged("", exc) from exc

        start = state + _STATE.size + uid + version
        return Head(
            chunk,
            record[_HEAD.size : _HEAD.size + values],
            record[start : start + labels],
        )

    @staticmethod
    def with_values(record: bytes, values: bytes) -> bytes:
        """Return a record with other index values."""
        chunk, size, key = _HEAD.unpack_from(record)
        rest = record[_HEAD.size + size :]
        return _HEAD.pack(chunk, len(values), key) + values + rest

    @staticmethod
    def pack(values: Mapping[int, Packed]) -> bytes:
        """Return index values, by the number of their index, for a record.

        Raises:
            UnicodeEncodeError: If a value is no valid text.
        """
        exact = {
            number: value if type(value) in _EXACT else str.__str__(value)
            for number, value in values.items()
            if value is not None
        }
        return _values_encoder.encode(exact) if exact else b""

    def unpack(self, values: bytes) -> dict[int, str | bytes]:
        """Return the index values in a record, by the number of their index.

        Raises:
            CacheError: If they are damaged.
        """
        if not values:
            return {}

        try:
            return _values_decoder.decode(values)
        except msgspec.DecodeError as exc:
            raise self._damaged("", exc) from exc

    # ------------------------------------------------------------ dictionaries

    def newest_dictionary(self) -> bytes:
        """Return the dictionary that was stored last; empty if there is none."""
        with self._env.read() as txn:
            order = self._numbers(txn, _ORDER)
            if not order:
                return b""

            found: bytes = txn.get(_NUMBER.pack(order[-1]), b"", self._dictionaries)
            return bytes(found)

    def forget(self, generation: int) -> None:
        """Record that a generation is empty; drop dictionaries that nothing names.

        In a write transaction.
        """
        with self._env.write() as txn:
            database = self._dictionaries
            self._stored.clear()
            txn.delete(_named(generation), db=database)
            order = self._numbers(txn, _ORDER)
            named = set(self._numbers(txn, _named(1 - generation)))
            old = [it for it in order[:-DICTIONARIES_KEPT] if it not in named]
            for number in old:
                txn.delete(_NUMBER.pack(number), db=database)

            if old:
                kept = [it for it in order if it not in old]
                txn.put(_ORDER, _written(kept), db=database)

    def _keep(self, codec: Codec, number: int, generation: int | None) -> bool:
        """Store the dictionary of a codec; return False if its number is taken."""
        if number == _WITHOUT_DICTIONARY:
            return True

        with self._env.write() as txn:
            if txn is not self._transaction:
                self._transaction = txn
                self._stored.clear()

            if (codec, generation) in self._stored:
                return True

            if not self._is_stored(txn, codec, number):
                return False

            if generation is not None:
                named = self._numbers(txn, _named(generation))
                if number not in named:
                    named.append(number)
                    txn.put(_named(generation), _written(named), db=self._dictionaries)

            self._stored.add((codec, generation))
            if number not in self._contexts:
                self._contexts[number] = ObjectContext(codec, self._plain)

            return True

    def _is_stored(
        self, txn: lmdb.Transaction[bytes], codec: Codec, number: int
    ) -> bool:
        """Store a dictionary if it is new; return False if its number is taken."""
        name = _NUMBER.pack(number)
        if codec in self._compared:
            with txn.cursor(self._dictionaries) as cursor:
                if cursor.set_key(name):  # without a copy of it
                    return True

        stored = txn.get(name, None, self._dictionaries)
        content = codec.dictionary
        if stored is None:
            order = [*self._numbers(txn, _ORDER), number]
            txn.put(name, content, db=self._dictionaries)
            txn.put(_ORDER, _written(order), db=self._dictionaries)
        elif stored != content:
            return False

        self._compared.add(codec)
        return True

    def _numbers(self, txn: lmdb.Transaction[bytes], name: bytes) -> list[int]:
        found = txn.get(name, b"", self._dictionaries)
        return [number for (number,) in _NUMBER.iter_unpack(found)]

    def _context(self, number: int, key: str) -> ObjectContext:
        """Return the context of objects that name a dictionary."""
        if number == _WITHOUT_DICTIONARY:
            content = b""
        else:
            with self._env.read() as txn:
                content = txn.get(_NUMBER.pack(number), b"", self._dictionaries)

            if not content:
                raise self._damaged(key, f"it names an unknown dictionary, {number}")

        try:
            codec = Codec(content)
        except Exception as exc:  # of zstandard
            raise self._damaged(key, f"its dictionary is damaged: {exc}") from exc

        if number not in {codec.number, _WITHOUT_DICTIONARY}:
            raise self._damaged(key, f"its dictionary is that of {codec.number}")

        made = ObjectContext(codec, self._plain)
        return self._contexts.setdefault(number, made)

    def _damaged(self, key: str, why: object) -> CacheError:
        return self._env.damaged(f"record of {key!r}", why)


_EXACT: Final = (str, bytes)


def _named(generation: int) -> bytes:
    """Return the name of the list of dictionaries that a generation names."""
    return b"named%d" % generation


def _written(numbers: list[int]) -> bytes:
    return b"".join(map(_NUMBER.pack, numbers))
