"""Starts a real etcd and kube-apiserver, for a command or until Ctrl-C.

    python tests/e2e/cluster.py run -- COMMAND...   with the servers' addresses in
                                                    AIOINFORMER_E2E_SERVER and others
    python tests/e2e/cluster.py up                  prints a kubeconfig, and waits
    python tests/e2e/cluster.py build               builds them, and ends

The first run builds them with Go, which takes minutes. Later, a start takes seconds.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from binaries import SetupError, prepare
from children import ending_by_signals
from control_plane import a_control_plane, environment_of, kubeconfig_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from binaries import Binaries

__all__ = ["main"]

_INTERRUPTED = 128 + signal.SIGINT

# Features that the tests compare. They act on requests that ask for them, so the others
# see a server with its defaults.
_OPTIONS = ("--feature-gates=ShardedListAndWatch=true",)

# After a Ctrl-C that the command did not get, or ignores.
_PATIENCE_SECONDS = 10.0


def main(arguments: Sequence[str]) -> int:
    """Run the command line and return the exit status."""
    options = _parser().parse_args(arguments)
    try:
        with ending_by_signals():
            binaries = prepare(os.environ)
            if options.action == "run":
                return _run(binaries, options.command)

            return _up(binaries) if options.action == "up" else 0
    except SetupError as exc:
        print(f"e2e: {exc}.", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return _INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description="A real etcd and kube-apiserver on loopback, for tests."
    )
    actions = parser.add_subparsers(dest="action", required=True)
    run = actions.add_parser("run", help="run a command beside them")
    run.add_argument("command", nargs="+")
    actions.add_parser("up", help="run them until Ctrl-C")
    actions.add_parser("build", help="only build them")
    return parser


def _run(binaries: Binaries, command: Sequence[str]) -> int:
    with a_control_plane(binaries, *_OPTIONS) as plane:
        told = environment_of(plane, binaries)
        print(f"kube-apiserver {plane.url}, etcd {plane.etcd_url}.", flush=True)
        print(f"Running {shlex.join(command)}", flush=True)
        status = _foreground(command, {**os.environ, **told})
        if failure := plane.failure():
            print(f"e2e: {failure}", file=sys.stderr)
            return status or 1

        return status


def _up(binaries: Binaries) -> int:
    with a_control_plane(binaries, *_OPTIONS) as plane:
        config = plane.folder / "kubeconfig"
        config.write_text(kubeconfig_of(plane))
        for name, value in environment_of(plane, binaries).items():
            print(f"{name}={shlex.quote(value)}")

        print(f"KUBECONFIG={shlex.quote(str(config))}")
        print("Ctrl-C stops the servers and removes these files.", flush=True)
        while not (failure := plane.failure()):
            time.sleep(0.5)

        raise SetupError(failure)


def _foreground(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run the command in the foreground; it handles Ctrl-C, and we wait.

    Raises:
        SetupError: If the command cannot be started.
    """
    try:
        child = subprocess.Popen(command, env=dict(environment))
    except OSError as exc:
        raise SetupError(f"{command[0]} cannot be run: {exc.strerror}") from exc

    try:
        return _status(child.wait())
    except KeyboardInterrupt:
        with suppress(subprocess.TimeoutExpired):
            return _status(child.wait(_PATIENCE_SECONDS))

        raise
    finally:
        _end(child)


def _end(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        child.terminate()
        try:
            with suppress(subprocess.TimeoutExpired):
                child.wait(_PATIENCE_SECONDS)
        finally:
            child.kill()
            child.wait()


def _status(code: int) -> int:
    """Return the exit status as a shell does."""
    return 128 - code if code < 0 else code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
