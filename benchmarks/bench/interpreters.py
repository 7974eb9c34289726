"""Versions of Python, each with a virtual environment in the cache of built contestants."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from bench.builds import cache_folder

__all__ = ["VERSIONS", "Interpreter", "interpreters"]

ROOT = Path(__file__).parents[2]
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
NEEDED = ("uvloop", "uvicorn")
PRINT_VERSION = "import platform; print(platform.python_version())"


@dataclass(frozen=True, kw_only=True)
class Interpreter:
    """One Python with aioinformer of this checkout, and with uvloop.

    Attributes:
        version: Version without the patch: "3.13".
        exact: Full version: "3.13.0".
        path: Program in its virtual environment.
    """

    version: str
    exact: str
    path: Path


def interpreters() -> list[Interpreter]:
    """Return the versions of Python that this machine has, each ready to run.

    A missing environment is created, which takes seconds and downloads the dependencies.
    A missing version is reported on standard error.

    Raises:
        CalledProcessError: An environment cannot be created.
    """
    found = []
    for version in VERSIONS:
        program = _program(version)
        if program is None:
            print(f"Python {version} is not on the PATH", file=sys.stderr)
        else:
            found.append(_prepared(version, program))

    return found


def _program(version: str) -> str | None:
    """Return a program that works; a shim of pyenv may have no Python behind it."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    candidates = [
        shutil.which(f"python{version}"),
        *sorted(pyenv.glob(f"versions/{version}.*/bin/python{version}")),
    ]
    for it in candidates:
        if it is not None and _output(it, "-c", PRINT_VERSION):
            return str(it)

    return None


def _prepared(version: str, program: str) -> Interpreter:
    exact = _output(program, "-c", PRINT_VERSION)
    key = hashlib.sha256(f"{ROOT}\n{exact}\n".encode())
    for name in ("pyproject.toml", "constraints.txt"):
        key.update((ROOT / name).read_bytes())

    folder = cache_folder() / f"python-{version}-{key.hexdigest()[:16]}"
    python = folder / "bin" / "python"
    ready = folder / "ready"
    if not ready.exists():
        print(f"Setting up Python {exact}, once ...", file=sys.stderr, flush=True)
        # Some systems have no pip for each version. This one's pip installs for others.
        make = [program, "-m", "venv", "--clear", "--without-pip", str(folder)]
        subprocess.run(make, check=True)
        pip = [
            sys.executable,
            "-m",
            "pip",
            "--python",
            str(python),
            "install",
            "--quiet",
        ]
        pinned = ["--constraint", str(ROOT / "constraints.txt")]
        subprocess.run([*pip, *pinned, "--editable", str(ROOT), *NEEDED], check=True)
        ready.touch()

    return Interpreter(version=version, exact=exact, path=python)


def _output(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip()
