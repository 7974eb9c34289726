"""Kubeconfig files: read, merged as kubectl merges them, and one context taken out."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from aioinformer.client.config import ClientConfig
from aioinformer.client.credentials import Credentials
from aioinformer.client.kubeconfig_entry import Entry, at_home
from aioinformer.client.kubeconfig_user import user_credentials, user_headers
from aioinformer.client.proxies import proxy_of_environment
from aioinformer.client.tls import TLSOptions
from aioinformer.errors import OptionsError
from aioinformer.model.yaml_values import MOST_BYTES, YAMLError, decoded_yaml

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

__all__ = ["Kubeconfig", "default_paths", "load_kubeconfig"]


def default_paths() -> tuple[list[Path], str]:
    """The files to read when none is named, and where their names come from."""
    listed = os.environ.get("KUBECONFIG", "")
    if listed:
        paths = [at_home(part) for part in listed.split(os.pathsep) if part]
        return paths, "KUBECONFIG"

    return [at_home("~/.kube/config")], "the default, as KUBECONFIG is not set"


def load_kubeconfig(
    path: str | Path | None = None, context: str | None = None
) -> ClientConfig:
    """Read kubeconfig files and resolve one context. Blocks: call it in a thread.

    Args:
        path: One file, which must exist; None for those of `KUBECONFIG` (where the
            first file to define a name wins), else `~/.kube/config`.
        context: None for the `current-context`.

    Raises:
        OptionsError: If there is no file, or one cannot be read or used; the text
            names the file and what to do.
    """
    if path is not None:
        paths, origin = [at_home(path)], "the caller"
    else:
        paths, origin = default_paths()

    found = Kubeconfig.read(paths)
    if found.empty:
        names = ", ".join(map(str, paths)) or "no file at all"
        raise OptionsError(
            f"no kubeconfig: {names} (from {origin}) does not exist or is empty. "
            "Name an existing file, or set KUBECONFIG."
        )

    return found.config(context)


class Kubeconfig:
    """The merged content of kubeconfig files."""

    def __init__(self) -> None:
        self._sections: dict[str, dict[str, Entry]] = {
            "clusters": {},
            "users": {},
            "contexts": {},
        }
        self._current = ""
        self._files: list[Path] = []

    @classmethod
    def read(cls, paths: Iterable[Path]) -> Kubeconfig:
        """Read and merge the files that exist: the first to define something wins.

        Raises:
            OptionsError: If a file exists and cannot be read.
        """
        merged = cls()
        for path in map(_absolute, paths):
            content = _read_file(path)
            if content is not None:
                merged._files.append(path)
                merged._merge(path, content)

        return merged

    @property
    def empty(self) -> bool:
        """True if no file defines a context, a cluster or a user."""
        return not any(self._sections.values())

    @property
    def current_context(self) -> str:
        """The context that is taken unless told; empty if no file names one."""
        return self._current

    @property
    def files(self) -> tuple[Path, ...]:
        """Those of the files that exist."""
        return tuple(self._files)

    def config(self, context: str | None = None) -> ClientConfig:
        """Resolve one context.

        Args:
            context: Its name; None for the `current-context`.

        Raises:
            OptionsError: If it does not exist, lacks something, or needs something
                that is not supported.
        """
        chosen = self._context(context)
        cluster = self._linked(chosen, "cluster", "clusters")
        if cluster is None:
            raise OptionsError(f"{chosen.where} names no cluster: add one to it")

        user = self._linked(chosen, "user", "users")
        server = _server(cluster)
        try:
            return ClientConfig(
                server=server,
                namespace=chosen.text("namespace") or "default",
                credentials=(
                    user_credentials(user, cluster) if user else Credentials()
                ),
                tls=_tls(cluster, user),
                proxy=cluster.text("proxy-url") or proxy_of_environment(server),
                headers=user_headers(user) if user else (),
            )
        except OptionsError as exc:
            if f"in {cluster.file}" in str(exc) or (user and user.where in str(exc)):
                raise

            raise OptionsError(f"{chosen.where}: {exc}") from exc.__cause__

    def _merge(self, path: Path, content: Mapping[str, Any]) -> None:
        current = Entry("the top level", path, content).text("current-context")
        self._current = self._current or current

        for section, entries in self._sections.items():
            for entry in _named(path, section, content.get(section)):
                entries.setdefault(entry[0], entry[1])

    def _context(self, name: str | None) -> Entry:
        contexts = self._sections["contexts"]
        known = ", ".join(sorted(contexts)) or "none"
        files = ", ".join(map(str, self._files))
        name = self._current if name is None else name

        if not name:
            raise OptionsError(
                f"no current-context in {files}: name one of its contexts ({known}), "
                "or run `kubectl config use-context`"
            )

        if name not in contexts:
            raise OptionsError(
                f"no context {name!r} in {files}; there are: {known}. Name one of them."
            )

        return contexts[name]

    def _linked(self, context: Entry, key: str, section: str) -> Entry | None:
        name = context.text(key)
        if not name:
            return None

        entry = self._sections[section].get(name)
        if entry is None:
            raise OptionsError(
                f"{context.where} names the {key} {name!r}, which is not defined: "
                f"add it under {section}"
            )

        return entry


def _absolute(path: Path) -> Path:
    """The path from the root, so that a later change of the folder does no harm."""
    try:
        return path.absolute()
    except OSError as exc:
        raise OptionsError(
            f"cannot find the kubeconfig {path}: the current folder is gone. "
            "Name it by its whole path."
        ) from exc


def _read_file(path: Path) -> Mapping[str, Any] | None:
    try:
        with path.open("rb") as file:
            text = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as exc:
        reason = getattr(exc, "strerror", None) or exc
        raise OptionsError(f"cannot read the kubeconfig {path}: {reason}") from exc

    try:
        content = decoded_yaml(text)
    except YAMLError as exc:
        line = f" at line {exc.line}" if exc.line else ""
        # Not chained: the text of the cause may quote a line that holds a token.
        raise OptionsError(
            f"the kubeconfig {path} is {exc.reason}{line}: mend it, or name another one"
        ) from None

    if content is None:
        return {}

    if not isinstance(content, dict):
        raise OptionsError(f"{path} is no kubeconfig: its top level must be a mapping")

    return content


def _named(path: Path, section: str, items: object) -> list[tuple[str, Entry]]:
    kind = section.removesuffix("s")
    entries: dict[str, Entry] = {}
    if items is not None and not isinstance(items, list):
        raise OptionsError(f"{section} in {path} must be a list of named {section}")

    for item in items or ():
        name = item.get("name") if isinstance(item, dict) else None
        data = item.get(kind) if isinstance(item, dict) else None
        if not isinstance(name, str) or not isinstance(data, dict | None):
            raise OptionsError(
                f"{section} in {path} must each have a name and a {kind}"
            )

        if name in entries:
            raise OptionsError(f"{section} in {path} has the name {name!r} twice")

        entries[name] = Entry(f"{kind} {name!r}", path, data or {})

    return list(entries.items())


def _server(cluster: Entry) -> str:
    server = cluster.text("server")
    if not server:
        raise OptionsError(f"{cluster.where} has no server: add its URL")

    return server if "://" in server else f"https://{server}"


def _tls(cluster: Entry, user: Entry | None) -> TLSOptions:
    certificate = user.material("client-certificate") if user else None
    key = user.material("client-key") if user else None
    if user and (certificate is None) != (key is None):
        raise OptionsError(
            f"{user.where} must have both client-certificate and client-key, or neither"
        )

    authority = cluster.material("certificate-authority")
    unverified = cluster.flag("insecure-skip-tls-verify")
    if authority is not None and unverified:
        raise OptionsError(
            f"{cluster.where} has a certificate-authority and insecure-skip-tls-verify: "
            "remove one, best the latter"
        )

    return TLSOptions(
        ca=authority,
        certificate=certificate,
        key=key,
        server_name=cluster.text("tls-server-name"),
        verify=not unverified,
        ca_of=cluster.where,
        certificate_of=user.where if user else "",
    )
