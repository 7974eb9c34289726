"""Builds of benchmark contestants in other languages, with fake compilers."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from bench import builds
from bench.builds import BuildFailed, built
from bench.interpreters import interpreters
from processes import ROOT

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.realtime

# A compiler that copies its source. It records its calls in a file.
GO = """\
#!/bin/sh
echo "$*" >> "$0.calls"
case "$1" in
    env) echo go1.99.1 ;;
    build)
        for it in "$@"; do
            case "$it" in -o=*) target="${it#-o=}" ;; esac
        done
        /bin/cp main.go "$target"
        ;;
esac
"""
CARGO = """\
#!/bin/sh
echo "$*" >> "$0.calls"
case "$1" in
    --version) echo cargo 1.99.1 ;;
    build)
        for it in "$@"; do
            case "$it" in --target-dir=*) target="${it#--target-dir=}" ;; esac
        done
        /bin/mkdir "$target/release"
        /bin/cp src/main.rs "$target/release/kube_rs"
        ;;
esac
"""
PROGRAM = "#!/bin/sh\necho hello\n"


class Machine:
    """A machine with contestants that need no compiler, and with installed tools."""

    def __init__(self, folder: Path) -> None:
        self.tools = folder / "bin"
        self.home = folder / "home"
        self.cache = folder / "cache"
        self.peers = folder / "peers"
        for it in (self.tools, self.home, self.peers / "kube_rs" / "src"):
            it.mkdir(parents=True)

        for name in ("client_go/main.go", "kube_rs/src/main.rs"):
            source = self.peers / name
            source.parent.mkdir(exist_ok=True)
            source.write_text(PROGRAM, encoding="utf-8")
            source.chmod(0o755)

    def install(self, tool: str, script: str) -> None:
        path = self.tools / tool
        path.write_text(script, encoding="utf-8")
        path.chmod(0o755)

    def builds(self, tool: str) -> int:
        """Return the number of builds."""
        calls = (self.tools / f"{tool}.calls").read_text(encoding="utf-8")
        return sum(line.startswith("build") for line in calls.splitlines())

    def programs(self) -> list[Path]:
        return [it for it in self.cache.rglob("*") if it.is_file()]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(tmp_path)
    monkeypatch.setattr(builds, "PEERS", made.peers)
    monkeypatch.setenv("PATH", str(made.tools))
    monkeypatch.setenv("HOME", str(made.home))
    monkeypatch.delenv("PYENV_ROOT", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(made.cache))
    return made


@pytest.mark.parametrize(
    ("name", "tool", "script"), [("client_go", "go", GO), ("kube_rs", "cargo", CARGO)]
)
def test_contestant_is_built_once(
    machine: Machine,
    capfd: pytest.CaptureFixture[str],
    name: str,
    tool: str,
    script: str,
) -> None:
    machine.install(tool, script)

    program = built(name)

    assert subprocess.check_output([program], text=True) == "hello\n"
    told = capfd.readouterr()
    assert told.err.startswith(f"Building {name} with {tool}")
    assert told.out == ""
    assert built(name) == program
    assert machine.builds(tool) == 1
    assert capfd.readouterr().err == ""
    assert machine.programs() == [program]


def test_changed_sources_are_built_again(machine: Machine) -> None:
    machine.install("go", GO)
    before = built("client_go")
    (machine.peers / "client_go" / "go.sum").write_text("a sum", encoding="utf-8")
    (machine.peers / "client_go" / "notes.txt").write_text("a note", encoding="utf-8")
    other = built("client_go")
    assert other != before
    (machine.peers / "client_go" / "notes.txt").write_text("other", encoding="utf-8")
    assert built("client_go") == other


def test_another_compiler_builds_again(machine: Machine) -> None:
    machine.install("go", GO)
    before = built("client_go")
    machine.install("go", GO.replace("go1.99.1", "go1.99.2"))
    assert built("client_go") != before
    assert machine.builds("go") == 2


def test_missing_tool_is_named(machine: Machine) -> None:
    with pytest.raises(BuildFailed) as caught:
        built("kube_rs")

    assert str(caught.value) == (
        "building kube_rs from source requires cargo, which is not on the PATH"
    )
    assert machine.programs() == []


def test_error_of_an_old_tool_is_shown(machine: Machine) -> None:
    old = "go.mod requires go >= 1.26.0 (running go 1.20)"
    machine.install("go", f"#!/bin/sh\necho 'go: {old}' >&2\nexit 1\n")
    with pytest.raises(BuildFailed) as caught:
        built("client_go")

    assert str(caught.value) == f"client_go cannot be built: go: {old}"


def test_failed_build_is_one_sentence_with_details_apart(
    machine: Machine, capfd: pytest.CaptureFixture[str]
) -> None:
    failing = "echo '# example.com/client_go'; echo './main.go:3:2: undefined: x'"
    machine.install("go", GO.replace("/bin/cp", f"{failing} >&2; exit 1; /bin/cp"))
    with pytest.raises(BuildFailed) as caught:
        built("client_go")

    reason = "client_go cannot be built: ./main.go:3:2: undefined: x"
    assert str(caught.value) == reason
    assert "# example.com/client_go\n./main.go" in capfd.readouterr().err
    assert machine.programs() == []

    machine.install("go", GO)
    assert built("client_go").exists()


def test_first_error_of_cargo_is_shown(machine: Machine) -> None:
    failing = (
        "echo warning: unused; echo error: no such crate; echo try harder; exit 101"
    )
    machine.install("cargo", CARGO.replace("/bin/mkdir", f"{failing} #"))
    with pytest.raises(BuildFailed, match=r"^kube_rs cannot be built: error: no such"):
        built("kube_rs")


def test_compiler_that_dies_silently_is_reported(machine: Machine) -> None:
    machine.install("go", GO.replace("/bin/cp", "exit 1 #"))
    with pytest.raises(BuildFailed, match="its compiler printed nothing"):
        built("client_go")


def test_unwritable_cache_is_reported(machine: Machine) -> None:
    machine.install("go", GO)
    machine.cache.write_text("not a folder", encoding="utf-8")
    with pytest.raises(BuildFailed, match=r"^client_go cannot be built: .*Not a dir"):
        built("client_go")


def test_relative_cache_folder_is_ignored(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.install("go", GO)
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert built("client_go").is_relative_to(machine.home / ".cache" / "aioinformer")


def test_sources_of_all_contestants_exist() -> None:
    for name, language in builds._LANGUAGES.items():
        for pattern in language.sources:
            assert list((builds.PEERS / name).glob(pattern)), (name, pattern)


def test_missing_python_is_reported(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    # A shim of pyenv for a version that is not installed.
    machine.install("python3.12", "#!/bin/sh\nexit 127\n")
    monkeypatch.setattr("bench.interpreters.VERSIONS", ("3.11", "3.12"))

    assert interpreters() == []

    errors = capfd.readouterr().err.splitlines()
    assert errors == [f"Python {it} is not on the PATH" for it in ("3.11", "3.12")]


def test_python_is_set_up_once(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    script = '#!/bin/sh\n[ "$1" = -c ] && echo 3.12.9 || /bin/mkdir -p "$5"\n'
    machine.install("python3.12", script)
    monkeypatch.setattr("bench.interpreters.VERSIONS", ("3.12",))
    monkeypatch.setattr(sys, "executable", "/bin/true")  # instead of pip

    first = interpreters()

    assert "Setting up Python 3.12.9" in capfd.readouterr().err
    assert [(it.version, it.exact) for it in first] == [("3.12", "3.12.9")]
    assert first[0].path.is_relative_to(machine.cache)
    assert interpreters() == first
    assert capfd.readouterr().err == ""


def test_go_libraries_match_the_tested_kubernetes_release() -> None:
    def releases(path: str) -> set[str]:
        text = (ROOT / path).read_text(encoding="utf-8")
        return set(
            re.findall(r"^\tk8s\.io/(?:api|client-go) (\S+)$", text, re.MULTILINE)
        )

    assert len(releases("tests/e2e/elector/go.mod")) == 1
    for module in ("benchmarks/peers/client_go", "tests/e2e/guides"):
        assert releases(f"{module}/go.mod") == releases("tests/e2e/elector/go.mod")
