"""Runs each kubectl command against our server and a real one, and compares the output.

A pytest plugin with the fixture `kubectl`. Both servers have a namespace of the same name
for each test. So both outputs must be equal, except for times, uids, versions and
addresses. The real server is that of `make e2e`; ours is the command
`aioinformer apiserver`.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import secrets
import signal
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

__all__ = ["CommandResult", "Pair", "Server", "plain"]

_COMMAND = "from aioinformer.cli.main import main; main()"

# Values that differ between any two servers. Only ages in columns are replaced, because
# other durations must be equal. The widths of columns depend on the ages.
_VARYING = [
    (re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "UID"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"), "TIME"),
    (re.compile(r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d [+-]\d{4}"), "TIME"),
    (re.compile(r'(resourceVersion\\?"?: *)\\?"?\d+\\?"?'), r'\1"VERSION"'),
    (re.compile(r"(Resource Version: +)\d+"), r"\1VERSION"),
    (re.compile(r"(?m)(?:(?<=  )|^)(\d+m)?\d+s(?=\s|$)"), "AGE"),
    (re.compile(r"<(invalid|unknown)>"), "AGE"),
    (re.compile(r"https?://127\.0\.0\.1:\d+"), "SERVER"),
    (re.compile(r"\b10\.\d+\.\d+\.\d+\b"), "ADDRESS"),
    (re.compile(r"(?<=\S) {2,}(?=\S)"), "  "),
]


def plain(text: str) -> str:
    """Replace the values in kubectl's output that differ between any two servers."""
    for pattern, word in _VARYING:
        text = pattern.sub(word, text)

    return "\n".join(line.rstrip() for line in text.splitlines())


@dataclass(frozen=True, slots=True)
class CommandResult:
    """Exit status and output of a command."""

    status: int
    out: str
    err: str

    @property
    def all(self) -> str:
        """Status and normalized output, for comparison."""
        return f"status {self.status}\n{plain(self.out)}\n{plain(self.err)}"


@dataclass(frozen=True, slots=True)
class Server:
    """One of the two servers, with its kubeconfig."""

    program: str
    environment: Mapping[str, str]

    def start(
        self, *arguments: str, environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """Start kubectl; `talk()` or `stop()` ends it."""
        return subprocess.Popen(
            [self.program, *arguments],
            env={**self.environment, **(environment or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def say(self, *arguments: str, stdin: str = "") -> CommandResult:
        """Run kubectl until it exits."""
        return _end(self.start(*arguments), stdin)


@dataclass(frozen=True, slots=True)
class Pair:
    """Both servers, and a namespace of one test."""

    ours: Server
    real: Server
    namespace: str

    def __call__(
        self,
        *arguments: str,
        stdin: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> str:
        """Run a command that succeeds with equal output, and return the output."""
        ours = self._same(arguments, stdin, environment)
        assert ours.status == 0, ours.err
        return ours.out

    def with_namespace(self) -> Pair:
        """Create a namespace of one name on both servers; it is not deleted.

        A real server without controllers cannot delete a namespace.
        """
        pair = Pair(self.ours, self.real, f"k-{secrets.token_hex(5)}")
        pair("create", "namespace", pair.namespace)
        return pair

    def fails(self, *arguments: str, stdin: str = "") -> str:
        """Run a command that fails with equal output, and return its stderr."""
        ours = self._same(arguments, stdin, None)
        assert ours.status, ours.out
        return ours.err

    def differs(self, *arguments: str, stdin: str = "") -> str:
        """Run a command that reports a difference by status 1, and return its stdout."""
        ours = self._same(arguments, stdin, None)
        assert ours.status == 1, ours.err
        return ours.out

    def body(self, *what: str) -> dict[str, Any]:
        """Return the current object, after comparing it on both servers.

        The order of managed fields does not count, because it depends on the time.
        """
        arguments = ("get", *what, "-o", "json", "--show-managed-fields")
        ours, real = (_comparable(it) for it in self.each(*arguments))
        if ours != real:
            texts = [json.dumps(it, indent=2, sort_keys=True) for it in (ours, real)]
            pytest.fail(f"kubectl {' '.join(arguments)}\n{_diff(*texts)}")

        return ours

    def each(
        self, *arguments: str, stdin: str = ""
    ) -> tuple[CommandResult, CommandResult]:
        """Run a command on both servers, without comparing the output."""
        return self._run(arguments, stdin, None)

    @contextmanager
    def watching(self, *arguments: str) -> Iterator[_Watches]:
        """Run an endless command on both servers until the end of the block."""
        command = ("-n", self.namespace, *arguments)
        children = [server.start(*command) for server in (self.ours, self.real)]
        try:
            yield _Watches(children)
        finally:
            for child in children:
                child.terminate()
                child.communicate()

    def _same(
        self,
        arguments: tuple[str, ...],
        stdin: str,
        environment: Mapping[str, str] | None,
    ) -> CommandResult:
        ours, real = self._run(arguments, stdin, environment)
        if ours.all != real.all:
            pytest.fail(f"kubectl {' '.join(arguments)}\n{_diff(ours.all, real.all)}")

        return ours

    def _run(
        self,
        arguments: tuple[str, ...],
        stdin: str,
        environment: Mapping[str, str] | None,
    ) -> tuple[CommandResult, CommandResult]:
        command = ("-n", self.namespace, *arguments)
        ours = self.ours.start(*command, environment=environment)
        real = self.real.start(*command, environment=environment)
        return _end(ours, stdin), _end(real, stdin)


def _diff(ours: str, real: str) -> str:
    """Return the complete difference; pytest would truncate it."""
    lines = real.splitlines(), ours.splitlines()
    return "\n".join(difflib.unified_diff(*lines, "real", "ours", lineterm=""))


def _comparable(printed: CommandResult) -> dict[str, Any]:
    assert printed.status == 0, printed.err
    body: dict[str, Any] = json.loads(plain(printed.out))
    managers = body["metadata"].get("managedFields", [])
    managers.sort(
        key=lambda it: [it["manager"], it["operation"], it.get("subresource", "")]
    )
    return body


@dataclass(frozen=True, slots=True)
class _Watches:
    """Running commands that print changes."""

    children: list[subprocess.Popen[str]]

    def lines(self, count: int) -> list[str]:
        """Wait until both have printed a number of equal lines, and return them."""
        ours, real = (
            [plain(_read_line(child)) for _ in range(count)] for child in self.children
        )
        assert ours == real
        return ours

    def begun(self) -> None:
        """Wait until both watch. They must have been started with `-v=6`."""
        for child in self.children:
            assert child.stderr is not None
            while "watch=true" not in (line := child.stderr.readline()):
                assert line, "it has ended"

    def end(self) -> None:
        """Wait until both have exited successfully."""
        assert [child.wait() for child in self.children] == [0, 0]


def _read_line(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline()


def _end(child: subprocess.Popen[str], stdin: str) -> CommandResult:
    try:
        out, err = child.communicate(stdin)
    finally:
        # After an interruption, such as a timeout, it might wait forever.
        child.kill()

    return CommandResult(child.returncode, out, err)


# ---------------------------------------------------------------- fixtures


@pytest.fixture(scope="session")
def kubectl_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Start our server, and yield both."""
    program = os.environ.get("AIOINFORMER_E2E_KUBECTL")
    if not program:
        pytest.fail("no kubectl, and no real server: run `make e2e`")

    home = tmp_path_factory.mktemp("kubectl")
    with ExitStack() as stack:
        ours = home / "ours.kubeconfig"
        stack.enter_context(_our_server(ours))
        real = home / "real.kubeconfig"
        real.write_text(_kubeconfig_of_the_real_one())
        yield Pair(
            Server(program, _environment(home / "ours", ours)),
            Server(program, _environment(home / "real", real)),
            "default",
        )


@pytest.fixture
def kubectl(kubectl_servers: Pair) -> Pair:
    """Return both servers with an empty namespace of this test."""
    return kubectl_servers.with_namespace()


@contextmanager
def _our_server(kubeconfig: Path) -> Iterator[None]:
    arguments = ["apiserver", "--port", "0", "--kubeconfig", str(kubeconfig)]
    child = subprocess.Popen(
        [sys.executable, "-c", _COMMAND, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout is not None
        # Printed when the kubeconfig exists and the server accepts requests.
        assert "http://127.0.0.1:" in child.stdout.readline()
        yield
    finally:
        child.send_signal(signal.SIGINT)
        _end(child, "")


def _environment(folder: Path, kubeconfig: Path) -> dict[str, str]:
    folder.mkdir()
    clean = {key: it for key, it in os.environ.items() if not key.startswith("KUBE")}
    return {
        **clean,
        "HOME": str(folder),
        "KUBECONFIG": str(kubeconfig),
        "KUBECACHEDIR": str(folder / "cache"),
    }


def _kubeconfig_of_the_real_one() -> str:
    return f"""
apiVersion: v1
kind: Config
clusters:
- name: real
  cluster:
    server: {os.environ["AIOINFORMER_E2E_SERVER"]}
    certificate-authority: {os.environ["AIOINFORMER_E2E_CA"]}
users:
- name: real
  user:
    token: {os.environ["AIOINFORMER_E2E_TOKEN"]}
contexts:
- name: real
  context: {{cluster: real, user: real}}
current-context: real
"""
