"""`aioinformer cache`: the stores on disk of informers, beside the processes that use them.

It takes no part in a cache: it writes nothing, and readers and writers do not notice it.
"""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aioinformer.cli import FAILED_CHECK, TROUBLE
from aioinformer.cli.columns import line_of_cells, widened
from aioinformer.cli.error_messages import CommandError
from aioinformer.cli.output import counted, one_line, print_error, print_text
from aioinformer.cli.yaml_output import document
from aioinformer.errors import CacheError
from aioinformer.model.deep_json import decode_encodable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aioinformer.cache.disk.environment import Environment
    from aioinformer.cache.disk.header import Header, WriterState
    from aioinformer.cache.disk.records import Records

__all__ = ["ls", "show", "stats", "verify", "verify_here"]

_DATA = "data.mdb"
_AS_USER = "Run this as the user of the program."
_BLOCK_BYTES = 512
_HIDDEN = "(hidden)"
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_MOST_PROBLEMS = 20
_HEAD = ["INFORMER", "OBJECTS", "VERSION", "WRITER", "READERS", "SIZE"]


async def ls(directory: str) -> int:
    """Print a table of the stores in a directory, or the keys of one.

    Returns 0, or 2 if a store cannot be opened.

    Raises:
        CommandError: If there is none.
    """
    path = Path(directory)
    if _is_store(path):
        with _opened(path) as store:
            for key in sorted(store.contents().objects):
                print_text(one_line(key))

        return 0

    rows = [_HEAD]
    status = 0
    for it in _stores(path):
        try:
            with _opened(it) as store:
                rows.append([*map(one_line, store.row())])
        except CommandError as exc:
            print_error(str(exc))
            status = TROUBLE

    widths: list[int] = [0] * len(_HEAD)
    for row in rows:
        widths = widened(widths, row)

    for row in rows:
        print_text(line_of_cells(row, widths).rstrip())

    return status


async def show(key: str, directory: str, *, secrets: bool) -> int:
    """Print an object as YAML, from each store that has it; return 0.

    Raises:
        CommandError: If no store has it.
    """
    shown = 0
    for path in _stores(Path(directory)):
        with _opened(path) as store:
            found = store.contents().objects.get(key)
            if found is None:
                continue

            body, truncated = decode_encodable(found.raw)
            if not secrets and store.has_secrets:
                _hide(body)

            header = store.env.header
            state = "" if store.confirmed else ", unconfirmed"
            head = one_line(f"{path.name}, version {header.version}{state}")
            print_text(f"---\n# {head}")
            print_text(document(body, truncated=truncated).rstrip())
            shown += 1

    if not shown:
        raise CommandError(f"{directory}: no store has an object {key!r}.")

    return 0


async def stats(directory: str) -> int:
    """Print the state of each store; return 0, or 2 if one cannot be opened.

    Raises:
        CommandError: If there is none.
    """
    status = 0
    for number, path in enumerate(_stores(Path(directory))):
        if number:
            print_text("")

        try:
            with _opened(path) as store:
                for line in store.lines():
                    print_text(one_line(line))
        except CommandError as exc:
            print_error(str(exc))
            status = TROUBLE

    return status


async def verify(directory: str) -> int:
    """Check each store in a process of its own; return 0, or 1 after a failed check.

    LMDB may end the process that reads a damaged file.

    Raises:
        CommandError: If there is none.
    """
    status = 0
    for path in _stores(Path(directory)):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "aioinformer", "cache", "verify", "--here"),
            str(path),
        )
        ended = await process.wait()
        if ended < 0:
            print_error(
                f"{path}: LMDB ended the process that read it (signal {-ended}): the "
                "file is damaged. Stop the programs that use it, and remove the directory."
            )

        status = max(status, FAILED_CHECK if ended else 0)

    return status


async def verify_here(directory: str) -> int:
    """Check one store in this process; return 0, or 1 after printing what is wrong."""
    from aioinformer.cli.cache_checks import problems

    path = Path(directory)
    with _opened(path) as store:
        found = list(problems(store.env, store.records))
        objects, entries = store.env.header.count, store.journal_entries

    for line in found[:_MOST_PROBLEMS]:
        print_text(one_line(f"{path.name}: {line}"))

    if len(found) > _MOST_PROBLEMS:
        more = counted(len(found) - _MOST_PROBLEMS, "more problem")
        print_text(f"{path.name}: and {more}")

    if not found:
        checked = f"{counted(objects, 'object')}, {_entries(entries)} of the journal"
        print_text(f"{path.name}: {checked}: no problem found")

    return FAILED_CHECK if found else 0


# ---------------------------------------------------------------- stores


def _is_store(path: Path) -> bool:
    try:
        return (path / _DATA).is_file()
    except OSError as exc:  # such as a missing permission
        raise CommandError(f"{path}: {exc.strerror}. {_AS_USER}") from exc


def _stores(path: Path) -> Sequence[Path]:
    """Return the directories of all stores: of one informer each."""
    if _is_store(path):
        return [path]

    try:
        found = sorted(it for it in path.iterdir() if _is_store(it))
    except OSError as exc:
        advice = f" {_AS_USER}" if isinstance(exc, PermissionError) else ""
        raise CommandError(f"{path}: {exc.strerror}.{advice}") from exc

    if not found:
        raise CommandError(
            f"{path}: there is no cache. Pass the directory that the program passes as "
            "cache_dir, or one of those in it."
        )

    return found


@contextmanager
def _opened(path: Path) -> Iterator[_Store]:
    from aioinformer.cache.disk.environment import Environment
    from aioinformer.cache.disk.records import Records
    from aioinformer.informer.cached.place import cache_root

    cache_root(path)  # raises if a package is missing: then no object can be read
    try:
        env = Environment.open(path, create=False)
        try:
            yield _Store(path, env, Records(env))
        finally:
            env.close()
    except CacheError as exc:
        raise CommandError(f"{exc}.") from exc


@dataclass(frozen=True, slots=True)
class _Store:
    """One store, opened to be read."""

    path: Path
    env: Environment
    records: Records

    def contents(self) -> Any:
        """Return its objects."""
        from aioinformer.cache.disk.contents import DiskContents

        return DiskContents(self.env, self.records, {}, lambda failure: None)

    @property
    def has_secrets(self) -> bool:
        """True if its objects are Secrets."""
        # Not by the name of the directory, which may be a copy.
        return "secrets" in self.env.header.selection.split("\n")[:2]

    @property
    def writer(self) -> WriterState:
        """State of its writer."""
        return self.env.writer_state

    @property
    def confirmed(self) -> bool:
        """True if a living writer has found that it agrees with the server."""
        writer = self.writer
        vouches = writer.vouches(time.monotonic())
        return vouches and self.env.is_of_writer(writer)

    @property
    def journal_entries(self) -> int:
        """Number of entries in the journal."""
        return self.env.header.last - self.env.header.first + 1

    @property
    def size(self) -> int:
        """Bytes on the disk. The file is sparse."""
        files = (it for it in self.path.rglob("*") if it.is_file())
        return sum(it.stat().st_blocks * _BLOCK_BYTES for it in files)

    def readers(self) -> dict[str, int]:
        """Return how many entries of the journal each reader has not read, by name."""
        from aioinformer.cache.disk.readers import Readers

        positions = Readers(self.path / "readers").positions()
        last = self.env.header.last
        return {name: max(0, last - it) for name, it in sorted(positions.items())}

    def row(self) -> list[str]:
        """Return the cells of the table of all stores."""
        header = self.env.header
        return [
            self.path.name,
            str(header.count),
            header.version or "-",
            _short(self.writer),
            str(len(self.readers())),
            _in_bytes(self.size),
        ]

    def lines(self) -> Iterator[str]:
        """Yield the lines of its state."""
        header, writer, size = self.env.header, self.writer, self.size
        yield f"{self.path.name}:"
        # Empty selectors are names without a value.
        parts = [it for it in header.selection.split("\n") if it and it[-1] != " "]
        selection = ", ".join(parts)
        yield f"  selection:  {selection or '-'}"
        yield f"  objects:    {_objects(header)}"
        each = (
            f", {size / header.count:,.0f} bytes for each object"
            if header.count
            else ""
        )
        yield f"  size:       {_in_bytes(size)}{each}"
        yield f"  generation: {header.generation}"
        yield f"  indexes:    {', '.join(sorted(header.indexes)) or '-'}"
        yield f"  transform:  {header.transform or '-'}"
        yield f"  cluster:    {header.cluster or 'unknown'}"
        yield f"  writer:     {_described(writer)}"
        yield f"  takeovers:  {max(0, writer.epoch - 1)}"
        numbers = f", {header.first} to {header.last}" if self.journal_entries else ""
        yield f"  journal:    {_entries(self.journal_entries)}{numbers}"
        readers = self.readers()
        yield f"  readers:    {len(readers)}"
        for name, lag in readers.items():
            yield f"    {name}: {_entries(lag)} behind"

        for process in writer.stalled_readers:
            yield f"    process {process} has not ended a read: the file grows"


def _objects(header: Header) -> str:
    if not header.listed:
        return "no complete list yet"

    return f"{header.count:,} at version {header.version}"


def _entries(number: int) -> str:
    return f"{number:,} {'entry' if number == 1 else 'entries'}"


def _short(writer: WriterState) -> str:
    if writer.ended or not writer.pid:
        return "-"

    silent = writer.silence(time.monotonic())
    return f"{writer.pid} (silent)" if silent else str(writer.pid)


def _described(writer: WriterState) -> str:
    if not writer.pid:
        return "none yet"

    if writer.ended:
        return f"none; process {writer.pid} has ended in order"

    since = _seconds_since(writer)
    state = "confirmed" if writer.confirmed else "unconfirmed"
    phase = f"{writer.phase}, {state}" if writer.phase else state
    text = f"process {writer.pid}, {phase}, last seen {since:.1f} s ago"
    return f"{text}; {writer.error}" if writer.error else text


def _seconds_since(writer: WriterState) -> float:
    return max(0.0, time.monotonic() - writer.heartbeat)


def _in_bytes(size: int) -> str:
    for unit, bytes_ in (("GiB", 2**30), ("MiB", 2**20)):
        if size >= bytes_:
            return f"{size / bytes_:.1f} {unit}"

    return f"{size / 2**10:.0f} KiB"


def _hide(body: dict[str, Any]) -> None:
    """Replace the data of a Secret."""
    for field in ("data", "stringData"):
        if isinstance(values := body.get(field), dict):
            body[field] = dict.fromkeys(values, _HIDDEN)

    annotations = body.get("metadata", {}).get("annotations") or {}
    if _LAST_APPLIED in annotations:
        annotations[_LAST_APPLIED] = _HIDDEN
