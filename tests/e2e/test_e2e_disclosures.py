"""The search for secrets finds them in any encoding."""

from __future__ import annotations

import base64
import json
import logging
from typing import TYPE_CHECKING

import pytest
from disclosures import disclosed, main, note, secret

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "marker-0123456789abcdef"


def basic(name: str) -> str:
    return base64.b64encode(f"{name}:{SECRET}".encode()).decode()


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(f"Authorization: Bearer {SECRET}", id="plain"),
        pytest.param(json.dumps({"data": {"key": basic("")[:-1]}}), id="json"),
        pytest.param(base64.b64encode(SECRET.encode()).decode(), id="base64"),
        *[
            pytest.param(f"Basic {basic('a' * length)}", id=f"behind {length}")
            for length in range(3)
        ],
    ],
)
def test_secret_is_found(tmp_path: Path, line: str) -> None:
    record = tmp_path / "record.log"
    record.write_text(f"nothing\n{line}\n")

    (found,) = {it.rpartition(": ")[0] for it in disclosed([SECRET], [record])}

    assert found.startswith("record.log:2")


def test_part_of_a_token_is_found(tmp_path: Path) -> None:
    signature = "s" * 86
    record = tmp_path / "record.log"
    record.write_text(f"... {signature}\n")

    (found,) = disclosed([f"head.{'p' * 200}.{signature}"], [record])

    assert signature not in found


def test_noted_objects_are_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AIOINFORMER_E2E_RECORD", str(tmp_path))
    secret(SECRET)
    handler = logging.FileHandler(tmp_path / "1.log")
    logger = logging.getLogger("aioinformer.e2e")
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        note("an informer")
        assert main([str(tmp_path)]) == 0
        note(ValueError("harmless", {"data": SECRET}))
        assert main([str(tmp_path)]) == 1
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)
        handler.close()

    said = capsys.readouterr()
    assert "None of 1 secrets" in said.out
    assert "a secret was disclosed: 1.log:" in said.err
    assert SECRET not in said.err


def test_empty_record_is_an_error(tmp_path: Path) -> None:
    assert main([str(tmp_path)]) == 1
