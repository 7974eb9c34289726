"""Files of recordings: cut off, continued, damaged, rotated, full and slow disks."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import subprocess
import sys
import threading
import tracemalloc
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import zstandard
from conftest import pod
from informer_helpers import running, settle

from aioinformer import Added, Deleted, KubeObject, SharedInformer, Updated
from aioinformer.errors import DecodeError, HandlerError, RecordingError
from aioinformer.model.resources import PODS
from aioinformer.recording import log_file, record, replay
from aioinformer.recording import recorder as recorder_module
from aioinformer.recording.history import History
from aioinformer.recording.lines import (
    Header,
    InformerLine,
    Line,
    change_line,
    encoded,
    parsed,
    plain_line,
)
from aioinformer.recording.log_file import LogFile, TextReader, read_lines
from aioinformer.recording.reading import Reading
from aioinformer.recording.redaction import Redaction
from aioinformer.recording.sinks import Entry, FileSink, RingSink, Whole
from aioinformer.testing import FakeListerWatcher
from aioinformer.watch.decoding import ObjectDecoder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioinformer.recording import Recorder

TEXT = [b'{"line":%d,"filler":"%s"}\n' % (it, b"x" * (it % 50)) for it in range(200)]


def read(path: Path) -> list[bytes]:
    return [line + b"\n" for lines in read_lines(path) for line in lines if line]


def phase(name: str, text: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "status": {"phase": text}}


def files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


def written(path: Path, lines: list[bytes]) -> bytes:
    """Write lines, with a flush after each, and return the whole file."""
    file = LogFile(path)
    for line in lines:
        file.write(line)

    file.close()
    return path.read_bytes()


def test_file_is_readable_up_to_where_it_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "it.alog"
    whole = written(path, TEXT)
    assert whole.startswith(log_file._OURS)
    assert read(path) == TEXT
    assert b"".join(TEXT) == zstandard.ZstdDecompressor().stream_reader(whole).read()
    counts = []
    for size in range(0, len(whole), 7):
        path.write_bytes(whole[:size])
        found = read(path) if size >= 5 else []
        assert found == TEXT[: len(found)]
        counts.append(len(found))

    assert counts == sorted(counts)
    assert counts[-1] >= len(TEXT) - 10


def test_file_is_continued_after_it_was_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "it.alog"
    whole = written(path, TEXT)
    for size in range(20, len(whole), 13):
        path.write_bytes(whole[:size])
        before = read(path)
        written(path, TEXT[:5])
        assert read(path) == before + TEXT[:5]


def test_damaged_parts_are_skipped_up_to_the_next_frame(tmp_path: Path) -> None:
    path = tmp_path / "it.alog"
    written(path, TEXT)
    whole = written(path, TEXT[:50])
    choose = random.Random(3)
    for _ in range(100):
        damaged = bytearray(whole)
        place = choose.randrange(20, len(whole) // 3)
        damaged[place : place + 3] = choose.randbytes(3)
        path.write_bytes(damaged)
        assert read(path)[-50:] == TEXT[:50]


def test_text_does_not_depend_on_pieces(tmp_path: Path) -> None:
    whole = written(tmp_path / "it.alog", TEXT) + b"garbage"
    for size in (1, 3, 10, 1000):
        reader = TextReader()
        pieces = [whole[at : at + size] for at in range(0, len(whole), size)]
        found = b"".join(text for it in pieces for text in reader.feed(it))
        assert found + b"".join(reader.finish()) == b"".join(TEXT)
        assert reader.skipped == len(b"garbage")


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "it.alog"
    path.write_bytes(b"not a recording, but a text of some length")
    with pytest.raises(RecordingError, match="is not a recording"):
        list(History([path]).steps())

    path.write_bytes(b"")
    with pytest.raises(RecordingError, match="empty"):
        list(History([path]).steps())

    with pytest.raises(RecordingError, match="No such file"):
        list(History([tmp_path / "missing"]).steps())

    written(path, [encoded(Header(aioinformer_recording=2, started="2026-01-31"))])
    with pytest.raises(
        DecodeError, match="the format 2, and this version reads up to 1"
    ):
        list(History([path]).steps())


async def test_other_files_are_not_replayed(tmp_path: Path) -> None:
    for name, message in [("missing", "No such file"), ("empty", "is empty")]:
        (tmp_path / "empty").write_bytes(b"")
        with pytest.raises(RecordingError, match=message):
            async with replay(tmp_path / name):
                pass


def test_unreadable_lines_are_counted_and_left_out(tmp_path: Path) -> None:
    path = tmp_path / "it.alog"
    header = encoded(Header(aioinformer_recording=1, started="2026-01-31T09:00:00Z"))
    lines = [header, b"{]\n", plain_line("ADDED", 1.0, 7), plain_line("NEW", 2.0)]
    lines.append(plain_line("ADDED", 2.5))  # of no informer
    written(path, [*lines, plain_line("END", 3.0)])
    history = History([path])
    assert [it.kind for it in history.steps()] == ["NEW", "END"]
    assert history.reading.unreadable == 3
    assert history.reading.end == 3.0


def test_lines_of_impossible_times_are_unreadable(tmp_path: Path) -> None:
    path = tmp_path / "it.alog"
    late, early, west = (
        encoded(Header(aioinformer_recording=1, started=it))
        for it in (
            "9999-12-31T23:59:50Z",
            "0001-01-01T00:00:00Z",
            "0001-01-01T00:00:00+14:00",
        )
    )
    lines = [plain_line("NEW", it) for it in (1e300, 9.0, 11.0, -1e300)]
    for header in (late, early):
        path.unlink(missing_ok=True)
        written(path, [header, *lines, west, plain_line("END", 9.5)])
        history = History([path])
        times = [history.reading.moment(it.t).second for it in history.steps()]
        assert times == ([59, 59] if header is late else [9, 11, 9])
        assert history.reading.unreadable == (4 if header is late else 3)

    path.unlink()
    written(path, [west])
    with pytest.raises(DecodeError, match="begins at no time: '0001-01-01T00"):
        list(History([path]).steps())

    sink = FileSink(path, Redaction())
    sink.begin(datetime(2026, 1, 31, tzinfo=UTC))
    sink.close(1.0)


def test_line_that_is_too_long_is_unreadable(tmp_path: Path) -> None:
    path = tmp_path / "it.alog"
    header = encoded(Header(aioinformer_recording=1, started="2026-01-31T09:00:00Z"))
    long, longer = (
        plain_line("NEW", 1.0, text="x" * size * 1024 * 1024) for size in (60, 64)
    )
    written(path, [header, long, longer, plain_line("END", 3.0)])
    history = History([path])
    assert [it.kind for it in history.steps()] == ["NEW", "END"]
    assert history.reading.unreadable == 1
    assert [] in list(read_lines(path))  # readers can stop within it


def test_group_has_each_object_once(tmp_path: Path) -> None:
    path = tmp_path / "it.alog"
    header = encoded(Header(aioinformer_recording=1, started="2026-01-31T09:00:00Z"))
    informer = encoded(InformerLine(t=0, e="INFORMER", s=0, name="pods"))
    group = plain_line("LIST", 1.0, 0, n=100_002)
    first, other = (
        change_line("LISTED", 1.0, 0, b'{"metadata":{"name":"%b"}}' % it)
        for it in (b"a", b"b")
    )
    written(path, [header, informer, group, first * 100_000, b"{]\n", other])
    (happening,) = Reading().feed(chain.from_iterable(read_lines(path)))
    assert [it.obj.key for it in happening.changes] == ["a", "b"]


@pytest.mark.realtime
async def test_replay_goes_on_after_it_was_cancelled_while_it_read(
    tmp_path: Path,
) -> None:
    path = tmp_path / "it.alog"
    header = encoded(Header(aioinformer_recording=1, started="2026-01-31T09:00:00Z"))
    # As many entries as are read at once, and a later one.
    first = plain_line("NEW", 1.0) * 2000 + plain_line("NEW", 20.0)
    begin = written(path, [header, first])
    takes_long = zstandard.ZstdCompressor().compress(b"x" * 40_000_000) * 50
    path.write_bytes(begin + takes_long)
    written(path, [b"\n", plain_line("END", 30.0)])
    async with replay(path) as played:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await played.run()

        await played.run()
        assert (played.time, played.ended) == (30.0, True)


# ---------------------------------------------------------------- recorders


@asynccontextmanager
async def recorded(
    source: Any, path: Path, **options: Any
) -> AsyncIterator[tuple[SharedInformer, Recorder]]:
    informer = SharedInformer(source, name="pods")
    recorder = record(informer, path, **options)
    async with recorder, running(informer.run()):
        await informer.wait_synced(10)
        yield informer, recorder
        await settle()


def contents(*paths: Path) -> dict[str, str]:
    """Return the versions of the objects at the end of a recording."""
    history = History(paths)
    list(history.steps())
    assert not history.reading.unreadable
    return {key: it.resource_version for key, it in history.objects["pods"].items()}


def versions(informer: SharedInformer) -> dict[str, str]:
    return {it.key: it.resource_version for it in informer.indexer.list()}


async def test_recording_of_a_restarted_program_is_continued(tmp_path: Path) -> None:
    path = tmp_path / "it.alog"
    source = FakeListerWatcher(*(pod(it) for it in "abc"))
    async with recorded(source, path) as (_, recorder):
        assert not recorder.continues

    whole = path.read_bytes()
    path.write_bytes(whole[:-10])  # killed
    source.delete(pod("b"))
    source.add(pod("d"))
    async with recorded(source, path) as (informer, recorder):
        assert recorder.continues
        source.add(pod("e"))
        await settle()

    assert contents(path) == versions(informer)
    steps = [it.kind for it in History([path]).steps() if it.obj is not None]
    assert steps == ["LISTED"] * 3 + ["DELETED", "ADDED", "ADDED"]


def test_files_with_little_but_objects_are_not_full_at_once(tmp_path: Path) -> None:
    sink = FileSink(tmp_path / "it.alog", Redaction(), rotate_bytes=100)
    sink.begin(datetime(2026, 1, 31, tzinfo=UTC))
    noise = random.Random(1).randbytes(4000).hex()
    objects = [KubeObject.of(pod(noise[at : at + 40])) for at in range(0, 4000, 40)]
    line = InformerLine(t=0, e="INFORMER", s=0, name="pods", plural="pods")
    sink.write([Entry(0, 0, line), Entry(0, 0, Whole(objects, "1"))])
    for round_ in range(3):
        changes = 0
        while not sink.full:
            changes += 1
            name = noise[changes * 7 :][:40]
            sink.write(
                [Entry(round_ + changes / 1e4, 0, [Added(KubeObject.of(pod(name)))])]
            )

        assert changes > 50
        sink.rotate(float(round_ + 1))
        sink.write([Entry(round_ + 1, 0, Whole(objects, "1"))])
        assert not sink.full

    sink.close(4.0)
    *full, last = files(tmp_path)
    assert len(full) == 3
    first = next(it for it in read(last) if b'"SNAPSHOT"' in it)
    assert first.startswith(b'{"t":0.0,')  # of the file, not of the recorder
    times = [it.t for it in History([*full, last]).steps()]
    assert times == sorted(times)
    assert times[-1] == 4.0


def test_continued_files_are_rotated_by_their_whole_size_and_age(
    tmp_path: Path,
) -> None:
    path = tmp_path / "it.alog"
    started = datetime(2026, 1, 31, tzinfo=UTC)
    line = InformerLine(t=0, e="INFORMER", s=0, name="pods", plural="pods")
    sizes: list[int] = []

    def run(**options: Any) -> None:
        nonlocal started
        started += timedelta(seconds=1)
        sink = FileSink(path, Redaction(), **options)
        sink.begin(started)
        noise = random.Random(len(sizes)).randbytes(2000).hex()
        objects = [KubeObject.of(pod(noise[at : at + 40])) for at in range(0, 4000, 40)]
        sink.write([Entry(0, 0, line), Entry(0, 0, Whole(objects, "1"))])
        sink.close(1.0)
        sizes.append(path.stat().st_size)

    for _ in range(6):
        run(rotate_bytes=8000)

    assert len(files(tmp_path)) == 3
    assert max(sizes) < 16_000
    started += timedelta(hours=2)
    run(rotate_seconds=3600)
    assert len(files(tmp_path)) == 4
    run(rotate_seconds=3600)
    assert len(files(tmp_path)) == 4
    first, *_ = files(tmp_path)
    assert first.name == "it-20260131T000001.000000Z.alog"


async def test_other_files_are_not_continued(tmp_path: Path) -> None:
    path = tmp_path / "it.alog"
    path.write_text("notes")
    with pytest.raises(RecordingError, match="is not a recording"):
        async with record(SharedInformer(FakeListerWatcher()), path):
            pass

    assert path.read_text() == "notes"
    informers = [SharedInformer(FakeListerWatcher(), name=it) for it in "ab"]
    async with record(informers[0], tmp_path / "one.alog") as recorder:
        with pytest.raises(RecordingError, match="another recorder writes to"):
            await record(informers[1], recorder.path).start()

    path.write_text("")
    async with recorded(FakeListerWatcher(pod("a")), path):
        pass

    assert list(contents(path)) == ["default/a"]


FORK = """
import os, sys, time
from pathlib import Path
from aioinformer.recording.log_file import LogFile
file = LogFile(Path(sys.argv[1]))
ready, told = os.pipe()
child = os.fork()
if not child:
    os.write(told, b"x")
    time.sleep(60)
os.read(ready, 1)
file.close()
LogFile(Path(sys.argv[1]))
os.kill(child, 9)
"""


def test_fork_of_a_program_does_not_keep_its_file(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORK, str(tmp_path / "it.alog")],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(os.name != "posix", reason="files have no modes")
def test_continued_file_is_readable_by_its_owner_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, link = tmp_path / "it.alog", tmp_path / "link.alog"
    link.symlink_to(path)
    for mode in (0o644, 0o660, 0o600, 0o602):
        path.touch()
        path.chmod(mode)
        written(link, TEXT[:1])
        assert path.stat().st_mode & 0o777 == 0o600

    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(RecordingError, match=f"belongs to the user {owner}, who could"):
        LogFile(path)

    assert read(path) == TEXT[:1] * 4
    device = Path(os.devnull)
    before = device.stat().st_mode
    LogFile(device).close()
    assert device.stat().st_mode == before


def test_oldest_files_are_deleted_whatever_their_names_say(tmp_path: Path) -> None:
    for hour in range(3):  # before the clock was set back
        path = tmp_path / f"it-20990101T0{hour}0000.000000Z.alog"
        path.touch()
        os.utime(path, (hour, hour))

    sink = FileSink(tmp_path / "it.alog", Redaction(), keep=2)
    sink.begin(datetime(2026, 1, 31, tzinfo=UTC))
    sink.rotate(1.0)
    sink.close(2.0)
    assert [it.name for it in files(tmp_path)] == [
        "it-20260131T000000.000000Z.alog",
        "it-20990101T020000.000000Z.alog",
        "it.alog",
    ]


def test_other_files_are_not_deleted(tmp_path: Path) -> None:
    for name in ("it-east-20260131T090000.000000Z.alog", "it-Zurich.alog"):
        (tmp_path / name).touch()

    sink = FileSink(tmp_path / "it.alog", Redaction(), keep=1)
    sink.begin(datetime(2026, 1, 31, tzinfo=UTC))
    for t in (1.0, 2.0, 3.0):
        sink.rotate(t)

    sink.close(4.0)
    assert [it.name for it in files(tmp_path)] == [
        "it-20260131T000002.000000Z.alog",
        "it-Zurich.alog",
        "it-east-20260131T090000.000000Z.alog",
        "it.alog",
    ]


def test_group_with_an_unreadable_line_keeps_its_other_lines(tmp_path: Path) -> None:
    def line(kind: str, name: str, informer: int = 0) -> bytes:
        body = KubeObject.of({"metadata": {"name": name, "resourceVersion": "1"}})
        return change_line(kind, 1.0, informer, body.raw)

    nested = b'{"metadata":{"name":"deep"},"x":%b%b}' % (b"[" * 2000, b"]" * 2000)
    lines = [
        encoded(Header(aioinformer_recording=1, started="2026-01-31T09:00:00Z")),
        *(
            encoded(InformerLine(t=0, e="INFORMER", s=number, name=name, plural="pods"))
            for number, name in enumerate(("pods", "others"))
        ),
        plain_line("LIST", 1.0, 0, n=4),
        line("LISTED", "a"),
        b'{"t":1,"s":0,"e":"LISTED","o":{]}\n',
        change_line("LISTED", 1.0, 0, nested),
        line("LISTED", "b"),
        plain_line("SYNCED", 1.0, 0),
        plain_line("RELIST", 2.0, 0, n=3),
        line("MODIFIED", "a"),
        line("ADDED", "other", 1),  # the rest of the relist is missing
        line("ADDED", "c"),
    ]
    path = tmp_path / "it.alog"
    written(path, [b"".join(lines)])
    history = History([path])
    list(history.steps())
    assert history.reading.unreadable == 1
    assert sorted(history.objects["pods"]) == ["a", "b", "c", "deep"]
    assert list(history.objects["others"]) == ["other"]


@pytest.mark.realtime
@pytest.mark.looptime(False)
async def test_full_files_are_renamed_and_each_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "it.alog"
    source = FakeListerWatcher(*(pod(f"p{it}") for it in range(50)))
    monkeypatch.setattr(recorder_module, "FLUSH_SECONDS", 0.01)
    async with recorded(source, path, rotate_bytes=4000, keep=2) as (informer, _):
        for number in range(300):
            noise = random.Random(number).randbytes(40).hex()
            changed = {"metadata": {"name": f"p{number % 50}"}, "spec": {"x": noise}}
            source.modify(changed)
            await asyncio.sleep(0.002)

    full = [it for it in files(tmp_path) if it != path]
    assert len(full) == 2
    assert contents(*full, path) == versions(informer)
    assert contents(path) == versions(informer)
    changes = [it for it in History([*full, path]).steps() if it.kind == "MODIFIED"]
    numbers = [int(it.obj.resource_version) for it in changes if it.obj is not None]
    assert numbers == list(range(numbers[0], numbers[-1] + 1))


async def test_second_shutdown_waits_for_the_first(tmp_path: Path) -> None:
    informer = SharedInformer(FakeListerWatcher(*(pod(f"p{it}") for it in range(500))))
    recorder = record(informer, tmp_path / "it.alog")
    ended: list[bytes] = []
    async with running(informer.run()):
        await recorder.start()
        await informer.wait_synced(10)
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(recorder.shutdown()).add_done_callback(
                    lambda _: ended.append(read(recorder.path)[-1])
                )

    assert len(ended) == 3
    assert all(b'"END"' in it for it in ended)


async def test_full_disk_ends_the_recording_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = FakeListerWatcher(pod("a"))
    recorder = record(SharedInformer(source), Path("/dev/full"))
    with pytest.raises(RecordingError, match="/dev/full: No space left on device"):
        await recorder.start()


@pytest.mark.realtime
@pytest.mark.looptime(False)
async def test_full_disk_is_logged_and_informers_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(recorder_module, "FLUSH_SECONDS", 0.01)
    source = FakeListerWatcher(pod("a"))
    failing = False
    write = LogFile.write

    def full(file: LogFile, text: bytes) -> None:
        if failing:
            raise OSError(28, "No space left on device")

        write(file, text)

    monkeypatch.setattr(LogFile, "write", full)
    informer = SharedInformer(source, name="pods")
    recorder = record(informer, tmp_path / "it.alog")
    await recorder.start()
    async with running(informer.run()):
        await informer.wait_synced(10)
        failing = True
        source.add(pod("b"))
        async with asyncio.timeout(10):
            while recorder.failure is None:
                await asyncio.sleep(0.01)

        source.add(pod("c"))
        await settle()
        assert len(informer.indexer) == 3
        with pytest.raises(RecordingError, match="No space left"):
            await recorder.save()

    with pytest.raises(RecordingError, match="No space left"):
        await recorder.shutdown()

    assert caplog.text.count("recording to") == 1
    assert not [it for it in caplog.records if it.levelno > logging.ERROR]


@pytest.mark.realtime
@pytest.mark.looptime(False)
async def test_slow_disk_costs_changes_and_no_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "it.alog"
    monkeypatch.setattr(recorder_module, "FLUSH_SECONDS", 0.01)
    monkeypatch.setattr(recorder_module, "MOST_BEHIND", 50)
    source = FakeListerWatcher(pod("a"))
    go = threading.Event()
    go.set()
    write = LogFile.write

    def slow(file: LogFile, text: bytes) -> None:
        go.wait(30)
        write(file, text)

    monkeypatch.setattr(LogFile, "write", slow)
    async with recorded(source, path) as (informer, recorder):
        await asyncio.sleep(0.05)
        go.clear()
        for number in range(300):
            source.add(pod(f"p{number}"))
            if number % 20 == 0:
                await asyncio.sleep(0.02)

        await asyncio.sleep(0.05)
        assert recorder.dropped == 1
        other = SharedInformer(FakeListerWatcher(pod("x")), name="others")
        recorder.add(other)
        assert len(recorder._pending) < 10
        go.set()
        await asyncio.sleep(0.1)
        source.delete(pod("p7"))
        await asyncio.sleep(0.05)

    assert contents(path) == versions(informer)
    history = History([path])
    assert list(history.steps())
    assert [it.name for it in history.reading.informers] == ["pods", "others"]
    texts = [it.text for it in History([path]).steps() if it.kind == "SNAPSHOT"]
    assert len(texts) == 1
    assert "were dropped" in texts[0]


# ---------------------------------------------------------------- the last minutes


class Ring:
    """Ring of pods, at times of its own."""

    def __init__(self, folder: Path, seconds: float = 600) -> None:
        self.sink = RingSink(folder / "it.alog", Redaction(), seconds)
        self.sink.begin(datetime(2026, 1, 31, tzinfo=UTC))
        self.objects: dict[str, KubeObject] = {}
        self.version = 0
        self.put(0, InformerLine(t=0, e="INFORMER", s=0, name="pods", plural="pods"))

    def put(self, t: float, what: Any) -> None:
        self.sink.write([Entry(t, 0, what)])

    def set(self, name: str, **more: Any) -> Any:
        """Store the next version of an object, and return its notification."""
        self.version += 1
        metadata = {"name": name, "resourceVersion": str(self.version)}
        old = self.objects.get(name)
        self.objects[name] = new = KubeObject.of({"metadata": metadata} | more)
        return Added(new) if old is None else Updated(old, new)

    def delete(self, name: str) -> Any:
        self.version += 1
        return Deleted(self.objects.pop(name))

    def saved(self, t: float) -> tuple[list[str], list[str]]:
        """Return the objects at the beginning, and the changes after it."""
        path = self.sink.path.with_name(f"{t}.alog")
        whole = Whole(list(self.objects.values()), str(self.version))
        self.sink.save(path, t, {0: whole})
        history = History([path])
        steps = [it for it in history.steps() if it.obj is not None]
        assert history.objects["pods"] == self.objects
        shown = [(it.kind, f"{it.obj.key}{it.obj.resource_version}") for it in steps]  # type: ignore[union-attr]
        listed = sorted(name for kind, name in shown if kind == "LISTED")
        return listed, [f"{kind} {name}" for kind, name in shown[len(listed) :]]


def test_last_minutes_begin_with_the_objects_of_that_time(tmp_path: Path) -> None:
    ring = Ring(tmp_path)
    ring.put(0, Whole([it.obj for it in map(ring.set, "abcde")], "5"))
    assert ring.saved(1) == (["a1", "b2", "c3", "d4", "e5"], [])
    ring.put(2, [ring.set("a"), ring.delete("b")])  # 6, 7
    ring.put(300, [ring.set("a"), ring.set("c"), ring.set("f"), ring.delete("d")])
    later = ["MODIFIED a8", "MODIFIED c9", "ADDED f10", "DELETED d4"]
    assert ring.saved(301) == (
        ["a1", "b2", "c3", "d4", "e5"],
        ["MODIFIED a6", "DELETED b2", *later],
    )
    ring.put(650, [ring.set("e")])  # forgets the first two
    assert ring.saved(651) == (["a6", "c3", "d4", "e5"], [*later, "MODIFIED e12"])
    ring.put(5000, [ring.set("e")])
    assert ring.saved(5001) == (["a8", "c9", "e12", "f10"], ["MODIFIED e13"])
    ring.put(5002, Whole(list(ring.objects.values()), "13", "dropped"))
    assert ring.saved(5003) == (["a8", "c9", "e13", "f10"], [])


def test_ring_begins_with_a_version_that_its_changes_follow(tmp_path: Path) -> None:
    ring = Ring(tmp_path, 60)
    ring.put(0, Whole([ring.set("a").obj], "1"))
    for t in range(1, 200):
        ring.put(t, [ring.set("a")])

    ring.saved(200)
    lines = [parsed(it) for it in read(tmp_path / "200.alog")]
    (snapshot,) = [it for it in lines if isinstance(it, Line) and it.e == "SNAPSHOT"]
    (listed,) = [it for it in lines if isinstance(it, Line) and it.e == "LISTED"]
    changes = [it for it in lines if isinstance(it, Line) and it.e == "MODIFIED"]
    assert 57 <= len(changes) <= 64
    assert b'"resourceVersion":"%d"' % int(snapshot.version) in bytes(listed.o)
    assert b'"resourceVersion":"%d"' % (int(snapshot.version) + 1) in bytes(
        changes[0].o
    )


def test_ring_is_compressed_before_it_is_old(tmp_path: Path) -> None:
    ring = Ring(tmp_path, 24 * 3600)
    ring.put(0, Whole([ring.set("a").obj], "1"))
    tracemalloc.start()
    try:
        for t in range(1, 20_000):
            ring.put(t / 20, [ring.set("a", filler="x" * 4000)])

        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert held < 20e6, "of 80 MB"
    before, changes = ring.saved(1000)
    assert (len(before), len(changes)) == (1, 19_999)


def test_line_breaks_within_objects_do_not_matter(tmp_path: Path) -> None:
    ring = Ring(tmp_path, 60)
    ring.set("a")
    raw = b'{\r\n"metadata":{\r"name":"a","resourceVersion":"1"}\n}'
    ring.objects["a"] = ObjectDecoder(PODS).decode(raw)
    for t in (1, 20, 30):  # in a part that is compressed
        ring.put(t, [Added(ring.objects["a"])])

    assert ring.saved(30) == ([], ["ADDED a1"] * 3)


async def test_last_minutes_are_saved_while_informers_run(tmp_path: Path) -> None:
    source = FakeListerWatcher(*(pod(it) for it in "abc"))
    options = {"last": 600}
    async with recorded(source, tmp_path / "it.alog", **options) as (informer, it):
        source.modify(phase("a", "Running"))
        source.delete(pod("b"))
        await settle()
        path = await it.save()
        assert path.name.startswith("it-20")
        assert it.path == path
        assert contents(path) == versions(informer)
        other = await it.save(tmp_path / "other.alog")
        assert contents(other) == versions(informer)

        with pytest.raises(RecordingError, match=r"other.alog: File exists"):
            await it.save(other)

        with pytest.raises(RecordingError, match="No such file"):
            await it.save(tmp_path / "missing" / "it.alog")


@pytest.mark.realtime
@pytest.mark.looptime(False)
async def test_object_that_keeps_failing_makes_it_save(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder_module, "SAVE_SECONDS", 0.5)
    source = FakeListerWatcher(pod("a"), pod("b"))
    options = {"last": 600}
    async with recorded(source, tmp_path / "it.alog", **options) as (_, it):
        failures = [
            HandlerError("reconcile", "sites", KubeObject.of(pod(name)))
            for name in "ab"
        ]
        for _ in range(4):
            for failure in failures:
                it.on_error(failure)

        assert not files(tmp_path)
        notification = Updated(KubeObject.of(pod("c")), KubeObject.of(pod("c")))
        for _ in range(5):
            it.on_error(HandlerError("handler", "print", notification))

        it.save_soon()  # too soon
        await it.save(tmp_path / "after")  # the thread has written the other before
        assert len(files(tmp_path)) == 2
        await asyncio.sleep(0.6)
        it.on_error(HandlerError("reconcile", "sites", KubeObject.of(pod("a"))))

    assert len(files(tmp_path)) == 3
    assert caplog.text.count("recording saved to") == 2
