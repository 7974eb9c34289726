"""The user of a kubeconfig context: credentials, plugins, and whom it acts for."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from aioinformer.client.credentials import Credentials
from aioinformer.client.exec_plugin import API_VERSIONS, ExecPlugin
from aioinformer.client.impersonation import impersonation_headers
from aioinformer.errors import OptionsError

if TYPE_CHECKING:
    from aioinformer.client.kubeconfig_entry import Entry

__all__ = ["user_credentials", "user_headers"]

# Where a cluster may say what its plugins need to know.
_EXTENSION = "client.authentication.k8s.io/exec"

# What of a cluster a plugin is told, by the same names.
_TOLD = ("server", "tls-server-name", "proxy-url")
_TOLD_FLAGS = ("insecure-skip-tls-verify", "disable-compression")

# What took the place of the providers that were built into kubectl.
_INSTEAD = {
    "gcp": "install gke-gcloud-auth-plugin and run "
    "`gcloud container clusters get-credentials` again",
    "azure": "install kubelogin and run `kubelogin convert-kubeconfig`",
    "oidc": "use kubelogin (`kubectl oidc-login`) as an exec plugin, or put its "
    "id-token into `token`",
}


def user_credentials(user: Entry, cluster: Entry) -> Credentials:
    """Make the credentials of a user. A token goes before an exec plugin.

    Args:
        user: An entry of `users`.
        cluster: The one of `clusters` that they are for.

    Raises:
        OptionsError: If a field cannot be used, or too many of them are there; the
            text names it and the file.
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

            return Credentials(
                token=token,
                token_file=token_file,
                username=username,
                password=user.text("password"),
            )
    except OptionsError as exc:
        if user.where in str(exc):
            raise

        raise OptionsError(f"{user.where}: {exc}") from exc

    return Credentials(source=_plugin(user, plugin, cluster).proof)


def user_headers(user: Entry) -> tuple[tuple[str, str], ...]:
    """The headers by which a user acts for another one, if the entry says so.

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


def _plugin(user: Entry, plugin: Entry, cluster: Entry) -> ExecPlugin:
    command, version = plugin.text("command"), plugin.text("apiVersion")
    if not command:
        raise OptionsError(f"{plugin.where} has no command")

    if not version:
        raise OptionsError(
            f"{plugin.where} has no apiVersion: add {' or '.join(API_VERSIONS)}"
        )

    if os.path.dirname(command):
        # A path: from where the file is, not from where this process runs.
        command = str(plugin.path("command"))

    mode = plugin.text("interactiveMode")
    if not mode and version == API_VERSIONS[0]:
        raise OptionsError(
            f"{plugin.where} has no interactiveMode, which {version} needs: add Never, "
            "IfAvailable or Always"
        )

    told = plugin.flag("provideClusterInfo")
    return ExecPlugin(
        command=command,
        where=user.where,
        arguments=plugin.texts("args"),
        environment=_environment(plugin),
        api_version=version,
        interactive_mode=mode or "IfAvailable",
        cluster=_about(cluster) if told else None,
        ca=cluster.material("certificate-authority") if told else None,
        install_hint=plugin.text("installHint"),
    )


def _environment(plugin: Entry) -> dict[str, str]:
    variables = {}
    for each in plugin.parts("env"):
        name = each.text("name")
        if not name:
            raise OptionsError(f"{each.where} has an entry without a name")

        variables[name] = each.text("value")

    return variables


def _about(cluster: Entry) -> dict[str, Any]:
    about: dict[str, Any] = {key: cluster.text(key) for key in _TOLD}
    about |= {key: cluster.flag(key) for key in _TOLD_FLAGS}
    for each in cluster.parts("extensions"):
        if each.text("name") == _EXTENSION:
            about["config"] = each.data.get("extension")

    return {key: value for key, value in about.items() if value}


def _no_provider(user: Entry, provider: Entry) -> OptionsError:
    name = provider.text("name")
    instead = _INSTEAD.get(name, "use a user with a token or an exec plugin")
    return OptionsError(
        f"{user.where} needs the auth-provider {name!r}, which is not supported: "
        f"{instead}"
    )
