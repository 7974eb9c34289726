"""The configuration that every pod is given: its service account."""

from __future__ import annotations

import os
from pathlib import Path

from aioinformer.client.config import ClientConfig
from aioinformer.client.credentials import Credentials
from aioinformer.client.proxies import proxy_of_environment
from aioinformer.client.tls import TLSOptions
from aioinformer.errors import OptionsError

__all__ = ["SERVICE_ACCOUNT", "explain_absence", "load_in_cluster"]

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def explain_absence(folder: Path = SERVICE_ACCOUNT) -> str:
    """Say why this process is not in a pod that may speak to its cluster; or nothing."""
    for variable in ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        if not os.environ.get(variable):
            return f"{variable} is not set"

    if not (folder / "token").exists():
        return f"{folder / 'token'} does not exist"

    return ""


def load_in_cluster(folder: Path = SERVICE_ACCOUNT) -> ClientConfig:
    """Read the service account of this pod. Blocks: call it in a thread.

    Args:
        folder: Where the token, the authority and the namespace are mounted.

    Raises:
        OptionsError: If this is no pod, or its service account is not mounted.
    """
    absent = explain_absence(folder)
    if absent:
        raise OptionsError(
            f"not in a cluster: {absent}. Outside of pods use a kubeconfig file; in a "
            "pod check that automountServiceAccountToken is not false."
        )

    host = os.environ["KUBERNETES_SERVICE_HOST"]
    host = f"[{host}]" if ":" in host else host
    namespace = folder / "namespace"

    server = f"https://{host}:{os.environ['KUBERNETES_SERVICE_PORT']}"

    return ClientConfig(
        server=server,
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
        credentials=Credentials(token_file=folder / "token"),
        tls=TLSOptions(ca=folder / "ca.crt"),
        proxy=proxy_of_environment(server),
    )
