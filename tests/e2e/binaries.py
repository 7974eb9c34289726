"""Builds etcd, kube-apiserver and kubectl from source, once, into a cache.

The Go modules in `modules/` name the versions, with every dependency pinned. The cache
is outside the checkout, with one folder per content of the modules and version of Go. A
binary appears in it complete or not at all.

`elector/` is a separate module with its own cache folder. It is a program of ours, and
a change to it must not cause another build of a kube-apiserver.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from children import in_background

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "ELECTOR",
    "MODULES",
    "Binaries",
    "SetupError",
    "cache_folder",
    "cache_key",
    "find_go",
    "flags_for",
    "go_needed",
    "prepare",
    "version_of",
]

MODULES = Path(__file__).parent / "modules"
ELECTOR = Path(__file__).parent / "elector"

# The dependency of a module that is the program itself.
_SUBJECTS = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-apiserver": "k8s.io/kubernetes",
    "kubectl": "k8s.io/kubectl",
}
_KUBERNETES = {"kube-apiserver", "kubectl"}
# The packages with the version, in Kubernetes and in its clients.
_STAMPS = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")

# In any environment: do not query the checkout, and need no C compiler.
_GO_ENVIRONMENT = {"GOWORK": "off", "CGO_ENABLED": "0"}
_GO_FLAGS = ("-mod=readonly", "-buildvcs=false")

# Leave the other processes their share of the CPU.
_NICENESS = "10"


class SetupError(Exception):
    """The servers cannot be built or started; the message is for the user."""


@dataclass(frozen=True, slots=True)
class Binaries:
    """Paths of the programs."""

    etcd: Path
    kube_apiserver: Path
    keys: Path
    kubectl: Path
    elector: Path


def go_needed(go_mod: str) -> str:
    """Return the version of Go that a `go.mod` requires, such as `"1.26.0"`."""
    found = re.search(r"^go (\S+)$", go_mod, re.MULTILINE)
    assert found, "a go.mod names a version of Go"
    return found[1]


def version_of(name: str, go_mod: str) -> str:
    """Return the version that a module builds, as the program reports it.

    The libraries of Kubernetes count from 0 where Kubernetes itself counts from 1.
    """
    if name not in _SUBJECTS:
        return ""

    subject = re.escape(_SUBJECTS[name])
    found = re.search(rf"^(?:require|\t)\s*{subject} (v\S+)$", go_mod, re.MULTILINE)
    assert found, f"the module {name} requires {_SUBJECTS[name]}"
    version = found[1]
    return re.sub(r"^v0\.", "v1.", version) if name in _KUBERNETES else version


def flags_for(name: str, go_mod: str) -> list[str]:
    """Return the flags of `go build`: no debugging tables, and the version.

    Without a version, `kubectl version` fails, because it cannot parse the one in the
    source.
    """
    link = ["-s", "-w"]
    if name in _KUBERNETES:
        version = version_of(name, go_mod)
        major, minor, _ = version.removeprefix("v").split(".", 2)
        facts = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
        for stamp in _STAMPS:
            link += [f"-X {stamp}.{fact}={value}" for fact, value in facts.items()]

    return [*_GO_FLAGS, f"-ldflags={' '.join(link)}"]


def cache_key(files: Mapping[str, bytes], go_version: str) -> str:
    """Return the name of the cache folder for these sources and this Go."""
    digest = hashlib.sha256(f"{go_version}\n".encode())
    for name in sorted(files):
        content = hashlib.sha256(files[name]).hexdigest()
        digest.update(f"{name} {content}\n".encode())

    return digest.hexdigest()[:16]


def cache_folder(environment: Mapping[str, str], home: Path) -> Path:
    """Return the folder of the built binaries."""
    if named := environment.get("AIOINFORMER_E2E_CACHE"):
        return Path(named).absolute()

    # The XDG specification says to ignore a relative path.
    base = Path(environment.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else home / ".cache") / "aioinformer" / "e2e"


def find_go(environment: Mapping[str, str]) -> str:
    """Return the version of Go that builds the modules, such as `"go1.26.1"`.

    Raises:
        SetupError: Go is not on the PATH, or too old.
    """
    needed = go_needed(_go_mod("kube-apiserver"))
    if shutil.which("go", path=environment.get("PATH")) is None:
        raise SetupError(
            "building etcd and kube-apiserver from source requires Go, which is not on the "
            f"PATH: install Go {needed} or newer, from your system's packages or from "
            "the Go project's downloads"
        )

    # Inside the module, Go may download a newer version of itself.
    version = subprocess.run(
        ["go", "env", "GOVERSION"],
        cwd=MODULES / "kube-apiserver",
        env={**environment, **_GO_ENVIRONMENT},
        capture_output=True,
        text=True,
        check=False,
    )
    if version.returncode:
        raise SetupError(
            f"Go {needed} or newer is needed to build etcd and kube-apiserver: "
            f"{version.stderr.strip().splitlines()[-1].removeprefix('go: ')}"
        )

    return version.stdout.strip()


def prepare(environment: Mapping[str, str]) -> Binaries:
    """Build the missing binaries and print a line for each.

    A kubectl is built if there is none on the PATH, or if AIOINFORMER_E2E_KUBECTL is
    `build`. Otherwise that variable may name one.

    Raises:
        SetupError: There is no suitable Go, or a build failed.
    """
    go_version = find_go(environment)
    cache = cache_folder(environment, Path.home())
    folder = cache / cache_key(_sources(MODULES), go_version) / "bin"
    aside = cache / cache_key(_sources(ELECTOR), go_version) / "bin"
    kubectl = _kubectl_here(environment)
    names = ["keys", "etcd", "kube-apiserver", *([] if kubectl else ["kubectl"])]
    targets = [*(folder / name for name in names), aside / ELECTOR.name]
    missing = [target for target in targets if not target.exists()]
    if not missing:
        built = ", ".join(_title(name) for name in names if name in _SUBJECTS)
        _say(f"Using {built}, built before, of {folder}.")

    try:
        for target in missing:
            target.parent.mkdir(parents=True, exist_ok=True)
            _build(target.name, target.parent, environment, go_version)
    except OSError as exc:
        raise SetupError(f"nothing can be built into {cache}: {exc}") from exc

    return Binaries(
        etcd=folder / "etcd",
        kube_apiserver=folder / "kube-apiserver",
        keys=folder / "keys",
        kubectl=kubectl or folder / "kubectl",
        elector=aside / ELECTOR.name,
    )


def _kubectl_here(environment: Mapping[str, str]) -> Path | None:
    requested = environment.get("AIOINFORMER_E2E_KUBECTL", "")
    if requested == "build":
        return None

    found = shutil.which(requested or "kubectl", path=environment.get("PATH"))
    if requested and found is None:
        raise SetupError(
            f"AIOINFORMER_E2E_KUBECTL is {requested}, which is neither a program nor the "
            "word build"
        )

    return Path(found).absolute() if found else None


def _build(
    name: str, folder: Path, environment: Mapping[str, str], go_version: str
) -> None:
    _say(f"Building {_title(name)} with {go_version}, once: this may take minutes ...")
    # On the same file system, so that the move is atomic.
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f"{name}-") as scratch:
        target, log = Path(scratch) / name, Path(scratch) / "log"
        flags = flags_for(name, _go_mod(name))
        command: list[str | Path] = [
            "nice",
            "-n",
            _NICENESS,
            "go",
            "build",
            *flags,
            "-o",
            target,
            ".",
        ]
        with (
            log.open("wb") as output,
            in_background(
                command,
                output=output,
                cwd=_module(name),
                environment={**environment, **_GO_ENVIRONMENT},
            ) as go,
        ):
            status = go.wait()

        if status:
            reason = log.read_text(errors="replace").strip().splitlines()
            raise SetupError("\n".join([f"{name} cannot be built:", *reason[-15:]]))

        target.replace(folder / name)


def _title(name: str) -> str:
    version = version_of(name, _go_mod(name)).removeprefix("v")
    return f"{name} {version}".rstrip()


def _sources(root: Path) -> dict[str, bytes]:
    """Return all inputs of the build of one or several modules."""
    found = {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file()
    }
    for folder in [root] if root == ELECTOR else root.iterdir():
        flags = flags_for(folder.name, _go_mod(folder.name))
        found[f"{folder.name}: flags"] = " ".join(flags).encode()

    return found


def _module(name: str) -> Path:
    return ELECTOR if name == ELECTOR.name else MODULES / name


def _go_mod(name: str) -> str:
    return (_module(name) / "go.mod").read_text(encoding="utf-8")


def _say(line: str) -> None:
    print(line, flush=True)
