"""Recordings on a real server: kills, lost history and relists, without secrets."""

from __future__ import annotations

import asyncio
import json
import os
import random
import secrets
import signal
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from bench.builds import built
from bench.digest import digest
from disclosures import RECORD, secret
from processes import start
from scenes import (
    Churn,
    Contents,
    change,
    client_of,
    config_map,
    create,
    following,
    fresh,
    remove,
    same,
    until,
)
from test_scenario_leaders import kubeconfig
from wire import proxying

from aioinformer import SharedInformer
from aioinformer.errors import ResourceExpired
from aioinformer.model.resources import EVENTS, PODS
from aioinformer.recording import Digest, record, replay
from aioinformer.recording.history import History
from aioinformer.recording.log_file import read_lines
from aioinformer.testing import APIServer, FakeListerWatcher
from aioinformer.testing.replayed import ReplayedServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    import aiohttp
    from contract_servers import ServerUnderTest
    from scenes import Recovery

pytest_plugins = ["scenario_servers"]
pytestmark = [pytest.mark.e2e, pytest.mark.realtime, pytest.mark.looptime(False)]


async def replayed(path: Path) -> tuple[str, int, Contents]:
    """Play a recording; return digest and number of notifications, and the objects."""
    async with replay(path) as played:
        informer = played.informer()
        told = Digest()
        registration = informer.add_event_handler(on_event=told)
        running = asyncio.create_task(informer.run())
        await played.run()
        await asyncio.sleep(0.5)  # until the store has what the watch has
        await until(lambda: not registration.depth)
        running.cancel()
        await asyncio.wait({running})

    return told.hexdigest(), told.count, contents(informer)


def contents(informer: SharedInformer) -> Contents:
    found = informer.indexer.list()
    return {it.key: (it.uid, it.resource_version) for it in found}


def published(path: Path) -> bytes:
    """Return the text of a recording, and add it to what is searched for secrets."""
    text = b"\n".join(line for lines in read_lines(path) for line in lines)
    assert text
    folder = os.environ.get(RECORD)
    if folder:
        (Path(folder) / f"{secrets.token_hex(8)}.log").write_bytes(text)

    return text


@pytest.mark.timeout(300)
async def test_relist_after_lost_history_is_replayed_as_it_was(
    own: ServerUnderTest, recovery: Callable[[str], Recovery], tmp_path: Path
) -> None:
    path, place, file = own.path("events"), own.namespace, tmp_path / "it.alog"

    def event(name: str) -> dict[str, Any]:
        regarding = {"kind": "Pod", "namespace": place, "name": "web"}
        return {
            "metadata": {"name": name},
            "involvedObject": regarding,
            "reason": "Tested",
        }

    async with own.session() as http, proxying(own.url) as proxy:
        await create(http, path, [event(f"old-{n}") for n in range(10)])
        client = client_of(own, url=proxy.url)
        async with following(client, EVENTS, namespace=place) as it:
            told = Digest()
            async with record(it.informer, file):
                registration = it.informer.add_event_handler(on_event=told)
                await same(it, http, path)
                await create(http, path, [event(f"more-{n}") for n in range(5)])
                await same(it, http, path)
                proxy.break_off()
                await create(http, path, [event(f"new-{n}") for n in range(10)])
                await remove(http, f"{path}/old-7")
                await own.compact()
                await until(lambda: it.informer.status.failures > 0)
                proxy.refusing = False
                async with recovery("compacted"):
                    await same(it, http, path)

                await remove(http, f"{path}/old-3")
                await same(it, http, path)
                await until(lambda: not registration.depth)

            assert it.failed(ResourceExpired)
            expected = told.hexdigest(), told.count, it.stored

    assert await replayed(file) == expected
    kinds = [it.kind for it in await asyncio.to_thread(steps, file)]
    assert "RELIST" in kinds
    await asyncio.to_thread(published, file)


def steps(path: Path) -> list[Any]:
    return list(History([path]).steps())


@asynccontextmanager
async def recorder(config: Path, namespace: str, file: Path) -> AsyncIterator[Any]:
    command = ("record", "configmaps", "secrets", "-n", namespace, "-o", str(file))
    environment = {"KUBECONFIG": str(config)}
    async with start("-m", "aioinformer", *command, environment=environment) as process:
        await process.line("Recording")
        yield process


@pytest.mark.timeout(300)
async def test_recording_of_killed_recorders_ends_with_the_state_of_the_server(
    server: ServerUnderTest, http: aiohttp.ClientSession, tmp_path: Path
) -> None:
    config, file = tmp_path / "kubeconfig", tmp_path / "it.alog"
    config.write_text(kubeconfig(server))
    path = server.path("configmaps")
    hidden = [secret(f"marker-{secrets.token_hex(16)}") for _ in range(3)]
    confidential = [
        {"metadata": {"name": f"secret-{number}"}, "stringData": {"key": it}}
        for number, it in enumerate(hidden)
    ]
    churn = Churn(http, path)
    for kill in (True, True, False):
        async with recorder(config, server.namespace, file) as process:
            await churn.go(60)
            if kill:
                process.interrupt(signal.SIGKILL)
                await process.end()
                await churn.go(10)  # which nobody records
                continue

            await create(http, server.path("secrets"), confidential)
            await change(http, f"{path}/{churn.names[0]}", "last")
            await create(http, path, [config_map("witness")])
            await asyncio.sleep(2.5)  # for the last flush
            async with process.interrupted():
                pass

    def last() -> tuple[Contents, list[str]]:
        history = History([file])
        texts = [it.kind for it in history.steps()]
        (name,) = [it for it in history.objects if it.startswith("configmaps")]
        assert not history.reading.unreadable
        found = {
            key: (it.uid, it.resource_version)
            for key, it in history.objects[name].items()
        }
        return found, texts

    found, kinds = await asyncio.to_thread(last)
    assert found == await fresh(http, path)
    assert kinds[-1] == "END"
    text = await asyncio.to_thread(published, file)
    assert text.count(b'"kind":"Secret"') >= 3
    assert not [it for it in hidden if it.encode() in text]


# ------------------------------------------------------------ other clients


async def recorded_pods(path: Path) -> None:
    """Record pods that come, change and go, also while nobody watches."""
    rng = random.Random(1)
    source = FakeListerWatcher(*({"metadata": {"name": f"p{it}"}} for it in range(30)))
    informer = SharedInformer(source, name="pods")
    names = [f"p{it}" for it in range(30)]
    async with record(informer, path):
        running = asyncio.create_task(informer.run())
        await informer.wait_synced(10)
        for number in range(300):
            name = rng.choice(names)
            if rng.random() < 0.1:
                names.remove(name)
                source.delete({"metadata": {"name": name}})
                names.append(f"new{number}")
                source.add({"metadata": {"name": names[-1]}})
            else:
                phase = rng.choice(["Pending", "Running", "Failed"])
                body = {"metadata": {"name": name}, "status": {"phase": phase}}
                source.modify(body)

            if number == 150:
                source.gone()

            if number % 10 == 0:
                await asyncio.sleep(0.01)

        await informer.wait_for_version(source.resource_version, 30)
        running.cancel()
        await asyncio.wait({running})


@pytest.mark.timeout(300)
async def test_client_go_has_the_same_objects_at_each_checkpoint_of_a_replay(
    tmp_path: Path,
) -> None:
    path = tmp_path / "it.alog"
    await recorded_pods(path)
    program = await asyncio.to_thread(built, "client_go")
    moments = [it.t for it in await asyncio.to_thread(steps, path)]
    for share in (0.3, 0.6, 1.0):
        checkpoint = moments[int(share * (len(moments) - 1))]
        async with APIServer(auto_namespaces=True) as server, replay(path) as played:
            target = ReplayedServer(server)
            played.add(target)
            while (step := await played.step()) is not None and step.kind != "SYNCED":
                pass

            listed = target.changes
            # How many changes follow is known after a replay to another server.
            async with replay(path) as ahead:
                counted = ReplayedServer(APIServer(auto_namespaces=True))
                ahead.add(counted)
                await ahead.run(until=checkpoint)

            command = (program, "--mode", "typed", server.url)
            events = str(counted.changes - listed)
            process = await asyncio.create_subprocess_exec(
                *command, "--events", events, stdout=asyncio.subprocess.PIPE
            )
            await server.until(
                lambda: any("/bench/go" in it.path for it in server.requests),
                timeout=60,
            )
            await played.run(until=checkpoint)
            output, _ = await process.communicate()
            (end,) = [
                it for it in map(json.loads, output.splitlines()) if it["at"] == "end"
            ]
            pods = [json.dumps(it).encode() for it in server.objects(PODS)]
            assert len(pods) == 30
            assert end["digest"] == digest(pods), checkpoint
