"""`TLSOptions`: whom to trust, and how to prove who we are."""

from __future__ import annotations

import ssl
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from aioinformer.errors import OptionsError

__all__ = ["TLSOptions"]


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

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise OptionsError("a client certificate and its key go together")

    def context(self) -> ssl.SSLContext:
        """Read the files and build the SSL context. Blocks: call it in a thread.

        Raises:
            OptionsError: If a file cannot be read or does not hold PEM.
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
            _load_chain(context, self.certificate, self.key)

        return context

    def _trust(self) -> ssl.SSLContext:
        if self.ca is None or not self.verify:
            return ssl.create_default_context()

        where = _name(self.ca)
        try:
            pem = self.ca if isinstance(self.ca, bytes) else self.ca.read_bytes()
            # Comments between certificates may be in any language; PEM is ASCII.
            text = pem.decode("ascii", "ignore").strip()
            if not text:
                # `ssl` takes this for "none given" and trusts those of the system.
                raise OptionsError(f"the certificate authority {where} is empty")

            return ssl.create_default_context(cadata=text)
        except OSError as exc:  # ssl.SSLError is one too
            raise OptionsError(
                f"cannot use the certificate authority {where}: {exc}. "
                "It must be a readable file, or data, of PEM certificates."
            ) from exc


def _load_chain(
    context: ssl.SSLContext, certificate: bytes | Path, key: bytes | Path
) -> None:
    # `ssl` reads chains from files only, so data goes through a private directory.
    with tempfile.TemporaryDirectory(prefix="aioinformer-") as folder:
        chain = _as_file(certificate, Path(folder, "certificate.pem"))
        secret = _as_file(key, Path(folder, "key.pem"))
        try:
            # The password keeps OpenSSL from asking for one on the terminal.
            context.load_cert_chain(chain, secret, password="")
        except (OSError, ValueError) as exc:
            raise OptionsError(
                f"cannot use the client certificate {_name(certificate)} with the key "
                f"{_name(key)}: {exc}. Both must be readable PEM, belong together, and "
                "the key must have no passphrase."
            ) from exc


def _as_file(material: bytes | Path, spare: Path) -> Path:
    if isinstance(material, Path):
        return material

    spare.touch(mode=0o600)
    spare.write_bytes(material)
    return spare


def _name(material: bytes | Path) -> str:
    return str(material) if isinstance(material, Path) else "given as data"
