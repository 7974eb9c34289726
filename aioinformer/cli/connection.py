"""Options that select a cluster and credentials."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from aioinformer.cli.error_messages import CommandError
from aioinformer.client import Client, ClientConfig, Credentials

__all__ = ["ConnectionOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """Cluster and credentials of a command."""

    server: str | None = None
    """URL of the API server, instead of a kubeconfig."""

    token: str | None = field(default=None, repr=False)
    """Bearer token, instead of the credentials of the kubeconfig's user."""

    kubeconfig: str | None = None
    """Path of the kubeconfig. None for the sources of `Client.from_env()`."""

    context: str | None = None
    """Context of the kubeconfig. None for the current one."""

    def client(self) -> Client:
        """Return a client. It reads the configuration when it is entered.

        Raises:
            CommandError: If options contradict each other.
            OptionsError: If the URL or the token is invalid.
        """
        if self.server is not None:
            return self._by_url(self.server)

        if self.token is not None:
            Credentials(token=self.token)  # fails before anything is read

        return Client(self.read)

    def read(self) -> ClientConfig:
        """Read the configuration. Blocks: call it in a thread.

        Raises:
            CommandError: If options contradict each other.
            OptionsError: If there is no configuration, or it is invalid.
        """
        if self.server is not None:
            return self._by_url(self.server).config

        found = self._read()
        if self.token is None:
            return found

        return replace(found, credentials=Credentials(token=self.token))

    def source(self) -> str:
        """Describe the source of the configuration. Blocks: call it in a thread.

        Raises:
            OptionsError: If a file cannot be read.
        """
        if self.server is not None:
            return "--server"

        from aioinformer.client.kubeconfig import Kubeconfig, default_paths, expand_home

        if self.kubeconfig is not None:
            paths, origin = [expand_home(self.kubeconfig)], "--kubeconfig"
        else:
            paths, origin = default_paths()

        found = Kubeconfig.read(paths)
        if found.empty:
            return "the service account of this pod"

        files = ", ".join(map(str, found.files))
        name = self.context or found.current_context
        return f"context {name!r} of {files} (from {origin})"

    def namespace(self, config: ClientConfig) -> str | None:
        """Return the default namespace, or None for all namespaces.

        As in kubectl, it is that of the context, or `default`. A URL has none.

        Args:
            config: Configuration of the entered client.
        """
        return None if self.server is not None else config.namespace

    def _by_url(self, url: str) -> Client:
        if self.kubeconfig is not None or self.context is not None:
            raise CommandError(
                "--server cannot be combined with --kubeconfig or --context: omit one of "
                "them."
            )

        return Client.from_url(url, token=self.token)

    def _read(self) -> ClientConfig:
        """Read the kubeconfig, or the service account of this pod."""
        if self.kubeconfig is None:
            from aioinformer.client.environment import load_from_environment

            return load_from_environment(self.context)

        from aioinformer.client.kubeconfig import load_kubeconfig

        return load_kubeconfig(self.kubeconfig, self.context)
