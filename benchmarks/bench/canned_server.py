"""A server of prepared bytes.

Benchmarks measure the client, so this server answers lists from prepared bytes: in pages,
whole or as a streamed list. It splits them into chunks as kube-apiserver does. It holds
each watch open until a start signal. It runs in a process of its own, with a thread for
each connection. At the end it knows the state that a client must hold; for a client
that requested metadata, that is the metadata.

All collections are the same: `/api/v1/pods` and any other path. Further paths:

    GET /bench/go?watches=N       send the changes once N watches (default 1) are open
    GET /bench/relist?changed=F   change a fraction of the pods, and expire every watch,
                                  including later ones from an older version
    GET /bench/state              number of pods, and the digest of all
    GET /bench/requests           number of lists and watches so far
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import random
import socket
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

from bench.corpus import encoded_pods
from bench.digest import digest
from bench.protobuf import as_protobuf
from bench.wire import chunk, chunks_of, pieces_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["Changes", "canned_server"]

LISTED_VERSION = 2_000_000
CHECK_SECONDS = 1.0
DRAWN = 3
"""Seed of the changes."""

_VERSION = b'"resourceVersion":"'
_SPEC = b',"spec":{'
_OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
_OK_PROTOBUF = _OK.replace(b"json", b"vnd.kubernetes.protobuf")
_CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"


@dataclass(frozen=True, kw_only=True)
class Changes:
    """Events that a watch gets after its start signal.

    Attributes:
        count: Number of changes, of random pods.
        a_chunk: Changes in one HTTP chunk.
        rate: Changes per second; None for as fast as possible. At a rate, each
            version is the time of its sending, by the wall clock in nanoseconds, so
            that the receiver knows the latency.
    """

    count: int = 0
    a_chunk: int = 16
    rate: float | None = None


@contextmanager
def canned_server(
    pods: list[bytes],
    changes: Changes | None = None,
    *,
    content_length: bool = False,
    protobuf: bool = False,
) -> Iterator[str]:
    """Serve pods in a process of its own.

    Args:
        pods: Pods, as from `bench.corpus.encoded_pods`.
        changes: Changes after the list; None for none.
        content_length: True to send lists with their length instead of in chunks.
        protobuf: True to answer with protobuf, encoded in advance: without pages, without
            relists, and without a rate of changes.

    Yields:
        Address, as `http://127.0.0.1:PORT`.

    Raises:
        RuntimeError: The process ended early, and has written the reason to stderr.
    """
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        # A forked child shares the pods, which are not created twice.
        context = multiprocessing.get_context("fork")
        ready = context.Event()

        def serve() -> None:
            server = _Server(pods, changes or Changes(), content_length)
            if protobuf:
                server.encode()

            server.serve(listener, ready)

        child = context.Process(target=serve, daemon=True)
        child.start()
        try:
            while not ready.wait(CHECK_SECONDS):
                if not child.is_alive():
                    raise RuntimeError("the canned server died before it was ready")

            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            child.kill()
            child.join()


def compact(value: Any) -> bytes:
    """Encode JSON as a server does."""
    return json.dumps(value, separators=(",", ":")).encode()


def at_version(pod: bytes, version: int) -> bytes:
    """Return a changed pod."""
    start = pod.index(_VERSION) + len(_VERSION)
    end = pod.index(b'"', start)
    return b"%b%d%b" % (pod[:start], version, pod[end:])


def metadata_of(pod: bytes) -> bytes:
    """Return the metadata of a pod, as in a list of `PartialObjectMetadata`."""
    return pod[: pod.index(_SPEC)] + b"}"


def event(kind: bytes, pod: bytes) -> bytes:
    """Return a line of a watch."""
    head = b'{"type":"%b","object":{"kind":"Pod","apiVersion":"v1",' % kind
    return b"%b%b}\n" % (head, pod[1:])


def bookmark(version: int) -> bytes:
    """Return the end of a streamed list."""
    marks = {"k8s.io/initial-events-end": "true"}
    meta = {"resourceVersion": str(version), "annotations": marks}
    pod = {"kind": "Pod", "apiVersion": "v1", "metadata": meta}
    return compact({"type": "BOOKMARK", "object": pod}) + b"\n"


EXPIRED = compact(
    {
        "type": "ERROR",
        "object": {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "message": "too old resource version",
            "reason": "Expired",
            "code": 410,
        },
    }
)

_END = chunk(EXPIRED + b"\n") + b"0\r\n\r\n"

# Discovery, for clients that look up resources before they list.
DOCUMENTS = {
    "/version": {"major": "1", "minor": "36", "gitVersion": "v1.36.0"},
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
    "/api/v1": {
        "kind": "APIResourceList",
        "groupVersion": "v1",
        "resources": [
            {
                "name": "pods",
                "singularName": "pod",
                "namespaced": True,
                "kind": "Pod",
                "verbs": ["get", "list", "watch"],
            }
        ],
    },
    # Its uid tells a cluster from others.
    "/api/v1/namespaces/kube-system": {
        "kind": "Namespace",
        "apiVersion": "v1",
        "metadata": {
            "name": "kube-system",
            "uid": "0b9c1a52-6c2a-4a57-9a2e-3f2d8f5f0c11",
            "resourceVersion": "1",
        },
    },
}


class _Server:
    def __init__(
        self, pods: list[bytes], changes: Changes, content_length: bool
    ) -> None:
        self._pods = list(pods)
        self._changes = changes
        self._content_length = content_length
        self._version = LISTED_VERSION
        self._sent = LISTED_VERSION
        self._oldest = 0  # a watch from an older version is expired
        self._metadata_only = False
        self._requests = {"lists": 0, "watches": 0}
        self._drawn = random.Random(DRAWN)
        # Open watches, and the event that ends each.
        self._watches: dict[socket.socket, threading.Event] = {}
        # Pods to change with their new states, and the same as events.
        self._script: list[tuple[int, bytes]] = []
        self._events: list[bytes] = []
        self._chunks: list[bytes] = []
        # The first list in protobuf, and the same as events.
        self._listed: list[bytes] = []
        self._streamed: list[bytes] = []
        if changes.rate is None:
            self._prepare()

    def serve(self, listener: socket.socket, ready: Any) -> None:
        ready.set()
        while True:
            connection, _ = listener.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(
                target=self._connection, args=(connection,), daemon=True
            ).start()

    def _prepare(self) -> None:
        """Encode the changes in advance."""
        for number in range(self._changes.count):
            index = self._drawn.randrange(len(self._pods))
            pod = at_version(self._pods[index], LISTED_VERSION + 1 + number)
            self._script.append((index, pod))
            self._events.append(event(b"MODIFIED", pod))

        self._cut()

    def _cut(self) -> None:
        size = self._changes.a_chunk
        self._chunks = [
            chunk(b"".join(self._events[start : start + size]))
            for start in range(0, len(self._events), size)
        ]

    def encode(self) -> None:
        """Encode the first list and the changes as protobuf."""
        listed = b"".join(self._writes(self._pods, None))
        streamed = [*self._initial_events()]
        written, *events = as_protobuf([listed, *streamed, *self._events])
        joined = [*map(b"".join, events)]
        self._listed = written
        self._streamed, self._events = joined[: len(streamed)], joined[len(streamed) :]
        self._cut()

    # ------------------------------------------------------------ requests

    def _connection(self, connection: socket.socket) -> None:
        try:
            with connection, connection.makefile("rb") as reader:
                while line := reader.readline():
                    while (header := reader.readline()) not in {b"\r\n", b""}:
                        if b"as=PartialObjectMetadataList" in header:
                            self._metadata_only = True

                    target = urlsplit(line.split(b" ")[1].decode())
                    query = dict(parse_qsl(target.query))
                    self._answer(connection, target.path.rstrip("/"), query)
        except (BrokenPipeError, ConnectionResetError):
            pass  # a stopped client closes the connection

    def _answer(
        self, connection: socket.socket, path: str, query: dict[str, str]
    ) -> None:
        if path == "/bench/go":
            self._go(int(query.get("watches", 1)))
            self._document(connection, {})
        elif path == "/bench/relist":
            self._change(float(query["changed"]))
            self._document(connection, {})
        elif path == "/bench/state":
            state = {
                "objects": len(self._pods),
                "digest": digest(self._shown(self._pods)),
            }
            self._document(connection, state)
        elif path == "/bench/requests":
            self._document(connection, self._requests)
        elif path in DOCUMENTS:
            self._document(connection, DOCUMENTS[path])
        elif query.get("watch") in {"1", "true", "True"}:
            self._requests["watches"] += 1
            self._watch(connection, query)
        else:
            self._requests["lists"] += "continue" not in query
            self._list(connection, query)

    def _document(self, connection: socket.socket, value: Any) -> None:
        body = compact(value)
        connection.sendall(_OK + b"Content-Length: %d\r\n\r\n%b" % (len(body), body))

    def _list(self, connection: socket.socket, query: dict[str, str]) -> None:
        # A server with a watch cache does not page version 0.
        pages = "limit" in query and query.get("resourceVersion") != "0"
        start = int(query.get("continue", 0))
        end = start + int(query["limit"]) if pages else len(self._pods)
        following = str(end) if end < len(self._pods) else None
        items = self._shown(self._pods[start:end])
        writes = self._listed or self._writes(items, following)
        head = _OK_PROTOBUF if self._listed else _OK
        if self._content_length:
            head += b"Content-Length: %d\r\n\r\n" % sum(map(len, writes))
            parts: Iterable[bytes] = [head, *writes]
        else:
            parts = itertools.chain([head + _CHUNKED], chunks_of(writes))

        for piece in pieces_of(parts):
            connection.sendall(piece)

    def _writes(self, items: list[bytes], following: str | None) -> list[bytes]:
        """Return what kube-apiserver writes for a list, call by call."""
        meta = {"resourceVersion": str(self._version)}
        if following is not None:
            meta["continue"] = following

        head = compact({"kind": "PodList", "apiVersion": "v1", "metadata": meta})
        separated = [part for item in items for part in (b",", item)][1:]
        return [head[:-1] + b',"items":[', *separated, b"]", b"}\n"]

    def _shown(self, pods: list[bytes]) -> list[bytes]:
        return [*map(metadata_of, pods)] if self._metadata_only else pods

    # ------------------------------------------------------------ watches

    def _watch(self, connection: socket.socket, query: dict[str, str]) -> None:
        """Open a watch, and hand it over to the thread that sends the changes."""
        connection.sendall((_OK_PROTOBUF if self._listed else _OK) + _CHUNKED)
        streamed = query.get("sendInitialEvents") == "true"
        self._requests["lists"] += streamed
        version = int(query.get("resourceVersion") or self._oldest)
        if version < self._oldest and not streamed:
            connection.sendall(_END)
            return

        if streamed:
            # As real servers do, one chunk for each event.
            for line in self._streamed or self._initial_events():
                connection.sendall(chunk(line))

        ended = threading.Event()
        self._watches[connection] = ended
        ended.wait()

    def _initial_events(self) -> Iterator[bytes]:
        yield from (event(b"ADDED", pod) for pod in self._pods)
        yield bookmark(self._version)

    def _go(self, watches: int) -> None:
        while len(self._watches) < watches:
            time.sleep(0.001)

        send = self._send_script if self._changes.rate is None else self._send_at_rate
        threading.Thread(target=send, args=(list(self._watches),), daemon=True).start()

    def _send_script(self, connections: list[socket.socket]) -> None:
        for index, pod in self._script:
            self._pods[index] = pod

        self._sent += len(self._script)
        for data in self._chunks:
            for connection in connections:
                connection.sendall(data)

    def _send_at_rate(self, connections: list[socket.socket]) -> None:
        assert self._changes.rate is not None
        size = self._changes.a_chunk
        started = time.monotonic()
        for number in range(0, self._changes.count, size):
            wait = started + number / self._changes.rate - time.monotonic()
            if wait > 0:
                time.sleep(wait)

            lines = []
            for _ in range(min(size, self._changes.count - number)):
                index = self._drawn.randrange(len(self._pods))
                self._sent = time.time_ns()
                self._pods[index] = at_version(self._pods[index], self._sent)
                lines.append(event(b"MODIFIED", self._pods[index]))

            data = chunk(b"".join(lines))
            for connection in connections:
                connection.sendall(data)

    def _change(self, share: float) -> None:
        """Switch to another state, which only a new list shows."""
        self._version = max(self._version, self._sent) + 1
        self._oldest = self._version
        every = round(1 / share)
        for index in range(0, len(self._pods), every):
            self._version += 1
            self._pods[index] = at_version(self._pods[index], self._version)

        watches, self._watches = self._watches, {}
        for connection, ended in watches.items():
            connection.sendall(_END)
            ended.set()


if __name__ == "__main__":
    with canned_server(encoded_pods(1000), Changes(count=1000)) as address:
        print(address, flush=True)
        threading.Event().wait()
