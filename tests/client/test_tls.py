"""`expiry_of`: the end of certificates made by openssl."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from credential_helpers import Authority

from aioinformer.client.auth.tls import expiry_of

if TYPE_CHECKING:
    from pathlib import Path


# Until 2049 a certificate has two digits for the year, later four.
@pytest.mark.parametrize("days", [-1, 2, 4000, 20_000])
def test_expiry_of_reads_end_of_certificate(tmp_path: Path, days: int) -> None:
    authority = Authority(tmp_path)
    before = datetime.now(tz=UTC).timestamp() + days * 86_400
    certificate, _ = authority.sign("me", days=days)

    found = expiry_of(certificate.read_bytes())

    assert found is not None
    after = datetime.now(tz=UTC).timestamp() + days * 86_400
    assert before - 1 <= found.timestamp() <= after + 1


def test_expiry_of_reads_first_certificate_of_chain(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, _ = authority.sign("me", days=1)
    comment = "Bag Attributes: é\n".encode()
    chain = comment + certificate.read_bytes() + authority.file.read_bytes()

    assert expiry_of(chain) == expiry_of(certificate.read_bytes())


def test_expiry_of_malformed_certificate_is_none(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    der = ssl.PEM_cert_to_DER_cert(authority.file.read_text())

    assert expiry_of(b"") is None
    assert (
        expiry_of(b"-----BEGIN CERTIFICATE-----\n%\n-----END CERTIFICATE-----") is None
    )
    for length in range(0, 60, 3):
        assert expiry_of(ssl.DER_cert_to_PEM_cert(der[:length]).encode()) is None
