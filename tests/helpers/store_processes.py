"""Processes that use a store on disk, and do what a test says."""

from __future__ import annotations

import ast
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["StoreProcess"]

_PROGRAM = """
import logging, os, resource, sys
from pathlib import Path

from msgspec.structs import replace

from aioinformer.cache.disk.environment import Environment
from aioinformer.cache.disk.header import Header, WriterState
from aioinformer.cache.disk.locks import Locks
from aioinformer.errors import CacheError

logging.disable()
path = Path(sys.argv[1])
env = None

def limit(which, value):
    resource.setrlimit(which, (value, resource.getrlimit(which)[1]))

def start():
    global env
    env = Environment.open(path)

def look():
    global env
    env = Environment.open(path, create=False)
    return env.header.version

def open_in(name):
    global env
    (path / name).mkdir()
    env = Environment.open(path / name)

def put(key, value):
    objects = env.database("o0")
    with env.write() as txn:
        txn.put(key, value, db=objects)

def get(key):
    objects = env.database("o0")
    with env.read() as txn:
        return txn.get(key, db=objects)

def fill(count, size):
    objects = env.database("o0")
    for number in range(count):
        with env.write() as txn:
            txn.put(b"fill-%d" % number, os.urandom(size), db=objects)
            env.set_header(replace(env.header, count=number + 1))

def version(text):
    with env.write():
        env.set_header(replace(env.header, version=text))

def state(epoch):
    with env.write():
        env.set_writer_state(WriterState(pid=os.getpid(), epoch=epoch, confirmed=True))

def child():
    pid = os.fork()
    if pid == 0:
        sys.stdin.read()
        os._exit(0)
    return pid

def forked(call):
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write, answer(call).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    return os.read(read, 10_000).decode()

def answer(code):
    try:
        return repr(eval(code))
    except CacheError as exc:
        return repr(f"CacheError: {exc}")

for line in sys.stdin:
    print(answer(line), flush=True)
"""


class StoreProcess:
    """Process that evaluates expressions; a `CacheError` is returned as text.

    Args:
        path: Directory of the store.
    """

    def __init__(self, path: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def __call__(self, code: str) -> Any:
        """Evaluate code there, and return its literal result."""
        self.send(code)
        return self.result()

    def send(self, code: str) -> None:
        """Evaluate code there; `result()` returns what came of it."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{code}\n")
        self._process.stdin.flush()

    def result(self) -> Any:
        """Return the literal result of the oldest code that was sent."""
        assert self._process.stdout is not None
        return ast.literal_eval(self._process.stdout.readline())

    def kill(self) -> None:
        """Kill it as `kill -9` does."""
        self._process.kill()
        self._process.communicate()
