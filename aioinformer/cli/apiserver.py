"""`aioinformer apiserver`: the API server of the tests, in the foreground."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aioinformer.cli.error_messages import CommandError
from aioinformer.cli.output import say
from aioinformer.cli.running import pause
from aioinformer.cli.workload import NAMESPACES, Workload, objects_for
from aioinformer.errors import AioInformerError, AlreadyExists
from aioinformer.model import resources
from aioinformer.model.resource import Resource
from aioinformer.model.resources import CUSTOM_RESOURCE_DEFINITIONS as DEFINITIONS
from aioinformer.model.yaml_values import (
    MOST_BYTES,
    YAMLError,
    decoded_yaml,
    decoded_yamls,
)
from aioinformer.testing import APIServer

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["APIServerOptions", "create_all", "serve"]


# Where the servers of our kubeconfigs are, and nobody else's.
_LOOPBACK = "http://127.0.0.1:"


@dataclass(frozen=True, slots=True, kw_only=True)
class APIServerOptions:
    """What to serve, and for how long."""

    port: int = 8001
    """Of 127.0.0.1; 0 for any free one."""

    pods: int = 0
    """Pods to begin with; there is a config map for every five of them, and a node for
    every ten."""

    changes_per_second: float = 0.0
    """Changes of pods and config maps."""

    token: str | None = None
    """What requests must bear; None if they need nothing."""

    manifests: tuple[str, ...] = ()
    """YAML files of definitions and objects to begin with."""

    kubeconfig: str | None = None
    """A file to write; None for none."""

    seconds: float | None = None
    """For how long it serves; None for ever."""


async def serve(options: APIServerOptions) -> int:
    """Serve until the time is over; returns 0.

    Raises:
        CommandError: If the port is taken, if the kubeconfig cannot be written or is
            another cluster's, if there are no pods that could be changed, or if a file
            holds what cannot be created.

    Cancellation:
        The way to stop it, where it has no end: it then tells what it has done. Open
        watches end cleanly.
    """
    if options.changes_per_second and not options.pods:
        raise CommandError("--churn has no pods to change: give --pods, too.")

    if options.kubeconfig is not None:
        await asyncio.to_thread(_check_ours, Path(options.kubeconfig))

    server = APIServer(port=options.port, token=options.token)
    for path in options.manifests:
        await asyncio.to_thread(create_all, server, path)

    await _listen(server, options.port)
    try:
        return await _play(server, options)
    finally:
        await server.stop()


async def _listen(server: APIServer, port: int) -> None:
    try:
        await server.start()
    except OSError as exc:
        reason = os.strerror(exc.errno) if exc.errno else str(exc)
        raise CommandError(
            f"port {port} of 127.0.0.1 cannot be used: {reason}. Choose another one "
            "with --port; 0 takes any that is free."
        ) from exc


async def _play(server: APIServer, options: APIServerOptions) -> int:
    workload = Workload(
        server,
        objects=objects_for(pods=options.pods),
        changes_per_second=options.changes_per_second,
    )
    if options.pods:
        _populate(server, workload)

    if options.kubeconfig is not None:
        await asyncio.to_thread(_write_kubeconfig, server, Path(options.kubeconfig))

    say(_greeting(server.url, options))
    start = asyncio.get_running_loop().time()
    try:
        async with asyncio.TaskGroup() as group:
            if options.changes_per_second:
                changing = group.create_task(workload.run(), name="workload")
            else:
                changing = None

            await pause(options.seconds)
            if changing is not None:
                changing.cancel()
    finally:
        seconds = asyncio.get_running_loop().time() - start
        say(f"Stopped after {seconds:.1f} s: {workload.changes} changes of our own.")

    return 0


def _populate(server: APIServer, workload: Workload) -> None:
    for name in NAMESPACES:
        # A file may have created it.
        with contextlib.suppress(AlreadyExists):
            server.create(resources.NAMESPACES, {"metadata": {"name": name}})

    workload.populate()
    # It stays, mostly: each full collection would look through all of it for nothing.
    gc.collect()
    gc.freeze()


# ---------------------------------------------------------------- kubeconfigs


def _check_ours(path: Path) -> None:
    """Refuse to replace a file that is not the kubeconfig of such a server.

    It may be the only one with somebody's credentials.
    """
    try:
        with path.open("rb") as file:
            document = decoded_yaml(file.read(MOST_BYTES + 1))
    except FileNotFoundError:
        return
    except (OSError, YAMLError):
        # What a device or a folder is, writing tells.
        document = {} if path.is_file() else None

    if document is not None and not _is_ours(document):
        raise CommandError(
            f"{path} exists, and is not the kubeconfig of such a server: it is left as "
            "it is. Give another path to --kubeconfig."
        )


def _is_ours(document: Any) -> bool:
    """Whether all clusters of a kubeconfig are servers of this kind, on loopback."""
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
            f"the kubeconfig {path} cannot be written: {exc.strerror}."
        ) from exc


# ---------------------------------------------------------------- lines


def _greeting(url: str, options: APIServerOptions) -> str:
    """What it is, and how to talk to it: several lines."""
    path = ""
    if options.kubeconfig is not None:
        path = shlex.quote(str(Path(options.kubeconfig).absolute()))

    filled = f"{options.pods} pods, {options.changes_per_second:g} changes/s"
    lines = [f"A Kubernetes API server for tests, {url}: {filled}."]
    if options.token is not None:
        lines += [
            "Requests must bear the token. kubectl sends none over plain HTTP; try",
            f"  aioinformer watch pods --server {url} --token ...",
        ]
        if path:
            lines += [
                f"It is in the kubeconfig {path}, which was written:",
                f"  aioinformer watch pods -A --kubeconfig {path}",
            ]
    elif path:
        lines += [f"  export KUBECONFIG={path}", "  kubectl get pods -A"]
    else:
        lines += [f"  kubectl --server {url} get pods -A"]

    return "\n".join(lines)


def create_all(server: APIServer, path: str) -> int:
    """Create what a file holds, in its order; returns how much it was.

    Raises:
        CommandError: If it cannot be read, or something in it cannot be created.
    """
    try:
        decoded: list[Any] = decoded_yamls(_text(Path(path)))
        bodies = [it for it in decoded if it is not None]
        for body in bodies:
            known = {(it.api_version, it.kind): it for it in _resources(server)}
            server.create(known[body["apiVersion"], body["kind"]], body)
    except OSError as exc:
        raise CommandError(f"{path} cannot be read: {exc.strerror}.") from exc
    except YAMLError as exc:
        raise CommandError(f"{path} is no YAML: {' '.join(str(exc).split())}") from exc
    except (KeyError, TypeError) as exc:
        raise CommandError(
            f"{path} holds what no served kind is: {exc}. Each document names its "
            "apiVersion and kind; definitions stand before their objects."
        ) from exc
    except AioInformerError as exc:
        raise CommandError(f"{path}: {exc}") from exc

    return len(bodies)


def _text(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MOST_BYTES + 1)


def _resources(server: APIServer) -> Iterator[Resource]:
    names = (name for name in resources.__all__ if name.isupper())
    yield from (getattr(resources, name) for name in names)
    for body in server.objects(DEFINITIONS):
        spec: dict[str, Any] = body["spec"]
        named, scoped = spec["names"], spec["scope"] == "Namespaced"
        for it in spec["versions"]:
            group, version = spec["group"], it["name"]
            yield Resource(group, version, named["plural"], named["kind"], scoped)
