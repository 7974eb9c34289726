"""`aioinformer log`: what is in a recording."""

from __future__ import annotations

import asyncio
import re
import sys
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aioinformer import json_codec
from aioinformer._tasks import in_thread
from aioinformer.cli.columns import line_of_cells, widened
from aioinformer.cli.error_messages import CommandError
from aioinformer.cli.output import (
    counted,
    has_colors,
    one_line,
    print_error,
    write,
)
from aioinformer.cli.parameters import seconds_in
from aioinformer.cli.yaml_output import object_document
from aioinformer.controller.changed_fields import (
    changed_fields,
    field_manager,
    field_value,
    shown_field,
)
from aioinformer.errors import DecodeError
from aioinformer.model.deep_json import decode_encodable
from aioinformer.model.times import human_duration
from aioinformer.recording.history import History
from aioinformer.recording.playback import replay
from aioinformer.tables.columns import Columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from aioinformer.model import KubeObject
    from aioinformer.recording.history import Step
    from aioinformer.recording.lines import InformerLine
    from aioinformer.recording.playback import Replay

__all__ = ["LogOptions", "diff", "grep", "ls", "play", "printed", "show"]

_HEAD: Final = [
    "INFORMER",
    "OBJECTS",
    "ADDED",
    "MODIFIED",
    "DELETED",
    "RELISTS",
    "FAILURES",
]
_MOST_VALUE: Final = 60
_LINES_AT_ONCE: Final = 250


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """Options of the commands."""

    files: tuple[str, ...]
    """Files of the recording, in their order."""

    informer: str = ""
    """Name of an informer or a resource; empty for all."""

    since: str = ""
    """Time at which to begin, see `moment_of()`; empty for the beginning."""

    until: str = ""
    """Time at which to end; empty for the end."""

    output: str = ""
    """`json` for a line of JSON for each change, `yaml` for its whole state, `html` for
    a page."""


def ls(options: LogOptions) -> Iterator[str]:
    """Yield the lines of a summary.

    Raises:
        RecordingError: If it cannot be read.
    """
    history = _history(options)
    counts: dict[str, Counter[str]] = {}
    failures: dict[str, int] = {}
    last_text, ended = "", False
    for step in history.steps():
        ended = step.kind == "END" and step.informer is None
        if step.informer is not None:
            count = counts.setdefault(step.informer.name, Counter())
            count[step.kind] += 1
            if step.kind == "STATUS":
                if step.failures > failures.get(step.informer.name, 0):
                    count["FAILURES"] += 1
                    last_text = step.text

                failures[step.informer.name] = step.failures

    reading = history.reading
    header = reading.header
    assert header is not None
    size = sum(path.stat().st_size for path in map(Path, options.files))
    yield one_line(
        f"{', '.join(options.files)}: {size:,} bytes, {reading.started:%Y-%m-%d %H:%M:%S} UTC, "
        f"{human_duration(reading.end)}, by {header.program}"
    )
    redacted = reading.redacted
    hidden = [f"hidden: {', '.join(redacted)}"] if redacted else []
    if reading.hides_names:
        hidden.append("names are hashed")

    if hidden:
        yield one_line("; ".join(hidden))

    rows = [_HEAD]
    for name, count in counts.items():
        cells = [count[kind] for kind in ("ADDED", "MODIFIED", "DELETED", "RELIST")]
        objects = len(history.objects.get(name, {}))
        rows.append([one_line(name), *map(str, (objects, *cells, count["FAILURES"]))])

    widths = [0] * len(_HEAD)
    for row in rows:
        widths = widened(widths, row)

    for row in rows:
        yield line_of_cells(row, widths).rstrip()

    if last_text:
        yield one_line(f"last failure: {last_text}")

    if not ended:
        yield "It has no end: it is still being written, or its program was killed."

    yield from _damage(history)


def show(options: LogOptions, key: str = "", at: str = "") -> Iterator[str | bytes]:
    """Yield the lines of a timeline, or an object at a time.

    Args:
        options: Options of the command.
        key: Key of an object; empty for everything.
        at: Time at which to show the object as YAML; empty for its timeline.

    Raises:
        CommandError: If there is no such object.
        RecordingError: If the recording cannot be read.
    """
    history = _history(options)
    if at:
        yield from _state(history, options, key, at)
        return

    chosen = (
        step
        for step in _chosen(history, options)
        if not key or (step.obj is not None and step.obj.key == key)
    )
    first = next(chosen, None)
    if key and first is None:
        raise CommandError(f"no changes of an object {key!r} in this recording.")

    steps = chain(() if first is None else (first,), chosen)
    if options.output == "html":
        yield from page(history, key or options.files[0], steps)
        return

    for step in steps:
        yield _line(history, step, options.output)

    _warn_of_damage(history)


def grep(options: LogOptions, pattern: str) -> Iterator[str | bytes]:
    """Yield the changes whose JSON has a pattern.

    Raises:
        CommandError: If the pattern is not a regular expression.
        RecordingError: If the recording cannot be read.
    """
    try:
        search = re.compile(pattern.encode()).search
    except re.error as exc:
        raise CommandError(f"{pattern!r} is not a regular expression: {exc}.") from exc

    history = _history(options)
    for step in _chosen(history, options):
        if step.obj is not None and search(step.obj.raw):
            yield _line(history, step, options.output)

    _warn_of_damage(history)


def diff(options: LogOptions) -> Iterator[str]:
    """Yield the differences between two times.

    Raises:
        RecordingError: If the recording cannot be read.
        CommandError: If a time is invalid.
    """
    history = _history(options)
    since: float | None = None
    until = float("inf")
    first: dict[tuple[str, str], KubeObject] = {}
    now: dict[tuple[str, str], KubeObject] = {}
    for step in history.steps():
        if since is None:
            since = moment_of(options.since, history, 0.0)
            until = moment_of(options.until, history, until)

        if step.t > until:
            break

        obj, informer = step.obj, step.informer
        if obj is None or informer is None or not _is_chosen(options, informer):
            continue

        # By default, the objects that the recording begins with.
        begins = step.kind == "LISTED" if not options.since else step.t <= since
        for states in (first, now) if begins else (now,):
            if step.kind == "DELETED":
                states.pop((informer.name, obj.key), None)
            else:
                states[informer.name, obj.key] = obj
    else:
        _check_informer(history, options)

    for name, key in sorted(first.keys() | now.keys()):
        before, after = first.get((name, key)), now.get((name, key))
        if before is None:
            yield one_line(f"+ {name} {key}")
        elif after is None:
            yield one_line(f"- {name} {key}")
        elif before != after:
            yield one_line(f"~ {name} {key}")
            for it in differences(before, after):
                yield one_line(f"    {it}")

    _warn_of_damage(history)


def differences(before: KubeObject, after: KubeObject) -> list[str]:
    """Return what differs: `status.phase: "Pending" -> "Running" (kubelet)`."""
    try:
        paths = sorted(changed_fields(before, after), key=shown_field)
        old, new = (decode_encodable(it.raw)[0] for it in (before, after))
    except DecodeError as exc:
        return [f"cannot be compared: {exc}"]
    except RecursionError:
        return ["cannot be compared: nested too deeply"]

    lines = []
    for path in paths:
        values = (_short(field_value(it, path)) for it in (old, new))
        manager = field_manager(after, path)
        by = f" ({manager})" if manager else ""
        lines.append(f"{shown_field(path)}: {' -> '.join(values)}{by}")

    return lines


def moment_of(text: str, history: History, default: float) -> float:
    """Return the seconds of a time: `90`, `1m30s`, `14:05:10`, or a date with a time.

    Raises:
        CommandError: If it is none of these.
    """
    if not text:
        return default

    seconds = seconds_in(text)
    if seconds is not None:
        return seconds

    started = history.reading.started
    try:
        on_that_day = "T" not in text and "-" not in text
        full = f"{started:%Y-%m-%d}T{text}" if on_that_day else text
        moment = datetime.fromisoformat(full)
    except ValueError:
        raise CommandError(
            f"{text!r} is not a time: write 90s after the beginning, 14:05:10, or "
            "2026-01-31T14:05:10Z, in UTC."
        ) from None

    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (moment - started).total_seconds()


async def printed(lines: Iterable[str | bytes]) -> int:
    """Print lines; return 0.

    Raises:
        OSError: If writing fails.
    """
    remaining = iter(lines)
    # In a thread, as it reads files. The process exits without waiting for it.
    while portion := await in_thread(lambda: [*islice(remaining, _LINES_AT_ONCE)]):
        ended = [it + (b"\n" if isinstance(it, bytes) else "\n") for it in portion]  # type: ignore[operator]
        await write(*ended)

    return 0


async def play(options: LogOptions, speed: float) -> int:
    """Show an informer of a recording as a live table, while it is played. Return 0.

    Raises:
        CommandError: If the output is no terminal.
        OptionsError: If the recording has no such informer, or more than one.
        RecordingError: If it cannot be read.
        OSError: If writing fails.
    """
    if not sys.stdout.isatty():
        raise CommandError(
            "log play needs a terminal. `aioinformer log show` does not."
        )

    async with replay(*options.files, speed=speed) as played:
        await _shown(played, options, speed)

    return 0


async def _shown(played: Replay, options: LogOptions, speed: float) -> None:
    """Show a live table, while a recording is played."""
    import os

    from aioinformer.cli.live_table import LiveTable
    from aioinformer.cli.screen import Screen

    informer = played.informer(options.informer or None)
    resource = informer.resource
    assert resource is not None, "a replay knows its resources"
    columns = Columns(resource, wide=False, namespaces=resource.namespaced)
    title = f"{informer.name} from {options.files[0]} at {speed:g}x"
    screen = Screen(colors=has_colors(os.environ))
    table = LiveTable(informer, columns, one_line(title), screen)
    async with asyncio.TaskGroup() as group:
        running = [
            group.create_task(informer.run(), name="informer"),
            group.create_task(played.run(), name="replay"),
        ]
        await table.show()
        for task in running:
            task.cancel()


# ---------------------------------------------------------------- helpers


def _history(options: LogOptions) -> History:
    return History([*map(Path, options.files)])


def _chosen(history: History, options: LogOptions) -> Iterator[Step]:
    """Yield the changes of the chosen informer and times."""
    since: float | None = None
    until = float("inf")
    for step in history.steps():
        if since is None:
            since = moment_of(options.since, history, 0.0)
            until = moment_of(options.until, history, float("inf"))

        if step.t > until:
            return

        if step.t >= since and _is_chosen(options, step.informer):
            yield step

    _check_informer(history, options)


def _check_informer(history: History, options: LogOptions) -> None:
    """Reject the name of an informer that a whole recording does not have."""
    known = history.reading.informers
    if not any(_is_chosen(options, it) for it in known):
        names = ", ".join(repr(it.name) for it in known) or "none"
        raise CommandError(
            f"recording has no informer {options.informer!r}: it has {names}."
        )


def _damage(history: History) -> Iterator[str]:
    """Yield what could not be read so far."""
    for count, what in (
        (history.reading.unreadable, "line"),
        (history.text.skipped, "byte"),
    ):
        if count:
            yield f"{counted(count, what)} cannot be read, and are left out."


def _warn_of_damage(history: History) -> None:
    for line in _damage(history):
        print_error(line)


def _is_chosen(options: LogOptions, informer: InformerLine | None) -> bool:
    wanted = options.informer
    if not wanted:
        return True

    return informer is not None and wanted in {
        informer.name,
        informer.plural,
        informer.kind,
    }


def _state(
    history: History, options: LogOptions, key: str, at: str
) -> Iterator[str | bytes]:
    moment: float | None = None
    found: dict[str, KubeObject] = {}
    for step in history.steps():
        if moment is None:
            moment = moment_of(at, history, 0.0)

        if step.t > moment:
            break

        obj, informer = step.obj, step.informer
        if obj is None or informer is None or obj.key != key:
            continue

        if step.kind == "DELETED":
            found.pop(informer.name, None)
        elif _is_chosen(options, informer):
            found[informer.name] = obj

    if not found:
        raise CommandError(f"no object {key!r} at that time.")

    for name, obj in found.items():
        head = one_line(f"{name}, version {obj.resource_version}")
        yield f"---\n# {head}"
        yield object_document(obj).rstrip()


def _line(history: History, step: Step, output: str) -> str | bytes:
    moment = history.reading.moment(step.t)
    name = "" if step.informer is None else step.informer.name
    obj = step.obj
    if output == "json":
        body: dict[str, Any] = {
            "time": moment.isoformat(),
            "informer": name,
            "type": step.kind,
        }
        body |= {"text": step.text} if step.text else {}
        line = json_codec.dumps(body)
        return line if obj is None else b'%b,"object":%b}' % (line[:-1], obj.raw)

    head = f"{moment:%H:%M:%S.%f}"[:-3] + f"  {name}  {step.kind}"
    if obj is None:
        return one_line(f"{head}  {step.text}".rstrip())

    head += f"  {obj.key}  {obj.resource_version}"
    head += f"  ({step.text})" if step.text else ""
    if output == "yaml":
        return f"---\n# {one_line(head)}\n{object_document(obj).rstrip()}"

    lines = []
    if step.kind == "MODIFIED" and step.before is not None:
        lines = differences(step.before, obj)

    return "\n    ".join(map(one_line, [head, *lines]))


def _short(value: Any) -> str:
    text = "nothing" if value is None else json_codec.dumps(value).decode()
    return text if len(text) <= _MOST_VALUE else f"{text[: _MOST_VALUE - 3]}..."


# ---------------------------------------------------------------- pages

_STYLE: Final = """
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
details { border-left: 4px solid #8888; margin: .5rem 0; padding: .2rem .8rem; }
details.ADDED, details.LISTED { border-color: #2a8a3e; }
details.DELETED { border-color: #c0392b; }
details.MODIFIED { border-color: #2f6fb5; }
summary { cursor: pointer; }
code, pre { font: 13px/1.4 ui-monospace, monospace; overflow-wrap: anywhere; }
pre { white-space: pre-wrap; }
ul { margin: .2rem 0; }
"""


def page(history: History, title: str, steps: Iterable[Step]) -> Iterator[str]:
    """Yield the lines of a page with all states and what has changed.

    It needs no other files, and runs no scripts.
    """
    text = escape(one_line(title))
    yield "<!doctype html>"
    yield f'<html lang="en"><meta charset="utf-8"><title>{text}</title>'
    yield '<meta name="viewport" content="width=device-width">'
    yield f"<style>{_STYLE}</style><h1>{text}</h1>"
    for step in steps:
        moment = f"{history.reading.moment(step.t):%Y-%m-%d %H:%M:%S.%f}"[:-3]
        name = "" if step.informer is None else step.informer.name
        obj = step.obj
        about = step.text if obj is None else f"{obj.key} {obj.resource_version}"
        head = escape(one_line(f"{moment} {name} {step.kind} {about}"))
        yield f'<details class="{escape(step.kind)}" open><summary>{head}</summary>'
        if obj is not None:
            if step.kind == "MODIFIED" and step.before is not None:
                items = map(escape, map(one_line, differences(step.before, obj)))
                yield f"<ul>{''.join(f'<li><code>{it}</code>' for it in items)}</ul>"

            yaml = escape(object_document(obj).rstrip())
            yield f"<details><summary>whole object</summary><pre>{yaml}</pre></details>"

        yield "</details>"

    yield "</html>"
