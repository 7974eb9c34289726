"""Builds the contestants that are not in Python, once, into a cache.

The cache is outside of the checkout: a folder for each content of a contestant's sources
and version of its compiler. A program appears there complete or not at all, so two builds
at a time do no harm.
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

__all__ = ["PEERS", "BuildFailed", "built"]

PEERS = Path(__file__).parents[1] / "peers"


class BuildFailed(Exception):
    """A contestant cannot be had here; the message is one sentence that says why."""


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
    # No workspace around it, and no need of a C compiler.
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
    """Build a contestant, unless that was done before.

    The first time takes minutes, and fetches what it depends on; that it does so is said
    on standard error, and so is all that a failing compiler says.

    Args:
        name: Of its folder in `peers/`.

    Returns:
        The program.

    Raises:
        BuildFailed: A tool is missing or too old, or the build has failed.
    """
    language = _LANGUAGES[name]
    version = _version(name, language)
    target = _cache_folder() / _key(name, language, version) / name
    if not target.exists():
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            _build(name, language, version, target)
        except OSError as error:
            raise BuildFailed(f"{name} cannot be built: {error}") from error

    return target


def _cache_folder() -> Path:
    # As its standard demands, a relative path there counts for nothing.
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (
        (base if base.is_absolute() else Path.home() / ".cache")
        / "aioinformer"
        / "benchmarks"
    )


def _version(name: str, language: _Language) -> str:
    if shutil.which(language.tool) is None:
        raise BuildFailed(
            f"{name} is built from source by {language.name}, and there is no "
            f"{language.tool} on the PATH"
        )

    # Where the sources are: there a tool may become a newer version of itself.
    told = _run(name, language, language.version)
    if told.returncode:
        raise BuildFailed(f"{name} cannot be built: {_reason(told.stdout)}")

    return told.stdout.strip()


def _key(name: str, language: _Language, version: str) -> str:
    """The name of the cache's folder for these sources, this compiler and its options."""
    digest = hashlib.sha256(f"{version}\n{language}\n".encode())
    folder = PEERS / name
    found = {path for pattern in language.sources for path in folder.glob(pattern)}
    for path in sorted(found):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"{path.relative_to(folder)} {content}\n".encode())

    return digest.hexdigest()[:16]


def _build(name: str, language: _Language, version: str, target: Path) -> None:
    _say(f"Building {name} with {version}, once: this may take minutes ...")
    # On the same file system, so that moving it there is one step.
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
    """The line that tells most: cargo's first error, or the last that there is."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("error")]
    return (errors or lines[-1:] or ["its compiler says nothing"])[0]


def _say(line: str) -> None:
    print(line.rstrip(), file=sys.stderr, flush=True)
