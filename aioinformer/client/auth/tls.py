"""`TLSOptions`: trusted authorities and client certificates."""

from __future__ import annotations

import binascii
import re
import ssl
import tempfile
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from aioinformer.client.auth.credentials import is_transient
from aioinformer.errors import OptionsError

__all__ = ["TLSOptions", "expiry_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TLSOptions:
    """TLS settings of a client. Ignored for a server at `http://`.

    Certificates and keys are PEM, as bytes or as a path of a file.
    """

    ca: bytes | Path | None = field(default=None, repr=False)
    """Trusted authorities; None for those of the system."""

    certificate: bytes | Path | None = field(default=None, repr=False)
    """Client certificate with its chain; requires `key`."""

    key: bytes | Path | None = field(default=None, repr=False)
    """Key of `certificate`, without a passphrase."""

    server_name: str = ""
    """Name in the server's certificate, if it differs from the URL's host."""

    verify: bool = True
    """False accepts every certificate, so that anybody on the network path can read
    requests and act as this client."""

    ca_of: str = field(default="", repr=False, compare=False)
    """Place that configures `ca`, for errors: `cluster 'main' in ~/.kube/config`."""

    certificate_of: str = field(default="", repr=False, compare=False)
    """Place that configures `certificate` and `key`, for errors."""

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise OptionsError("certificate and key must be passed together")

    @property
    def files(self) -> tuple[Path, ...]:
        """Files among the settings. They may be replaced at any time."""
        every = (self.ca, self.certificate, self.key)
        return tuple(each for each in every if isinstance(each, Path))

    def stamp(self) -> tuple[object, ...]:
        """Return a value that changes when a file changes. Blocks: call it in a thread."""
        return tuple(_stamp(each) for each in self.files)

    def authorities(self) -> bytes | None:
        """Return the trusted authorities; None for those of the system, or for any.

        Blocks if they are in a file: call it in a thread.

        Raises:
            OSError: If the file cannot be read.
        """
        if not self.verify or self.ca is None:
            return None

        return self.ca if isinstance(self.ca, bytes) else self.ca.read_bytes()

    def context(self) -> ssl.SSLContext:
        """Read the files and build the SSL context. Blocks: call it in a thread.

        Raises:
            OptionsError: If a file cannot be read or is not PEM, or the client's
                certificate has expired.
            OSError: If this machine is out of open files, or of space for temporary
                files.
        """
        context = self._trust()
        # Python 3.13 rejects certificates without key identifiers, which many clusters
        # have. Go and older Pythons accept them.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        context.set_alpn_protocols(["http/1.1"])

        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE

        if self.certificate is not None and self.key is not None:
            _load_chain(context, self.certificate, self.key, self.certificate_of)

        return context

    def _trust(self) -> ssl.SSLContext:
        if self.ca is None or not self.verify:
            return ssl.create_default_context()

        where = _name(self.ca, "certificate-authority", self.ca_of)
        try:
            pem = self.authorities() or b""
            # Comments between certificates may contain any characters; PEM is ASCII.
            text = pem.decode("ascii", "ignore").strip()
            if not text:
                # `ssl` would treat this as None and trust the authorities of the
                # system.
                raise OptionsError(f"the certificate authority {where} is empty")

            return ssl.create_default_context(cadata=text)
        except OSError as exc:  # ssl.SSLError is one too
            if is_transient(exc):
                raise

            raise OptionsError(
                f"cannot use the certificate authority {where}: {exc}. "
                "It must be a readable file, or data, of PEM certificates."
            ) from exc


def _load_chain(
    context: ssl.SSLContext, certificate: bytes | Path, key: bytes | Path, of: str
) -> None:
    named = _name(certificate, "client-certificate", of)
    _refuse_expired(certificate, named)
    # `ssl` reads chains only from files, so data is written to a private directory.
    with _private_folder() as folder:
        chain = _as_file(certificate, Path(folder, "certificate.pem"))
        secret = _as_file(key, Path(folder, "key.pem"))
        try:
            # Without a password, OpenSSL would prompt for one on the terminal.
            context.load_cert_chain(chain, secret, password="")
        except (OSError, ValueError) as exc:
            if isinstance(exc, OSError) and is_transient(exc):
                raise

            raise OptionsError(
                f"cannot use the client certificate {named} with the key "
                f"{_name(key, 'client-key', of)}: {exc}. Both must be readable PEM, belong together, and "
                "the key must have no passphrase."
            ) from exc


def _private_folder() -> tempfile.TemporaryDirectory[str]:
    try:
        return tempfile.TemporaryDirectory(
            prefix="aioinformer-", ignore_cleanup_errors=True
        )
    except OSError as exc:
        raise _unwritten(exc) from exc


def _unwritten(exc: OSError) -> OSError:
    """Return an error of the same kind that names what could not be written."""
    reason = exc.strerror or exc
    return OSError(
        exc.errno,
        f"cannot write the client certificate to a temporary folder: {reason}",
    )


def _refuse_expired(certificate: bytes | Path, named: str) -> None:
    """Raise for an expired certificate: a server only answers 401, or fails TLS."""
    try:
        pem = (
            certificate if isinstance(certificate, bytes) else certificate.read_bytes()
        )
    except OSError:
        return  # loading it reports that

    ends = expiry_of(pem)
    if ends is not None and ends <= datetime.now(tz=UTC):
        raise OptionsError(
            f"the client certificate {named} expired at "
            f"{ends:%Y-%m-%d %H:%M} UTC: renew it, or check the clock of this machine"
        )


def _stamp(file: Path) -> tuple[int, ...]:
    try:
        seen = file.stat()
    except OSError:
        return ()

    return seen.st_mtime_ns, seen.st_ino, seen.st_size


def _as_file(material: bytes | Path, spare: Path) -> Path:
    if isinstance(material, Path):
        return material

    try:
        spare.touch(mode=0o600)
        spare.write_bytes(material)
    except OSError as exc:
        raise _unwritten(exc) from exc

    return spare


def _name(material: bytes | Path, key: str, of: str) -> str:
    if isinstance(material, Path):
        return f"{material} ({key} of {of})" if of else str(material)

    return f"given as {key}-data of {of}" if of else "given as data"


_PEM = re.compile(
    rb"-----BEGIN CERTIFICATE-----\s(.*?)-----END CERTIFICATE-----", re.DOTALL
)


# DER tags before or in the validity of a certificate (RFC 5280, 4.1).
_VERSION = 0xA0


_UTC_TIME = 0x17


class _Element(NamedTuple):
    tag: int
    start: int
    end: int


def expiry_of(pem: bytes) -> datetime | None:
    """Return the expiry of the first certificate of a chain.

    Args:
        pem: One or more certificates.

    Returns:
        Time in UTC; None if it cannot be parsed, which loading the certificate
        reports in more detail.
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

    # Serial number, signature, issuer, then the validity: its start and its end.
    for _ in range(3):
        each = _element(der, each.end)

    begins = _element(der, each.start)
    ends = _element(der, begins.end)
    text = der[ends.start : ends.end].decode("ascii")
    if ends.tag == _UTC_TIME:
        # A year of two digits: 50 and more are of the 20th century.
        text = ("19" if text >= "50" else "20") + text

    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _element(der: bytes, at: int) -> _Element:
    length, start = der[at + 1], at + 2
    if length & 0x80:
        count = length & 0x7F
        length = int.from_bytes(der[start : start + count])
        start += count

    return _Element(der[at], start, start + length)
