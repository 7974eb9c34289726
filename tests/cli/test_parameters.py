"""Options and arguments: parsing, refusal and completion."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from processes import ROOT

from aioinformer.cli.commands import aioinformer
from aioinformer.cli.parameters import run_typed, seconds_in

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10", 10.0),
        ("10s", 10.0),
        ("1.5m", 90.0),
        ("1h30m", 5400.0),
        ("1d", 86400.0),
        ("250ms", 0.25),
        ("10x", None),
        ("10 s", None),
        ("s", None),
        ("", None),
        ("1h30", None),
    ],
)
def test_durations_have_units_of_kubectl(text: str, seconds: float | None) -> None:
    assert seconds_in(text) == seconds


def refused(
    *arguments: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> str:
    """Return the error line for invalid arguments."""
    monkeypatch.setattr(sys, "argv", ["aioinformer", *arguments])

    assert run_typed(aioinformer) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    return err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(["dance"], "No such command 'dance'", id="command"),
        pytest.param(["watch"], "Missing argument 'RESOURCE'", id="argument"),
        pytest.param(["watch", "po", "--frob"], "'--frob'", id="option"),
        pytest.param(
            ["watch", "po", "-o", "xml"], "'wide', 'json', 'yaml', 'name'", id="choice"
        ),
        pytest.param(
            ["watch", "po", "--for", "0"], "omit --for to run until Ctrl-C", id="zero"
        ),
        pytest.param(["watch", "po", "--for", "-3s"], "such as 30s", id="negative"),
        pytest.param(["watch", "po", "--for", "soon"], "such as 30s", id="junk"),
        pytest.param(["watch", "po", "--for", "inf"], "such as 30s", id="endless"),
        pytest.param(
            ["watch", "po", "-n", ""], "use -A for all namespaces", id="empty"
        ),
        pytest.param(
            ["watch", "po", "-n", "a,b"],
            "write -n a -n b, or use -A",
            id="namespaces-by-comma",
        ),
        pytest.param(
            ["watch", "po", "-n", "a b"],
            "write -n a -n b, or use -A",
            id="namespaces-by-blank",
        ),
        pytest.param(
            ["doctor", "-n", "a,b"],
            "write -n a -n b, or use -A",
            id="namespaces-of-doctor",
        ),
        pytest.param(["demo", "po"], "argument (po). Try", id="extra-argument"),
        pytest.param(["demo", "--churn", "nan"], "not a finite number", id="nan"),
        pytest.param(["completion", "tcsh"], "'bash', 'fish', 'zsh'", id="shell"),
    ],
)
def test_usage_error_is_one_line(
    arguments: list[str],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    line = refused(*arguments, monkeypatch=monkeypatch, capsys=capsys)

    assert line.startswith("aioinformer: ")
    assert words in line
    assert line.endswith("--help'.\n")


@pytest.mark.parametrize("words", [[], ["shards"], ["cache"]])
def test_command_without_arguments_prints_help(
    words: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["aioinformer", *words])

    assert run_typed(aioinformer) == 0
    assert "Commands:" in capsys.readouterr().out


def test_help_of_each_command_has_example() -> None:
    for name in ["demo", "watch", "doctor", "apiserver", "completion"]:
        result = CliRunner().invoke(aioinformer, [name, "--help"])

        assert result.exit_code == 0
        assert (
            f"  Example:\n    {'source <(' * (name == 'completion')}aioinformer {name}"
            in (result.output)
        )


@pytest.mark.parametrize("shell", ["bash", "fish", "zsh"])
def test_completion_prints_script_for_each_shell(shell: str) -> None:
    result = CliRunner().invoke(aioinformer, ["completion", shell])

    assert result.exit_code == 0
    assert f"_AIOINFORMER_COMPLETE={shell}_complete" in result.output


def test_completion_offers_plural_and_short_names(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "COMP_WORDS": "aioinformer watch de",
        "COMP_CWORD": "2",
        "_AIOINFORMER_COMPLETE": "bash_complete",
        "HOME": str(tmp_path),
    }
    code = "from aioinformer.cli.main import main; main()"
    command = [sys.executable, "-c", code]
    result = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )

    assert result.stdout.split() == ["plain,deploy", "plain,deployments"]
    assert result.stderr == ""
