"""The API server of a large cluster: one collection of pods, nine others, many changes.

It makes its objects itself, in a process of its own, as they take gigabytes. Lists are
split into chunks as from kube-apiserver. A watch gets each change in a chunk of its
own.

The mix of changes is that of a cluster whose pods come and go: eight of ten are changes
of a status, one is a deletion, and one a creation. The version of an object is the time
of the change in nanoseconds, so that a client of the same machine knows its delay.
"""

from __future__ import annotations

import itertools
import random
import re
import socket
import threading
import time
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

import msgspec

from bench.canned_server import EXPIRED, at_version, event, metadata_of
from bench.corpus import PHASES, encoded_pods, hexadecimal, uid
from bench.digest import digest
from bench.wire import chunk, chunks_of, pieces_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection

__all__ = ["OTHERS", "serve_large_cluster"]

OTHERS = 9
"""Number of the other collections."""

SEED = 7
EVENTS_A_STEP = 16
FIRST_LIST_VERSION = 2_000_000
_OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
_CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
_PHASE = re.compile(rb'"phase":"\w+"')
_NAME = re.compile(rb'"name":"([^"]+)"')
_UID = re.compile(rb'"uid":"[^"]+"')


class _Collection:
    """Objects of one kind, and the connections that watch them."""

    def __init__(self, objects: list[bytes]) -> None:
        self.objects = objects
        self.version = FIRST_LIST_VERSION
        self.oldest = 0
        self.metadata_only = False
        self.watches: dict[socket.socket, threading.Event] = {}

    def shown(self, obj: bytes) -> bytes:
        return metadata_of(obj) if self.metadata_only else obj

    def changes(self, rng: random.Random) -> Iterator[tuple[bytes, bytes]]:
        """Change one object, or replace one by a new one; yield types and objects."""
        index = rng.randrange(len(self.objects))
        old = self.objects[index]
        version = self.version = time.time_ns()
        if rng.random() < 1 / 9:  # a deletion and a creation, in 2 of 10 events
            yield b"DELETED", at_version(old, version)
            old = _renamed(old, rng)
            version = self.version = version + 1
            kind = b"ADDED"
        else:
            kind = b"MODIFIED"
            phase = b'"phase":"%b"' % rng.choice(PHASES).encode()
            old = _PHASE.sub(phase, old, count=1)

        new = self.objects[index] = at_version(old, version)
        yield kind, new

    def change_all(self) -> None:
        """Change every object while nobody watches; lists and watches begin anew."""
        version = self.version
        for index, obj in enumerate(self.objects):
            version += 1
            self.objects[index] = at_version(obj, version)

        self.version = self.oldest = version + 1
        self.send(chunk(EXPIRED + b"\n") + b"0\r\n\r\n")
        self.end_watches()

    def end_watches(self) -> None:
        """Forget all watches."""
        watches, self.watches = self.watches, {}
        for ended in watches.values():
            ended.set()

    def send(self, data: bytes) -> None:
        """Send bytes to all watches, and forget those that were closed."""
        for connection, ended in tuple(self.watches.items()):
            try:
                connection.sendall(data)
            except OSError:
                del self.watches[connection]
                ended.set()


def _renamed(obj: bytes, rng: random.Random) -> bytes:
    name = _NAME.search(obj)
    assert name is not None
    made = b"%b-%b" % (name[1].rpartition(b"-")[0], hexadecimal(rng, 5).encode())
    renamed = b'%b"name":"%b"%b' % (obj[: name.start()], made, obj[name.end() :])
    return _UID.sub(b'"uid":"%b"' % uid(rng).encode(), renamed, count=1)


def serve_large_cluster(pipe: Connection, pods: int, others: int) -> None:
    """Serve until killed.

    It responds to each command, a tuple, when it is done: `("events", rate, seconds)` with
    the number of events sent, `("relist",)`, and `("digests",)` with those of all
    collections by name.

    Args:
        pipe: Pipe for the URL and the mean size of a pod, then for the responses.
        pods: Number of pods.
        others: Number of the other objects, over `OTHERS` collections.
    """
    cluster = _Cluster(pods, others)
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        threading.Thread(target=cluster.accept, args=(listener,), daemon=True).start()
        size = sum(map(len, cluster.collections["pods"].objects)) / pods
        pipe.send((f"http://127.0.0.1:{listener.getsockname()[1]}", size))
        while True:
            command, *arguments = pipe.recv()
            pipe.send(getattr(cluster, command)(*arguments))


class _Cluster:
    def __init__(self, pods: int, others: int) -> None:
        self.collections = {"pods": _Collection(encoded_pods(pods))}
        each = others // OTHERS
        made = encoded_pods(each * OTHERS, seed=SEED, small=True)
        for number in range(OTHERS):
            part = made[number * each : (number + 1) * each]
            self.collections[f"others{number}"] = _Collection(part)

        self.all = list(self.collections.values())
        self._rng = random.Random(SEED)

    def accept(self, listener: socket.socket) -> None:
        while True:
            connection, _ = listener.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(
                target=self._serve, args=(connection,), daemon=True
            ).start()

    def digests(self) -> dict[str, str]:
        return {
            name: digest(map(it.shown, it.objects))
            for name, it in self.collections.items()
        }

    def relist(self) -> None:
        """Change every object, which only new lists show."""
        for it in self.all:
            it.change_all()

    def events(self, rate: float, seconds: float) -> int:
        """Send events at a rate once all collections are watched; return their number."""
        while not all(it.watches for it in self.all):
            time.sleep(0.01)

        rng, sent, began = self._rng, 0, time.monotonic()
        weights = [*itertools.accumulate(len(it.objects) for it in self.all)]
        while (now := time.monotonic() - began) < seconds:
            if sent / rate > now:
                time.sleep(sent / rate - now)

            pending: dict[int, list[bytes]] = {}
            count = 0
            while count < EVENTS_A_STEP:
                (number,) = rng.choices(range(len(self.all)), cum_weights=weights)
                collection = self.all[number]
                for kind, obj in collection.changes(rng):
                    line = event(kind, collection.shown(obj))
                    pending.setdefault(number, []).append(chunk(line))
                    count += 1

            sent += count
            for number, chunks in pending.items():
                self.all[number].send(b"".join(chunks))

        return sent

    # ------------------------------------------------------------ requests

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection, connection.makefile("rb") as reader:
                while line := reader.readline():
                    partial = False
                    while (header := reader.readline()) not in {b"\r\n", b""}:
                        partial |= b"as=PartialObjectMetadataList" in header

                    target = urlsplit(line.split(b" ")[1].decode())
                    query = dict(parse_qsl(target.query))
                    collection = self.collections[target.path.rpartition("/")[2]]
                    if "watch" in query:
                        _watch(connection, collection, query)
                    else:
                        collection.metadata_only = partial
                        # Lists are whole, but a client may look at one object.
                        one = query.get("limit") == "1"
                        if not one:
                            collection.end_watches()  # of a client that was killed

                        _list(connection, collection, 1 if one else None)
        except (BrokenPipeError, ConnectionResetError):
            pass  # a client that ended


def _watch(
    connection: socket.socket, collection: _Collection, query: dict[str, str]
) -> None:
    connection.sendall(_OK + _CHUNKED)
    if int(query.get("resourceVersion") or 0) < collection.oldest:
        connection.sendall(chunk(EXPIRED + b"\n") + b"0\r\n\r\n")
        return

    ended = threading.Event()
    collection.watches[connection] = ended
    ended.wait()


def _list(
    connection: socket.socket, collection: _Collection, limit: int | None
) -> None:
    meta = {"resourceVersion": str(collection.version)}
    head = {"kind": "List", "apiVersion": "v1", "metadata": meta}
    writes = itertools.chain(
        [msgspec.json.encode(head)[:-1] + b',"items":['],
        itertools.islice(
            itertools.chain.from_iterable(
                (b",", collection.shown(it)) for it in collection.objects[:limit]
            ),
            1,
            None,
        ),
        [b"]", b"}\n"],
    )
    for piece in pieces_of(itertools.chain([_OK + _CHUNKED], chunks_of(writes))):
        connection.sendall(piece)
