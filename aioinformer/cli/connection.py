"""Which cluster is meant, and as whom: from options to a client."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from aioinformer.cli.error_messages import CommandError
from aioinformer.client import Client, ClientConfig, Credentials

__all__ = ["ConnectionOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """A cluster, as it is named at the command line."""

    server: str | None = None
    """Its URL; then no kubeconfig is read."""

    token: str | None = field(default=None, repr=False)
    """A bearer token, instead of whatever the kubeconfig's user has."""

    kubeconfig: str | None = None
    """A file; None for what `Client.from_env()` finds."""

    context: str | None = None
    """One of the kubeconfig's; None for the current one."""

    def client(self) -> Client:
        """Make a client of it; nothing is read before that is entered.

        Raises:
            CommandError: The options contradict each other.
            OptionsError: The URL or the token cannot be one.
        """
        if self.server is not None:
            return self._by_url(self.server)

        if self.token is not None:
            Credentials(token=self.token)  # complains before anything is read

        return Client(self.read)

    def read(self) -> ClientConfig:
        """Read the configuration. Blocks: call it in a thread.

        Raises:
            CommandError: The options contradict each other.
            OptionsError: There is none, or it cannot work.
        """
        if self.server is not None:
            return self._by_url(self.server).config

        found = self._read()
        if self.token is None:
            return found

        return replace(found, credentials=Credentials(token=self.token))

    def source(self) -> str:
        """Say where the configuration is from, in words. Blocks: call it in a thread.

        Raises:
            OptionsError: A file cannot be read.
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
        """Return the namespace that is meant where none is named; None for all.

        As kubectl does: that of the context, or `default`. A URL alone has none.

        Args:
            config: That of the client, once it is entered.
        """
        return None if self.server is not None else config.namespace

    def _by_url(self, url: str) -> Client:
        if self.kubeconfig is not None or self.context is not None:
            raise CommandError(
                "--server is used without a kubeconfig: leave out --kubeconfig and "
                "--context, or --server."
            )

        return Client.from_url(url, token=self.token)

    def _read(self) -> ClientConfig:
        """Read the kubeconfig, or that of this pod."""
        if self.kubeconfig is None:
            from aioinformer.client.environment import load_from_environment

            return load_from_environment(self.context)

        from aioinformer.client.kubeconfig import load_kubeconfig

        return load_kubeconfig(self.kubeconfig, self.context)
