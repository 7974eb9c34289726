"""`TLSOptions`: whom to trust, and how to prove who we are."""

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
    """How one client speaks TLS. No effect for a server at `http://`.

    Certificates and keys are PEM, given as bytes or as the file that holds them.
    """

    ca: bytes | Path | None = field(default=None, repr=False)
    """Trust these authorities only; None trusts those of the system."""

    certificate: bytes | Path | None = field(default=None, repr=False)
    """The client's certificate, with its chain; it needs `key` as well."""

    key: bytes | Path | None = field(default=None, repr=False)
    """The key of `certificate`, without a passphrase."""

    server_name: str = ""
    """The name the server's certificate must have, where it differs from the URL's."""

    verify: bool = True
    """False accepts every certificate: whoever is in between reads all and acts as us."""

    ca_of: str = field(default="", repr=False, compare=False)
    """Who names `ca`, for errors: `cluster 'main' in ~/.kube/config`."""

    certificate_of: str = field(default="", repr=False, compare=False)
    """Who names `certificate` and `key`."""

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise OptionsError("a client certificate and its key go together")

    @property
    def files(self) -> tuple[Path, ...]:
        """Those that are read, which may be replaced by others at any time."""
        every = (self.ca, self.certificate, self.key)
        return tuple(each for each in every if isinstance(each, Path))

    def stamp(self) -> tuple[object, ...]:
        """What changes when one of the files does. Blocks: call it in a thread."""
        return tuple(_stamp(each) for each in self.files)

    def context(self) -> ssl.SSLContext:
        """Read the files and build the SSL context. Blocks: call it in a thread.

        Raises:
            OptionsError: If a file cannot be read or does not hold PEM, or the client's
                certificate has expired.
            OSError: If this machine has no open files left, or no space for temporary
                ones.
        """
        context = self._trust()
        # Python 3.13 began to refuse certificates without key identifiers, which is
        # what many clusters have; Go and older Pythons accept them.
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
            pem = self.ca if isinstance(self.ca, bytes) else self.ca.read_bytes()
            # Comments between certificates may be in any language; PEM is ASCII.
            text = pem.decode("ascii", "ignore").strip()
            if not text:
                # `ssl` takes this for "none given" and trusts those of the system.
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
    # `ssl` reads chains from files only, so data goes through a private directory.
    with _private_folder() as folder:
        chain = _as_file(certificate, Path(folder, "certificate.pem"))
        secret = _as_file(key, Path(folder, "key.pem"))
        try:
            # The password keeps OpenSSL from asking for one on the terminal.
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
    """Another error of the same kind, which says what could not be written."""
    reason = exc.strerror or exc
    return OSError(
        exc.errno,
        f"cannot write the client certificate to a temporary folder: {reason}",
    )


def _refuse_expired(certificate: bytes | Path, named: str) -> None:
    """A server says no more of it than 401, or that the handshake failed."""
    try:
        pem = (
            certificate if isinstance(certificate, bytes) else certificate.read_bytes()
        )
    except OSError:
        return  # whoever loads it says so

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
