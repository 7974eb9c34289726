"""The decisions of the code that builds and runs the real servers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from binaries import (
    MODULES,
    Binaries,
    SetupError,
    cache_folder,
    cache_key,
    find_go,
    flags_for,
    go_needed,
    prepare,
    version_of,
)
from children import in_background
from control_plane import ControlPlane, environment_of, kubeconfig_of

HERE = Path(__file__).parent
GO_MOD = """module example.com/kube-apiserver

go 1.26.0

require (
\tk8s.io/component-base v0.36.3
\tk8s.io/kubernetes v1.36.3
)
"""

PLANE = ControlPlane("https://127.0.0.1:1", "http://127.0.0.1:2", Path("/nowhere"))
BINARIES = Binaries(
    etcd=Path("/built/etcd"),
    kube_apiserver=Path("/built/kube-apiserver"),
    keys=Path("/built/keys"),
    kubectl=Path("/bin/kubectl"),
    elector=Path("/aside/elector"),
)


def go_mod(name: str) -> str:
    return (MODULES / name / "go.mod").read_text()


# ---------------------------------------------------------------- versions


def test_go_version_is_read_from_the_module() -> None:
    assert go_needed(GO_MOD) == "1.26.0"


def test_built_version_is_read_from_the_module() -> None:
    assert version_of("kube-apiserver", GO_MOD) == "v1.36.3"


def test_kubectl_version_is_mapped_to_the_kubernetes_version() -> None:
    text = "module example.com/kubectl\n\nrequire k8s.io/kubectl v0.36.3\n"

    assert version_of("kubectl", text) == "v1.36.3"


def test_server_and_kubectl_have_one_version() -> None:
    server = version_of("kube-apiserver", go_mod("kube-apiserver"))

    assert version_of("kubectl", go_mod("kubectl")) == server


def test_build_flags_set_the_version() -> None:
    flags = " ".join(flags_for("kube-apiserver", GO_MOD))

    for fact in ("gitVersion=v1.36.3", "gitMajor=1", "gitMinor=36"):
        assert f"-X k8s.io/component-base/version.{fact}" in flags


@pytest.mark.parametrize("name", ["etcd", "kube-apiserver", "kubectl", "keys"])
def test_build_uses_exactly_the_pinned_modules(name: str) -> None:
    assert "-mod=readonly" in flags_for(name, go_mod(name))
    assert name == "keys" or (MODULES / name / "go.sum").stat().st_size


# ---------------------------------------------------------------- the cache


def test_cache_key_is_equal_for_equal_sources() -> None:
    files = {"etcd/go.mod": b"a", "etcd/main.go": b"b"}
    turned = dict(reversed(files.items()))

    assert cache_key(files, "go1.26.1") == cache_key(turned, "go1.26.1")


@pytest.mark.parametrize(
    ("files", "go_version"),
    [
        pytest.param({"go.mod": b"b"}, "go1.26.1", id="content"),
        pytest.param({"go.sum": b"a"}, "go1.26.1", id="name"),
        pytest.param({"go.mod": b"a", "go.sum": b""}, "go1.26.1", id="another-file"),
        pytest.param({"go.mod": b"a"}, "go1.26.2", id="go"),
    ],
)
def test_cache_key_differs_for_other_sources(
    files: dict[str, bytes], go_version: str
) -> None:
    assert cache_key(files, go_version) != cache_key({"go.mod": b"a"}, "go1.26.1")


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        pytest.param({}, "/h/.cache/aioinformer/e2e", id="default"),
        pytest.param({"XDG_CACHE_HOME": "/c"}, "/c/aioinformer/e2e", id="xdg"),
        pytest.param(
            {"XDG_CACHE_HOME": "c"}, "/h/.cache/aioinformer/e2e", id="relative-xdg"
        ),
        pytest.param(
            {"XDG_CACHE_HOME": "/c", "AIOINFORMER_E2E_CACHE": "/mine"},
            "/mine",
            id="named",
        ),
    ],
)
def test_cache_folder_follows_xdg(environment: dict[str, str], folder: str) -> None:
    assert cache_folder(environment, Path("/h")) == Path(folder)


# ---------------------------------------------------------------- Go


def fake_go(folder: Path, script: str) -> dict[str, str]:
    """An environment whose only `go` is this shell script."""
    program = folder / "go"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    (folder / "nice").write_text('#!/bin/sh\nshift 2\nexec "$@"\n')
    (folder / "nice").chmod(0o755)
    return {
        "PATH": f"{folder}:/usr/bin:/bin",
        "AIOINFORMER_E2E_CACHE": str(folder / "cache"),
        "AIOINFORMER_E2E_KUBECTL": "build",
    }


def test_missing_go_error_names_the_version_to_install(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"install Go 1\.26\.0 or newer") as caught:
        find_go({"PATH": str(tmp_path)})

    assert "\n" not in str(caught.value)


def test_old_go_error_names_the_version_to_install(tmp_path: Path) -> None:
    environment = fake_go(
        tmp_path,
        "echo 'go: go.mod requires go >= 1.26.0 (running go 1.21.0)' >&2\nexit 1",
    )

    with pytest.raises(SetupError, match=r"Go 1\.26\.0 or newer .*running go 1\.21"):
        find_go(environment)


BUILDING = """
if [ "$1" = env ]; then echo go1.26.9; exit; fi
echo "$@" >> "$(dirname "$0")/builds"
while [ "$1" != -o ]; do shift; done
echo program > "$2"
"""


def test_binaries_are_built_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    environment = fake_go(tmp_path, BUILDING)

    first = prepare(environment)
    said = capfd.readouterr().out
    second = prepare(environment)

    builds = (tmp_path / "builds").read_text().splitlines()
    assert first == second
    assert first.kube_apiserver.read_text() == "program\n"
    assert len(builds) == said.count("Building ") == 5
    assert "built before" in capfd.readouterr().out


def test_failed_build_leaves_nothing_in_the_cache(tmp_path: Path) -> None:
    script = BUILDING.replace("echo program >", "echo no network; echo half >")
    environment = fake_go(tmp_path, f"{script}\nexit 1")

    with pytest.raises(SetupError, match="keys cannot be built:\nno network"):
        prepare(environment)

    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_named_kubectl_is_used(tmp_path: Path) -> None:
    environment = fake_go(tmp_path, BUILDING)
    environment["AIOINFORMER_E2E_KUBECTL"] = str(tmp_path / "go")

    assert prepare(environment).kubectl == tmp_path / "go"
    assert "-o" in (tmp_path / "builds").read_text()


def test_missing_kubectl_is_an_error(tmp_path: Path) -> None:
    environment = fake_go(tmp_path, BUILDING)
    environment["AIOINFORMER_E2E_KUBECTL"] = str(tmp_path / "nothing")

    with pytest.raises(SetupError, match="neither a program nor the word build"):
        prepare(environment)


# ---------------------------------------------------------------- the command


def cluster(
    *arguments: str, environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(HERE / "cluster.py"), *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment
    )


def test_command_without_go_fails_with_one_line(tmp_path: Path) -> None:
    ended = cluster("run", "--", "true", environment={"PATH": str(tmp_path)})

    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (1, "", 1)
    assert "install Go 1.26.0 or newer" in ended.stderr


def test_server_that_exits_at_once_is_reported_with_its_log(tmp_path: Path) -> None:
    # This program plays all programs.
    program = r"#!/bin/sh\necho out of luck; exit 3"
    script = BUILDING.replace(
        'echo program > "$2"', f'printf "{program}" > "$2"; chmod +x "$2"'
    )
    script = script.replace("-o ]; do shift; done", "-o ]; do shift; done; n=$2")
    script += 'case "$n" in *keys) printf "#!/bin/sh\\nexit 0" > "$n";; esac\n'
    ended = cluster("run", "--", "true", environment=fake_go(tmp_path, script))

    assert ended.returncode == 1
    assert "has ended with status 3:\n  out of luck" in ended.stderr


def test_environment_names_the_servers() -> None:
    told = environment_of(PLANE, BINARIES)

    assert told["AIOINFORMER_E2E_SERVER"] == PLANE.url
    assert told["AIOINFORMER_E2E_ETCD"] == PLANE.etcd_url
    assert told["AIOINFORMER_E2E_KUBECTL"] == "/bin/kubectl"
    assert told["AIOINFORMER_E2E_ELECTOR"] == "/aside/elector"
    assert told["AIOINFORMER_E2E_PROGRAMS"] == "/built"
    assert told["AIOINFORMER_E2E_TOKEN"] != told["AIOINFORMER_E2E_USER_TOKEN"]


def test_killed_server_restarts_with_its_data(tmp_path: Path) -> None:
    plane = ControlPlane(PLANE.url, PLANE.etcd_url, tmp_path)
    plane.commands["etcd"] = ["sh", "-c", f"echo up >> {tmp_path}/data; exec sleep 600"]
    data = tmp_path / "data"

    plane.start("etcd")
    while not data.exists():
        time.sleep(0.01)

    child = plane.children["etcd"]
    plane.kill("etcd")
    assert child.returncode == -signal.SIGKILL
    plane.revive()
    while data.read_text() != "up\nup\n":
        time.sleep(0.01)

    plane.revive()
    assert plane.failure() == ""
    assert data.read_text() == "up\nup\n"
    plane.stop()
    assert plane.children == {}


def test_ended_server_restarts_with_other_feature_gates(tmp_path: Path) -> None:
    plane = ControlPlane(PLANE.url, PLANE.etcd_url, tmp_path)
    script = f"trap 'echo end >> {tmp_path}/log; exit' TERM; echo $1 >> {tmp_path}/log;"
    script += " while :; do sleep 0.01; done"
    old = "--feature-gates=One=true,Two=true"
    plane.commands["kube-apiserver"] = ["sh", "-c", script, "--", old]
    log = tmp_path / "log"

    plane.start("kube-apiserver")
    while not log.exists():
        time.sleep(0.01)

    plane.end("kube-apiserver")
    plane.set_feature_gates(One=False, Three=True)
    plane.revive()
    new = "--feature-gates=One=false,Three=true"
    while log.read_text() != f"{old}\nend\n{new}\n":
        time.sleep(0.01)

    plane.stop()


def test_backup_is_restored(tmp_path: Path) -> None:
    plane = ControlPlane(PLANE.url, PLANE.etcd_url, tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "kept").touch()

    plane.save()
    (tmp_path / "data" / "made later").touch()
    plane.restore()

    assert [it.name for it in (tmp_path / "data").iterdir()] == ["kept"]


def test_kubeconfig_has_both_users() -> None:
    config = json.loads(kubeconfig_of(PLANE))

    assert [it["name"] for it in config["contexts"]] == ["admin", "alice"]
    assert config["clusters"][0]["cluster"]["server"] == PLANE.url


# ---------------------------------------------------------------- children


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True

    state = Path(f"/proc/{pid}/stat")
    return state.exists() and state.read_text().rpartition(")")[2].split()[0] == "Z"


def test_child_is_stopped_with_its_descendants(tmp_path: Path) -> None:
    script = "sleep 600 & echo $! > pid; echo up; wait"
    reading, writing = os.pipe()
    with os.fdopen(reading) as lines, os.fdopen(writing, "wb") as output:
        with in_background(["sh", "-c", script], output=output, cwd=tmp_path) as child:
            assert lines.readline() == "up\n"

        output.close()
        # End of file: nobody holds the pipe open any more.
        assert lines.read() == ""

    assert child.returncode == -signal.SIGTERM


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can be asked for it")
def test_child_dies_with_a_killed_parent() -> None:
    script = f"""if True:
        import os, signal, sys
        sys.path.insert(0, {str(HERE)!r})
        from children import in_background
        with in_background(["sleep", "600"], output=sys.stdout.buffer) as child:
            os.write(2, str(child.pid).encode())
            os.kill(os.getpid(), signal.SIGKILL)
    """
    # Both share stdout, which ends with the last one.
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, check=False, timeout=30
    )

    assert ended.returncode == -signal.SIGKILL
    # It closes the pipe a moment before it is gone.
    while not gone(int(ended.stderr)):
        time.sleep(0.01)
