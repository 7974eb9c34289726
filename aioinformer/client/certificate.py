"""When a certificate ends: the one thing that `ssl` does not tell of our own."""

from __future__ import annotations

import binascii
import re
from datetime import UTC, datetime
from typing import NamedTuple

__all__ = ["expiry_of"]

_PEM = re.compile(
    rb"-----BEGIN CERTIFICATE-----\s(.*?)-----END CERTIFICATE-----", re.DOTALL
)

# Tags of DER that stand before or in the validity of a certificate (RFC 5280, 4.1).
_VERSION = 0xA0
_UTC_TIME = 0x17


class _Element(NamedTuple):
    tag: int
    start: int
    end: int


def expiry_of(pem: bytes) -> datetime | None:
    """When the first certificate of a chain expires.

    Args:
        pem: One or more certificates.

    Returns:
        A time in UTC; None if there is none to be found, about which whoever loads the
        certificate has more to say.
    """
    found = _PEM.search(pem)
    if found is None:
        return None

    try:
        return _expiry(binascii.a2b_base64(found[1]))
    except (ValueError, IndexError):
        return None


def _expiry(der: bytes) -> datetime:
    certificate = _element(der, 0)
    signed = _element(der, certificate.start)
    each = _element(der, signed.start)
    if each.tag == _VERSION:
        each = _element(der, each.end)

    # Serial number, signature, issuer, and then the validity: its begin, its end.
    for _ in range(3):
        each = _element(der, each.end)

    begins = _element(der, each.start)
    ends = _element(der, begins.end)
    text = der[ends.start : ends.end].decode("ascii")
    if ends.tag == _UTC_TIME:
        # Two digits of the year: 50 and more are of the century before.
        text = ("19" if text >= "50" else "20") + text

    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _element(der: bytes, at: int) -> _Element:
    length, start = der[at + 1], at + 2
    if length & 0x80:
        count = length & 0x7F
        length = int.from_bytes(der[start : start + count])
        start += count

    return _Element(der[at], start, start + length)
