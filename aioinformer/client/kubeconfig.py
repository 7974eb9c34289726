"""Kubeconfig files: reading, merging as in kubectl, and resolving a context."""

from __future__ import annotations

import base64
import binascii
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from aioinformer._tasks import in_thread
from aioinformer._user_code import guarded_logger
from aioinformer.client.auth.credentials import AuthInfo, Credentials, bearer
from aioinformer.client.auth.exec_plugin import API_VERSIONS, ExecPlugin
from aioinformer.client.auth.tls import TLSOptions
from aioinformer.client.config import (
    ClientConfig,
    impersonation_headers,
    is_loopback,
    proxy_of_environment,
)
from aioinformer.errors import OptionsError
from aioinformer.model.yaml_values import MOST_BYTES, YAMLError, decoded_yaml

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "Kubeconfig",
    "KubeconfigEntry",
    "default_paths",
    "describe_absent",
    "expand_home",
    "load_kubeconfig",
    "user_credentials",
    "user_headers",
]

logger: Final = guarded_logger(__name__)


def default_paths() -> tuple[list[Path], str]:
    """Return the default kubeconfig files, and the origin of their names."""
    listed = os.environ.get("KUBECONFIG", "")
    if listed:
        paths = [expand_home(part) for part in listed.split(os.pathsep) if part]
        return paths, "KUBECONFIG"

    return [expand_home("~/.kube/config")], "the default, as KUBECONFIG is not set"


def describe_absent(paths: Iterable[Path], *, named: bool = False) -> str:
    """Return why there is no configuration in these files.

    Args:
        paths: The files.
        named: True if the caller named them; False if they are `default_paths()`.
    """
    found = [
        f"{path} {'is empty' if path.exists() else 'does not exist'}"
        for path in map(_absolute, paths)
    ]
    reasons = ", ".join(found) or "it is empty"
    if named:
        return reasons

    if os.environ.get("KUBECONFIG"):
        return f"KUBECONFIG lists no usable file: {reasons}"

    return f"KUBECONFIG is not set, and {reasons}"


def load_kubeconfig(
    path: str | Path | None = None, context: str | None = None
) -> ClientConfig:
    """Read kubeconfig files and resolve one context. Blocks: call it in a thread.

    Args:
        path: One file, which must exist; None for those of `KUBECONFIG` (the first file
            to define a name wins), else `~/.kube/config`.
        context: Context; None for the `current-context`.

        Raises:
            OptionsError: If there is no file, or one cannot be read or used; the text
                names the file and the remedy.
    """
    paths = default_paths()[0] if path is None else [expand_home(path)]
    found = Kubeconfig.read(paths)
    if found.empty:
        why = describe_absent(paths, named=path is not None)
        raise OptionsError(
            f"no kubeconfig found. {why}. Pass an existing file, or set KUBECONFIG."
        )

    return found.config(context)


class Kubeconfig:
    """Merged content of kubeconfig files."""

    def __init__(self) -> None:
        self._sections: dict[str, dict[str, KubeconfigEntry]] = {
            "clusters": {},
            "users": {},
            "contexts": {},
        }
        self._current = ""
        self._files: list[Path] = []

    @classmethod
    def read(cls, paths: Iterable[Path]) -> Kubeconfig:
        """Read and merge the existing files. The first definition of a name wins.

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
        """Value of `current-context`; empty if no file sets one."""
        return self._current

    @property
    def files(self) -> tuple[Path, ...]:
        """Files that exist."""
        return tuple(self._files)

    def config(self, context: str | None = None) -> ClientConfig:
        """Resolve one context.

        Args:
            context: Name of the context; None for the `current-context`.

        Raises:
            OptionsError: If it does not exist, is incomplete, or uses an unsupported
                feature.
        """
        chosen = self._context(context)
        cluster = self._linked(chosen, "cluster", "clusters")
        if cluster is None:
            raise OptionsError(f"{chosen.where} has no cluster: add one to it")

        server = _server(cluster)
        user = _safe(self._linked(chosen, "user", "users"), cluster, server)
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
        current = KubeconfigEntry("the top level", path, content).text(
            "current-context"
        )
        self._current = self._current or current

        for section, entries in self._sections.items():
            for entry in _named(path, section, content.get(section)):
                entries.setdefault(entry[0], entry[1])

    def _context(self, name: str | None) -> KubeconfigEntry:
        contexts = self._sections["contexts"]
        known = ", ".join(sorted(contexts)) or "none"
        files = ", ".join(map(str, self._files))
        name = self._current if name is None else name

        if not name:
            raise OptionsError(
                f"no current-context in {files}: choose one of its contexts ({known}), "
                "or run `kubectl config use-context`"
            )

        if name not in contexts:
            raise OptionsError(
                f"no context {name!r} in {files}. Existing contexts: {known}"
            )

        return contexts[name]

    def _linked(
        self, context: KubeconfigEntry, key: str, section: str
    ) -> KubeconfigEntry | None:
        name = context.text(key)
        if not name:
            return None

        entry = self._sections[section].get(name)
        if entry is None:
            raise OptionsError(
                f"{context.where} refers to the {key} {name!r}, which is not defined: "
                f"add it under {section}"
            )

        return entry


def _absolute(path: Path) -> Path:
    """Return an absolute path, which a later change of directory does not affect."""
    try:
        return path.absolute()
    except OSError as exc:
        raise OptionsError(
            f"cannot find the kubeconfig {path}: the current directory was deleted. "
            "Pass an absolute path."
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
        line = f" (line {exc.line})" if exc.line else ""
        # Not chained: the text of the cause may quote a line with a token.
        raise OptionsError(
            f"the kubeconfig {path} is {exc.reason}{line}. Fix it, or use another one."
        ) from None

    if content is None:
        return {}

    if not isinstance(content, dict):
        raise OptionsError(
            f"{path} is not a kubeconfig: its top level must be a mapping"
        )

    kind = content.get("kind")
    if isinstance(kind, str) and kind not in {"", "Config"}:
        raise OptionsError(f"{path} is not a kubeconfig: it has kind {kind!r}")

    return content


def _named(
    path: Path, section: str, items: object
) -> list[tuple[str, KubeconfigEntry]]:
    kind = section.removesuffix("s")
    entries: dict[str, KubeconfigEntry] = {}
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

        entries[name] = KubeconfigEntry(f"{kind} {name!r}", path, data or {})

    return list(entries.items())


def _server(cluster: KubeconfigEntry) -> str:
    server = cluster.text("server")
    if not server:
        raise OptionsError(f"{cluster.where} has no server: add its URL")

    return server if "://" in server else f"https://{server}"


def _safe(
    user: KubeconfigEntry | None, cluster: KubeconfigEntry, server: str
) -> KubeconfigEntry | None:
    """Return the user, or None if its credentials would leave the machine unencrypted.

    Source: client-go's clientcmd reads the user for HTTPS only. Here, a server on this
    machine gets them, too: a test server has users without a certificate.
    """
    try:
        url = urlsplit(server.strip())
        stays = is_loopback(url.hostname or "") and not cluster.text("proxy-url")
    except ValueError:  # the configuration reports it
        return None

    if user is None or url.scheme.lower() != "http" or stays:
        return user

    logger.warning(
        "%s is ignored, as the server of %s is no https:// URL: everybody on the way "
        "could read its credentials",
        user.where,
        cluster.where,
    )
    return None


def _tls(cluster: KubeconfigEntry, user: KubeconfigEntry | None) -> TLSOptions:
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
            "remove one, preferably the latter"
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


@dataclass(frozen=True, slots=True)
class KubeconfigEntry:
    """Named cluster, user or context, or a part of one, with the file that defines it.

    Every method raises `OptionsError`, which names the file and the field, for values
    of the wrong type. Null counts as absent.
    """

    title: str
    file: Path
    data: Mapping[str, Any] = field(repr=False)

    @property
    def where(self) -> str:
        """Location for errors: `user 'me' in ~/.kube/config`."""
        return f"{self.title} in {self.file}"

    def text(self, key: str) -> str:
        """Return a string field; empty if absent."""
        value = self.data.get(key)
        if value is None:
            return ""

        if not isinstance(value, str):
            raise OptionsError(f"{key} of {self.where} must be a string: quote it")

        return value

    def flag(self, key: str) -> bool:
        """Return a boolean field; false if absent."""
        value = self.data.get(key)
        if not isinstance(value, bool | None):
            raise OptionsError(f"{key} of {self.where} must be true or false, unquoted")

        return bool(value)

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of strings; empty if absent."""
        value = self.data.get(key) or []
        if not isinstance(value, list) or not all(isinstance(it, str) for it in value):
            raise OptionsError(
                f"{key} of {self.where} must be a list of strings: quote each"
            )

        return tuple(value)

    def part(self, key: str) -> KubeconfigEntry | None:
        """Return a nested mapping; None if absent or empty."""
        value = self.data.get(key)
        if not isinstance(value, dict | None):
            raise OptionsError(f"{key} of {self.where} must be a mapping")

        return (
            KubeconfigEntry(f"{key} of {self.title}", self.file, value)
            if value
            else None
        )

    def parts(self, key: str) -> list[KubeconfigEntry]:
        """Return a list of nested mappings; empty if absent."""
        value = self.data.get(key) or []
        if not isinstance(value, list) or not all(isinstance(it, dict) for it in value):
            raise OptionsError(f"{key} of {self.where} must be a list of mappings")

        return [
            KubeconfigEntry(f"{key} of {self.title}", self.file, each) for each in value
        ]

    def path(self, key: str) -> Path | None:
        """Return the path in a field, relative to the kubeconfig file; None if absent."""
        name = self.text(key)
        if "\0" in name:
            raise OptionsError(f"{key} of {self.where} is not a path")

        return self.file.parent / expand_home(name) if name else None

    def material(self, key: str) -> bytes | Path | None:
        """Return embedded data, which takes precedence, or the path of the file."""
        encoded = self.text(f"{key}-data")
        if not encoded:
            return self.path(key)

        try:
            return base64.b64decode("".join(encoded.split()), validate=True)
        except ValueError as exc:  # binascii.Error is one, non-ASCII text another
            message = f"{key}-data of {self.where} is not base64"
            raise OptionsError(message) from (
                exc if isinstance(exc, binascii.Error) else None
            )


def expand_home(path: str | Path) -> Path:
    """Expand a leading `~` if the home directory is known."""
    # Not Path.expanduser(): it raises for a user without a home directory, as in pods
    # with an arbitrary user id.
    return Path(os.path.expanduser(path))


# Extension of a cluster with the configuration for its plugins.
_EXTENSION = "client.authentication.k8s.io/exec"


# Fields of a cluster that are passed to a plugin, under the same names.
_PASSED_FIELDS = ("server", "tls-server-name", "proxy-url")


_PASSED_FLAGS = ("insecure-skip-tls-verify", "disable-compression")


# Replacements of the providers that were built into kubectl.
_REPLACEMENTS = {
    "gcp": "install gke-gcloud-auth-plugin and run "
    "`gcloud container clusters get-credentials` again",
    "azure": "install kubelogin and run `kubelogin convert-kubeconfig`",
    "oidc": "use kubelogin (`kubectl oidc-login`) as an exec plugin, or put its "
    "id-token into `token`",
}


def user_credentials(user: KubeconfigEntry, cluster: KubeconfigEntry) -> Credentials:
    """Create the credentials of a user. A token takes precedence over an exec plugin.

    Args:
        user: Entry of `users`.
        cluster: Entry of `clusters` that they are for.

    Raises:
        OptionsError: If a field cannot be used, or fields contradict each other; the
            text names them and the file.
    """
    plugin, provider = user.part("exec"), user.part("auth-provider")
    token, token_file = user.text("token"), user.path("tokenFile")
    username = user.text("username")
    if username and (token or token_file):
        raise OptionsError(f"{user.where} has a token and a username: remove one")

    if plugin and provider:
        raise OptionsError(f"{user.where} has exec and auth-provider: remove one")

    try:
        if not plugin or token or token_file or username:
            if provider and not (token or token_file or username):
                raise _no_provider(user, provider)

            inline = _InlineToken(user) if token and not token_file else None
            return Credentials(
                token=token,
                token_file=token_file,
                source=None if inline is None else inline.auth_info,
                username=username,
                password=user.text("password"),
            )
    except OptionsError as exc:
        if user.where in str(exc):
            raise

        raise OptionsError(f"{user.where}: {exc}") from exc

    return Credentials(source=_plugin(user, plugin, cluster).auth_info)


class _InlineToken:
    """Token of a user, read again after a 401 if its kubeconfig was written since.

    (client-go reads it once.) A pipe or a device can only be read once, so only regular
    files count.
    """

    def __init__(self, user: KubeconfigEntry) -> None:
        self._user = user
        self._stamp = self._stamp_of_file()

    def __str__(self) -> str:
        return f"the token of {self._user.where}"

    async def auth_info(self) -> AuthInfo:
        token = await in_thread(self._read)
        return AuthInfo(authorization=bearer(token, str(self)))

    def _read(self) -> str:
        stamp = self._stamp_of_file()
        if stamp is not None and stamp != self._stamp:
            content = _read_file(self._user.file) or {}
            entries = _named(self._user.file, "users", content.get("users"))
            users = {entry.title: entry for _, entry in entries}
            # Only a complete file replaces the old token.
            user = users.get(self._user.title)
            if user is None or not user.text("token"):
                raise OptionsError(f"{self._user.where} has no token any more")

            self._user, self._stamp = user, stamp

        return self._user.text("token")

    def _stamp_of_file(self) -> tuple[int, int, int] | None:
        try:
            found = self._user.file.stat()
        except OSError:
            return None

        if not stat.S_ISREG(found.st_mode):
            return None

        return found.st_mtime_ns, found.st_size, found.st_ino


def user_headers(user: KubeconfigEntry) -> tuple[tuple[str, str], ...]:
    """Return the impersonation headers of a user, if the entry has any.

    Raises:
        OptionsError: If a field cannot be used; the text names it and the file.
    """
    uid, groups = user.text("as-uid"), user.texts("as-groups")
    extra = user.part("as-user-extra")
    named = {key: extra.texts(key) for key in extra.data} if extra else {}
    if not (user.text("as") or uid or groups or named):
        return ()

    try:
        return impersonation_headers(
            user.text("as"), uid=uid, groups=groups, extra=named
        )
    except OptionsError as exc:
        raise OptionsError(f"{user.where}: {exc}: add `as`") from exc


def _plugin(
    user: KubeconfigEntry, plugin: KubeconfigEntry, cluster: KubeconfigEntry
) -> ExecPlugin:
    command, version = plugin.text("command"), plugin.text("apiVersion")
    if not command:
        raise OptionsError(f"{plugin.where} has no command")

    if not version:
        raise OptionsError(
            f"{plugin.where} has no apiVersion: add {' or '.join(API_VERSIONS)}"
        )

    if os.path.dirname(command):
        # A path relative to the kubeconfig file, not to the working directory.
        command = str(plugin.path("command"))

    mode = plugin.text("interactiveMode")
    if not mode and version == API_VERSIONS[0]:
        raise OptionsError(
            f"{plugin.where} has no interactiveMode, which {version} needs: add Never, "
            "IfAvailable or Always"
        )

    passed = plugin.flag("provideClusterInfo")
    return ExecPlugin(
        command=command,
        where=user.where,
        arguments=plugin.texts("args"),
        environment=_environment(plugin),
        api_version=version,
        interactive_mode=mode or "IfAvailable",
        cluster=_cluster_info(cluster) if passed else None,
        ca=cluster.material("certificate-authority") if passed else None,
        install_hint=plugin.text("installHint"),
    )


def _environment(plugin: KubeconfigEntry) -> dict[str, str]:
    variables = {}
    for each in plugin.parts("env"):
        name = each.text("name")
        if not name:
            raise OptionsError(f"{each.where} has an entry without a name")

        variables[name] = each.text("value")

    return variables


def _cluster_info(cluster: KubeconfigEntry) -> dict[str, Any]:
    about: dict[str, Any] = {key: cluster.text(key) for key in _PASSED_FIELDS}
    about |= {key: cluster.flag(key) for key in _PASSED_FLAGS}
    for each in cluster.parts("extensions"):
        if each.text("name") == _EXTENSION:
            about["config"] = each.data.get("extension")

    return {key: value for key, value in about.items() if value}


def _no_provider(user: KubeconfigEntry, provider: KubeconfigEntry) -> OptionsError:
    name = provider.text("name")
    instead = _REPLACEMENTS.get(name, "use a user with a token or an exec plugin")
    return OptionsError(
        f"{user.where} needs the auth-provider {name!r}, which is not supported: "
        f"{instead}"
    )
