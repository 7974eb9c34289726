"""Builds of the contestants that are not written in Python, in a cache.

The cache is outside the checkout. It has a folder for each version of a contestant's
sources and of its compiler. A program appears there complete or not at all, so that
concurrent builds are safe.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

__all__ = ["PEERS", "BuildFailed", "built", "cache_folder"]

PEERS = Path(__file__).parents[1] / "peers"


class BuildFailed(Exception):
    """Failed build of a contestant. The message is one sentence with the reason."""


@dataclass(frozen=True, kw_only=True)
class _Language:
    """Build commands of one language.

    Attributes:
        name: Name of the language.
        tool: Program that must be on the PATH.
        version: Arguments that print its version, run beside the sources.
        build: Arguments that build there; `{scratch}` is a temporary folder,
            `{name}` the name of the program.
        environment: Environment variables, in addition to the others.
        sources: Patterns of the files that determine the result.
        product: Path of the built program in `{scratch}`.
    """

    name: str
    tool: str
    version: tuple[str, ...]
    build: tuple[str, ...]
    environment: dict[str, str]
    sources: tuple[str, ...]
    product: str


_GO = _Language(
    name="Go",
    tool="go",
    version=("env", "GOVERSION"),
    build=(
        "build",
        "-mod=readonly",
        "-buildvcs=false",
        "-ldflags=-s -w",
        "-o={scratch}/{name}",
        ".",
    ),
    # Ignore surrounding workspaces, and do not use a C compiler.
    environment={"GOWORK": "off", "CGO_ENABLED": "0"},
    sources=("*.go", "go.mod", "go.sum"),
    product="{name}",
)
_RUST = _Language(
    name="Rust",
    tool="cargo",
    version=("--version",),
    build=("build", "--release", "--locked", "--target-dir={scratch}"),
    environment={},
    sources=("src/**/*.rs", "Cargo.toml", "Cargo.lock"),
    product="release/{name}",
)
_LANGUAGES = {"client_go": _GO, "kube_rs": _RUST}


def built(name: str) -> Path:
    """Build a contestant, unless the cache has it, and return the path of the program.

    The first build takes minutes and downloads dependencies. It is announced on standard
    error, where compiler errors appear, too.

    Args:
        name: Name of its folder in `peers/`.

    Returns:
        Path of the program.

    Raises:
        BuildFailed: A tool is missing or too old, or the build failed.
    """
    language = _LANGUAGES[name]
    version = _version(name, language)
    target = cache_folder() / _key(name, language, version) / name
    if not target.exists():
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            _build(name, language, version, target)
        except OSError as error:
            raise BuildFailed(f"{name} cannot be built: {error}") from error

    return target


def cache_folder() -> Path:
    """Return the folder of built programs, outside the checkout."""
    # The XDG standard requires relative paths to be ignored.
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (
        (base if base.is_absolute() else Path.home() / ".cache")
        / "aioinformer"
        / "benchmarks"
    )


def _version(name: str, language: _Language) -> str:
    if shutil.which(language.tool) is None:
        raise BuildFailed(
            f"building {name} from source requires {language.tool}, which is not on the "
            "PATH"
        )

    # Run beside the sources, where a tool may switch to another version of itself.
    printed = _run(name, language, language.version)
    if printed.returncode:
        raise BuildFailed(f"{name} cannot be built: {_reason(printed.stdout)}")

    return printed.stdout.strip()


def _key(name: str, language: _Language, version: str) -> str:
    """Return the name of the cache folder for sources, compiler and options."""
    digest = hashlib.sha256(f"{version}\n{language}\n".encode())
    folder = PEERS / name
    found = {path for pattern in language.sources for path in folder.glob(pattern)}
    for path in sorted(found):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"{path.relative_to(folder)} {content}\n".encode())

    return digest.hexdigest()[:16]


def _build(name: str, language: _Language, version: str, target: Path) -> None:
    _say(f"Building {name} with {version}, once: this may take minutes ...")
    # On the same file system, so that the final move is atomic.
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="build-") as scratch:
        done = _run(
            name,
            language,
            tuple(it.format(scratch=scratch, name=name) for it in language.build),
        )
        if done.returncode:
            _say(done.stdout)
            raise BuildFailed(f"{name} cannot be built: {_reason(done.stdout)}")

        (Path(scratch) / language.product.format(name=name)).replace(target)


def _run(
    name: str, language: _Language, arguments: tuple[str, ...]
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [language.tool, *arguments],
        cwd=PEERS / name,
        env={**os.environ, **language.environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def _reason(output: str) -> str:
    """Return the most informative line: cargo's first error, or the last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("error")]
    return (errors or lines[-1:] or ["its compiler printed nothing"])[0]


def _say(line: str) -> None:
    print(line.rstrip(), file=sys.stderr, flush=True)
