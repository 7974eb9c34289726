"""Exec plugins: input, output and failures."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import pty
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from credential_helpers import (
    V1,
    V1BETA1,
    Authority,
    printing,
    script,
)

from aioinformer.client import Credentials
from aioinformer.client.auth.exec_plugin import ExecPlugin
from aioinformer.errors import OptionsError

pytestmark = pytest.mark.realtime

TOKEN = "s3cr3t-t0ken"
HOME = os.environ["HOME"]


def in_seconds(seconds: float) -> str:
    when = datetime.now(tz=UTC) + timedelta(seconds=seconds)
    return f"{when:%Y-%m-%dT%H:%M:%SZ}"


def plugin(command: Path | str, **more: Any) -> ExecPlugin:
    return ExecPlugin(command=str(command), where="user 'me' in /etc/config", **more)


def exec_info(tmp_path: Path, **more: Any) -> Any:
    """Return `KUBERNETES_EXEC_INFO` as the plugin gets it."""
    command = script(
        tmp_path / "plugin",
        f'printf %s "$KUBERNETES_EXEC_INFO" > {tmp_path}/info',
        printing({"token": TOKEN}, more.get("api_version", V1)),
    )
    asyncio.run(plugin(command, **more).auth_info())
    return json.loads((tmp_path / "info").read_text())


async def failure(each: ExecPlugin) -> str:
    with pytest.raises(OptionsError) as caught:
        await each.auth_info()

    assert caught.value.__cause__ is None
    return str(caught.value)


# ---------------------------------------------------------------- the protocol


@pytest.mark.parametrize("version", [V1, V1BETA1])
async def test_exec_plugin_returns_printed_token(tmp_path: Path, version: str) -> None:
    command = script(tmp_path / "plugin", printing({"token": TOKEN}, version))

    info = await plugin(command, api_version=version).auth_info()

    assert info.authorization == f"Bearer {TOKEN}"
    assert info.certificate is None
    assert info.fresh_seconds == float("inf")


def test_exec_plugin_gets_no_cluster_by_default(tmp_path: Path) -> None:
    assert exec_info(tmp_path, api_version=V1BETA1) == {
        "apiVersion": V1BETA1,
        "kind": "ExecCredential",
        "spec": {"interactive": False},
    }


def test_exec_plugin_gets_cluster_with_authority(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("PEM")
    about = {"server": "https://api.example", "config": {"audience": "a"}}

    info = exec_info(tmp_path, cluster=about, ca=tmp_path / "ca.crt")

    assert info["spec"]["cluster"] == about | {
        "certificate-authority-data": base64.b64encode(b"PEM").decode()
    }


async def test_exec_plugin_gets_arguments_and_environment(tmp_path: Path) -> None:
    command = script(
        tmp_path / "plugin",
        f'printf "%s|" "$1" "$2" "$MINE" "$HOME" > {tmp_path}/seen',
        printing({"token": TOKEN}),
    )

    await plugin(
        command, arguments=("a b", "c"), environment={"MINE": "x y"}
    ).auth_info()

    assert (tmp_path / "seen").read_text() == f"a b|c|x y|{HOME}|"


async def test_exec_plugin_credentials_are_renewed_before_expiry(
    tmp_path: Path,
) -> None:
    async def fresh(seconds: float) -> tuple[float, float]:
        status = {"token": TOKEN, "expirationTimestamp": in_seconds(seconds)}
        command = script(tmp_path / "plugin", printing(status))
        info = await plugin(command).auth_info()
        return info.fresh_seconds, info.valid_seconds

    long, short, over = await fresh(3600), await fresh(100), await fresh(-5)

    # Running it takes a while, longer on a busy machine.
    assert 3400 < long[0] <= 3540
    assert long[1] - long[0] == 60
    assert short[1] - short[0] == pytest.approx(0.2 * short[1])
    assert over == (5, 5)


async def test_exec_plugin_credentials_expire_with_certificate(tmp_path: Path) -> None:
    certificate, key = Authority(tmp_path).sign("me", days=1)
    status = {
        "clientCertificateData": certificate.read_text(),
        "clientKeyData": key.read_text(),
    }

    info = await plugin(script(tmp_path / "plugin", printing(status))).auth_info()

    assert info.certificate == certificate.read_bytes()
    assert info.key == key.read_bytes()
    assert 86_000 < info.valid_seconds <= 86_400
    assert not info.authorization


async def test_exec_plugin_does_not_block_loop(tmp_path: Path) -> None:
    """The plugin ends only after the loop has run many turns."""
    ready = tmp_path / "ready"
    command = script(
        tmp_path / "plugin",
        f"while [ ! -e {ready} ]; do sleep 0.01; done",
        printing({"token": TOKEN}),
    )
    running = asyncio.create_task(plugin(command).auth_info())
    for _ in range(100):
        await asyncio.sleep(0.001)

    assert not running.done()
    ready.touch()
    assert (await running).authorization == f"Bearer {TOKEN}"


# ---------------------------------------------------------------- interactive plugins


async def test_exec_plugin_gets_no_stdin_by_default(tmp_path: Path) -> None:
    command = script(
        tmp_path / "plugin", f"cat > {tmp_path}/typed", printing({"token": TOKEN})
    )

    await plugin(command).auth_info()  # otherwise it waits forever

    assert not (tmp_path / "typed").read_text()


async def test_interactive_exec_plugin_requires_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    command = script(tmp_path / "plugin", printing({"token": TOKEN}))

    error_text = await failure(plugin(command, interactive_mode="Always"))
    info = await plugin(command, interactive_mode="IfAvailable").auth_info()

    assert "interactiveMode: Always" in error_text
    assert "not a terminal" in error_text
    assert info.authorization


@pytest.mark.parametrize(
    ("mode", "interactive"), [("Never", False), ("IfAvailable", True)]
)
def test_exec_plugin_uses_terminal_if_interactive_mode_allows(
    tmp_path: Path, mode: str, interactive: bool
) -> None:
    command = script(
        tmp_path / "plugin",
        "read typed",
        f'printf "%s %s" "$typed" "$KUBERNETES_EXEC_INFO" > {tmp_path}/seen',
        "echo 'Password:' >&2",
        printing({"token": TOKEN}),
    )
    program = (
        "import asyncio\n"
        "from aioinformer.client.auth.exec_plugin import ExecPlugin\n"
        f"each = ExecPlugin(command={str(command)!r}, interactive_mode={mode!r})\n"
        "print(asyncio.run(each.auth_info()).authorization == "
        f"'Bearer {TOKEN}')"
    )
    ours, theirs = pty.openpty()
    os.write(ours, b"sesame\n")
    done = subprocess.run(
        [sys.executable, "-c", program], stdin=theirs, capture_output=True, check=True
    )
    os.close(ours)
    os.close(theirs)

    typed, info = (tmp_path / "seen").read_text().split(" ", 1)
    assert done.stdout.split() == [b"True"]
    assert typed == ("sesame" if interactive else "")
    assert json.loads(info)["spec"]["interactive"] is interactive
    assert (b"Password:" in done.stderr) is interactive


# ---------------------------------------------------------------- what goes wrong


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        pytest.param(["echo junk"], "printed something that is not JSON", id="junk"),
        pytest.param([], "printed nothing", id="nothing"),
        pytest.param(["echo '[]'"], "not an ExecCredential", id="another-json"),
        pytest.param(
            [printing({"token": "x"}, V1BETA1)],
            f"configured for {V1} but printed '{V1BETA1}'",
            id="another-version",
        ),
        pytest.param([printing(None)], "without a status", id="no-status"),
        pytest.param([printing({})], "neither a token nor a certificate", id="neither"),
        pytest.param(
            [printing({"token": 7})], "token that is not a string", id="number"
        ),
        pytest.param(
            [printing({"token": f"{TOKEN} x"})],
            "characters that a token cannot",
            id="blank",
        ),
        pytest.param(
            [printing({"clientKeyData": "x"})], "only one of", id="half-a-certificate"
        ),
        pytest.param(
            [printing({"token": "x", "expirationTimestamp": "soon"})],
            "'soon', which is not a timestamp",
            id="no-time",
        ),
        pytest.param(
            [printing({"token": "x", "expirationTimestamp": "2030-01-31T12:00:00"})],
            "which is not a timestamp",
            id="time-without-zone",
        ),
        pytest.param(
            ["echo please log in >&2", "exit 3"],
            "failed with code 3 (the logger aioinformer.client.auth.exec_plugin shows",
            id="fails",
        ),
        pytest.param(["kill -9 $$"], "failed with code -9", id="dies"),
        pytest.param(["yes"], "was killed: it had printed more than", id="endless"),
    ],
)
async def test_exec_plugin_error_names_problem(
    tmp_path: Path, lines: list[str], words: str
) -> None:
    error_text = await failure(plugin(script(tmp_path / "plugin", *lines)))

    assert words in error_text
    assert "plugin' of user 'me' in /etc/config" in error_text
    assert TOKEN not in error_text


async def test_missing_exec_plugin_error_has_install_hint() -> None:
    error_text = await failure(plugin("no-such-plugin", install_hint="Run: get it"))

    assert "'no-such-plugin' of user 'me' in /etc/config was not found" in error_text
    assert error_text.endswith("\nRun: get it")


async def test_non_executable_plugin_raises_options_error(tmp_path: Path) -> None:
    (tmp_path / "plugin").write_text("no program")

    assert "cannot be run: Permission denied" in await failure(
        plugin(tmp_path / "plugin")
    )


def is_alive(number: int) -> bool:
    # A zombie still has its number.
    try:
        os.kill(number, 0)
        return ") Z" not in Path(f"/proc/{number}/stat").read_text()
    except (ProcessLookupError, FileNotFoundError):
        return False


async def process_ended(file: Path) -> None:
    """Wait for the end of the process whose number is in the file."""
    if not file.exists():  # noqa: ASYNC240 - a test may
        return  # killed before it wrote the number

    number = int(file.read_text())  # noqa: ASYNC240
    async with asyncio.timeout(30):
        while is_alive(number):
            await asyncio.sleep(0.01)


async def test_hanging_exec_plugin_is_killed_with_children(
    tmp_path: Path,
) -> None:
    command = script(
        tmp_path / "plugin",
        "sleep 1000 &",
        f"echo $! > {tmp_path}/child.new; mv {tmp_path}/child.new {tmp_path}/child",
        f"echo $$ > {tmp_path}/self.new; mv {tmp_path}/self.new {tmp_path}/self",
        "wait",
    )

    error_text = await failure(plugin(command, seconds=1.0))

    assert "did not end within 1 s and was killed" in error_text
    await process_ended(tmp_path / "self")
    await process_ended(tmp_path / "child")


async def test_cancellation_kills_exec_plugin(tmp_path: Path) -> None:
    started = tmp_path / "number"
    command = script(
        tmp_path / "plugin",
        f"echo $$ > {started}.new",
        f"mv {started}.new {started}",
        "exec sleep 1000",
    )
    running = asyncio.create_task(plugin(command).auth_info())
    while not started.exists():
        await asyncio.sleep(0.01)

    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    await process_ended(started)


async def test_exec_plugin_result_does_not_wait_for_background_children(
    tmp_path: Path,
) -> None:
    """A background child holds the pipes open forever."""
    command = script(
        tmp_path / "plugin",
        "sleep 1000 &",
        f"echo $! > {tmp_path}/child",
        printing({"token": TOKEN}),
    )

    info = await plugin(command).auth_info()

    os.kill(int((tmp_path / "child").read_text()), 9)
    assert info.authorization == f"Bearer {TOKEN}"


COMPLAINTS = {
    "user-of-a-url": "cannot reach https://me:pass/w0rd@sso.example/login",
    "query-of-a-url": "see https://sso.example/login?code=abc&state=xyz for more",
    "json": '{"user": "me", "password": "pa\\"ss w0rd", "n": 1}',
    "json-in-json": 'said "{\\"client_secret\\":\\"pass w0rd\\"}"',
    "assignment": "AWS_SESSION_TOKEN=pass-w0rd; api-key: 'pass w0rd'",
    "bearer": "Authorization: Bearer pass-w0rd",
    "pem": "-----BEGIN EC PRIVATE KEY-----\npassw0rd\n-----END EC PRIVATE KEY-----",
    "half-pem": "-----BEGIN PRIVATE KEY-----\npassw0rd",
    "escape": "red \x1b[31malert\x1b[0m \x1b]0;title\x07 \x9b1m \u202e end",
}


@pytest.mark.parametrize("stderr_text", COMPLAINTS.values(), ids=COMPLAINTS)
async def test_plugin_stderr_is_in_no_error_and_redacted_at_debug(
    tmp_path: Path, stderr_text: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "stderr_text").write_text(stderr_text)
    command = script(tmp_path / "plugin", f"cat {tmp_path}/stderr_text >&2", "exit 1")

    with caplog.at_level(logging.DEBUG):
        error_text = await failure(plugin(command))

    (record,) = caplog.records
    exec_info = record.getMessage()
    assert record.levelno == logging.DEBUG
    assert error_text.endswith(
        "failed with code 1 (the logger aioinformer.client.auth.exec_plugin shows its "
        "stderr at DEBUG)"
    )
    for secret in ("pass", "w0rd", "abc", "xyz", "\x1b", "\x9b", "\u202e", "title"):
        assert secret not in exec_info.partition("stderr: ")[2].replace("password", "")
        assert secret not in error_text.replace(str(tmp_path), "")


async def test_known_secrets_are_redacted_in_stderr_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SOME_SECRET_KEY", "some/secret")
    jwt = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJtZSJ9.c2lnbmF0dXJlLW9mLWl0"
    command = script(
        tmp_path / "plugin",
        f'echo "$1 tried $PASSWORD, $2, {jwt}, {"x" * 40}, Bearer a1b2" >&2',
        'echo "and $SOME_SECRET_KEY for $HOME" >&2',
        "exit 1",
    )

    with caplog.at_level(logging.DEBUG):
        await failure(
            plugin(
                command,
                environment={"PASSWORD": "pass word"},
                arguments=("--cluster-name", "--key=123"),
            )
        )

    shown = f"--cluster-name tried ..., ..., ..., ..., Bearer ... and ... for {HOME}"
    assert caplog.records[-1].getMessage().endswith(f"wrote to stderr: {shown}")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        pytest.param({"api_version": "v1alpha1"}, "it must be one of", id="version"),
        pytest.param({"interactive_mode": "never"}, "Never, IfAvailable", id="mode"),
    ],
)
def test_exec_plugin_rejects_invalid_options(wrong: dict[str, str], words: str) -> None:
    with pytest.raises(OptionsError, match=words):
        plugin("plugin", **wrong)


def test_exec_plugin_repr_shows_only_command() -> None:
    each = plugin("aws", arguments=(TOKEN,), environment={"KEY": TOKEN})
    shown = f"{each!r} {each} {Credentials(source=each.auth_info)!r}"

    assert TOKEN not in shown
    assert "aws" in shown


def test_exec_plugin_runs_in_loop_of_any_thread(tmp_path: Path) -> None:
    """A loop outside the main thread works as well."""
    command = script(tmp_path / "plugin", printing({"token": TOKEN}))
    found: list[str] = []

    def elsewhere() -> None:
        found.append(asyncio.run(plugin(command).auth_info()).authorization)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()

    assert found == [f"Bearer {TOKEN}"]
