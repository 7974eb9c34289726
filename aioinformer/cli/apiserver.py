"""`aioinformer apiserver`: the test server, in the foreground."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import shlex
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aioinformer.cli.error_messages import CommandError
from aioinformer.cli.output import counted, print_text
from aioinformer.cli.running import pause
from aioinformer.cli.workload import NAMESPACES, Workload, objects_for
from aioinformer.errors import AlreadyExists
from aioinformer.model import resources
from aioinformer.model.yaml_values import MOST_BYTES, YAMLError, decoded_yaml
from aioinformer.recording import replay
from aioinformer.testing import APIServer, User
from aioinformer.testing.replayed import ReplayedServer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioinformer.recording import Replay

__all__ = ["APIServerOptions", "serve"]


# Objects that are created before signals are handled.
OBJECTS_AT_ONCE = 200

IDLE_SECONDS = 1.0
"""Seconds after the last change of a recording at which `--until-idle` ends."""

_FOREVER = 1e9

# Prefix of the servers in kubeconfigs that we write.
_LOOPBACK = "http://127.0.0.1:"


@dataclass(frozen=True, slots=True, kw_only=True)
class APIServerOptions:
    """Options of the server."""

    port: int = 8001
    """Port of 127.0.0.1, 0 for any free one."""

    pods: int = 0
    """Initial pods, with a config map for every five and a node for every ten of them."""

    changes_per_second: float = 0.0
    """Changes of pods and config maps per second."""

    token: str | None = None
    """Bearer token that clients must send, or None."""

    users: tuple[tuple[str, User], ...] = ()
    """Tokens and users besides the administrator."""

    manifests: tuple[str, ...] = ()
    """Paths for `APIServer.load()`."""

    garbage_collector: bool = False
    """True to delete objects whose owners are gone."""

    feature_gates: Mapping[str, bool] = field(default_factory=dict)
    """Feature gates to switch."""

    kubeconfig: str | None = None
    """Path of a kubeconfig to write, or None."""

    replay: tuple[str, ...] = ()
    """Files of a recording to play, in their order; empty for none."""

    speed: float = 1.0
    """Factor of time of the recording."""

    until_idle: bool = False
    """True to play the recording without waiting, once somebody watches, and to end
    when that has been sent."""

    seconds: float | None = None
    """Seconds to serve. None for no end."""


async def serve(options: APIServerOptions) -> int:
    """Serve for the given time, or until cancelled. Return 0.

    Raises:
        CommandError: If the port is taken, the kubeconfig cannot be written or is that
            of another cluster, there are no pods to change, or users but no
            administrator.
        OptionsError: If a file cannot be loaded, or a feature gate is unknown.

    Cancellation:
        Stops it, and prints a summary. Open watches end cleanly.
    """
    if options.changes_per_second and not options.pods:
        raise CommandError("--churn needs pods to change: use --pods, too.")

    if options.users and options.token is None:
        raise CommandError(
            "--user needs an administrator, who grants permissions: pass --token, too."
        )

    if options.kubeconfig is not None:
        await asyncio.to_thread(_check_replaceable, Path(options.kubeconfig))

    users = dict(options.users)
    if len(users) < len(options.users):
        raise CommandError("two --user options have the same token: use one each.")

    server = APIServer(
        port=options.port,
        token=options.token,
        users=users,
        garbage_collector=options.garbage_collector,
        feature_gates=options.feature_gates,
    )
    loaded = []
    if options.manifests:
        loaded = await asyncio.to_thread(server.load, *options.manifests)

    async with AsyncExitStack() as stack:
        played = None
        if options.replay:
            speed = None if options.until_idle else options.speed
            opened = replay(*options.replay, speed=speed)
            played = await stack.enter_async_context(opened)

        await _listen(server, options.port)
        stack.push_async_callback(server.stop)
        return await _serve(server, options, played, loaded=len(loaded))


async def _listen(server: APIServer, port: int) -> None:
    try:
        await server.start()
    except OSError as exc:
        reason = os.strerror(exc.errno) if exc.errno else str(exc)
        raise CommandError(
            f"cannot listen on 127.0.0.1:{port}: {reason}. Use another --port, or 0 for "
            "any free one."
        ) from exc


async def _serve(
    server: APIServer,
    options: APIServerOptions,
    played: Replay | None,
    *,
    loaded: int,
) -> int:
    workload = Workload(
        server,
        objects=objects_for(pods=options.pods),
        changes_per_second=options.changes_per_second,
    )
    if options.pods:
        await _populate(server, workload)

    if options.kubeconfig is not None:
        await asyncio.to_thread(_write_kubeconfig, server, Path(options.kubeconfig))

    recorded = ReplayedServer(server)
    if played is not None:
        played.add(recorded)
        recorded.serve(it.resource for it in played.informers)

    print_text(_instructions(server.url, options, loaded=loaded))
    start = asyncio.get_running_loop().time()
    try:
        async with asyncio.TaskGroup() as group:
            if options.changes_per_second:
                changing = group.create_task(workload.run(), name="workload")
            else:
                changing = None

            playing = group.create_task(_play(server, played, options), name="replay")
            if options.until_idle:
                await asyncio.wait({playing}, timeout=options.seconds)
            else:
                await pause(options.seconds)

            playing.cancel()

            if changing is not None:
                changing.cancel()
    finally:
        seconds = asyncio.get_running_loop().time() - start
        made = counted(workload.changes + recorded.changes, "change")
        print_text(f"Stopped after {seconds:.1f} s: {made} made.")

    return 0


async def _play(
    server: APIServer, played: Replay | None, options: APIServerOptions
) -> None:
    """Play a recording, if there is one."""
    if played is None:
        return

    if options.until_idle:
        await server.until(
            lambda: any(it.verb == "watch" for it in server.requests), timeout=_FOREVER
        )

    await played.run()
    if options.until_idle:
        await asyncio.sleep(IDLE_SECONDS)
    else:
        print_text(f"Played {played.time:.1f} s of the recording. It stays as it is.")


async def _populate(server: APIServer, workload: Workload) -> None:
    for name in NAMESPACES:
        # A manifest may have created it.
        with contextlib.suppress(AlreadyExists):
            server.create(resources.NAMESPACES, {"metadata": {"name": name}})

    for number, _ in enumerate(workload.creating()):
        if number % OBJECTS_AT_ONCE == 0:
            await asyncio.sleep(0)  # for Ctrl-C: 100,000 pods take 15 s

    # Most of these objects stay, so the garbage collector need not traverse them.
    gc.collect()
    gc.freeze()


# ---------------------------------------------------------------- kubeconfigs


def _check_replaceable(path: Path) -> None:
    """Refuse to replace a kubeconfig of another cluster, or any other file.

    It may be the only copy of a user's credentials.
    """
    try:
        with path.open("rb") as file:
            document = decoded_yaml(file.read(MOST_BYTES + 1))
    except FileNotFoundError:
        return
    except (OSError, YAMLError):
        # For a device or a folder, writing fails with a reason.
        document = {} if path.is_file() else None

    if document is not None and not _is_test_server(document):
        raise CommandError(
            f"{path} exists, and is not the kubeconfig of a test server: not "
            "overwriting it. Use another path for --kubeconfig."
        )


def _is_test_server(document: Any) -> bool:
    """Return True if all clusters of a kubeconfig are on loopback."""
    try:
        servers = [it["cluster"]["server"] for it in document["clusters"]]
        return bool(servers) and all(it.startswith(_LOOPBACK) for it in servers)
    except (AttributeError, KeyError, TypeError):
        return False


def _write_kubeconfig(server: APIServer, path: Path) -> None:
    try:
        server.kubeconfig(path)
    except OSError as exc:
        raise CommandError(
            f"cannot write the kubeconfig {path}: {exc.strerror}."
        ) from exc


# ---------------------------------------------------------------- lines


def _instructions(url: str, options: APIServerOptions, *, loaded: int) -> str:
    """Return the lines that explain how to use the server."""
    path = ""
    if options.kubeconfig is not None:
        path = shlex.quote(str(Path(options.kubeconfig).absolute()))

    rate = options.changes_per_second
    changes = "1 change" if rate == 1 else f"{rate:g} changes"
    filled = f"{counted(options.pods, 'pod')}, {changes}/s"
    if options.replay:
        at = "as fast as possible" if options.until_idle else f"at {options.speed:g}x"
        filled = f"{', '.join(options.replay)} {at}"

    if loaded:
        # Without --pods, "0 pods" could be false: the files may have pods.
        others = f", {filled}" if options.pods else ""
        filled = f"{counted(loaded, 'loaded object')}{others}"

    lines = [f"Kubernetes API server for tests at {url}: {filled}."]
    if options.token is not None:
        lines += [
            "Clients must send the token. kubectl sends none over plain HTTP. Try",
            f"  aioinformer watch pods --server {url} --token ...",
        ]
        names = ", ".join(user.name for _, user in options.users)
        if names:
            lines += [
                f"Only roles grant permissions to {names}. This prints rules for them:",
                f"  aioinformer doctor pods -o rules --server {url} --token ...",
            ]

        if path:
            lines += [
                f"The kubeconfig {path} contains it:",
                f"  aioinformer watch pods -A --kubeconfig {path}",
            ]
    elif path:
        lines += [f"  export KUBECONFIG={path}", "  kubectl get pods -A"]
    else:
        lines += [f"  kubectl --server {url} get pods -A"]

    return "\n".join(lines)
