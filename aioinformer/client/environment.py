"""Configuration from the environment: kubeconfig files, else the pod's service account."""

from __future__ import annotations

import os
from pathlib import Path

from aioinformer.client.auth.credentials import Credentials
from aioinformer.client.auth.tls import TLSOptions
from aioinformer.client.config import ClientConfig, proxy_of_environment
from aioinformer.client.kubeconfig import Kubeconfig, default_paths, describe_absent
from aioinformer.errors import OptionsError

__all__ = [
    "SERVICE_ACCOUNT",
    "explain_absence",
    "load_from_environment",
    "load_in_cluster",
]


SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def load_from_environment(
    context: str | None = None, folder: Path = SERVICE_ACCOUNT
) -> ClientConfig:
    """Read the first configuration that exists. Blocks: call it in a thread.

    These are the files named by `KUBECONFIG`, or `~/.kube/config` if it is not set;
    then, if none of them exists or all are empty, the service account of this pod. As
    in kubectl, `~/.kube/config` is ignored if `KUBECONFIG` is set.

    Args:
        context: Context of the kubeconfig files; None for the current one. With a
            context, the service account is not used.
        folder: Folder of the pod's service account.

    Raises:
        OptionsError: If there is no configuration, or no kubeconfig for a given
            context; the text lists the places searched.
    """
    paths, _ = default_paths()
    found = Kubeconfig.read(paths)
    if not found.empty:
        return found.config(context)

    why = describe_absent(paths)
    if context is not None:
        raise OptionsError(
            f"no context {context!r}: there is no kubeconfig. {why}. Set KUBECONFIG to a "
            "file that has it, or omit the context to use the service account of a pod."
        )

    absent = explain_absence(folder)
    if not absent:
        return load_in_cluster(folder)

    raise OptionsError(
        f"no Kubernetes configuration found. {why}. There is no service account of a pod "
        f"either: {absent}. Set KUBECONFIG to a kubeconfig file, run in a pod, or use "
        "Client.from_url()."
    )


def explain_absence(folder: Path = SERVICE_ACCOUNT) -> str:
    """Return why in-cluster configuration is unavailable; empty if it is available."""
    for variable in ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        if not os.environ.get(variable):
            return f"{variable} is not set"

    if not (folder / "token").exists():
        return f"{folder / 'token'} does not exist"

    return ""


def load_in_cluster(folder: Path = SERVICE_ACCOUNT) -> ClientConfig:
    """Read the service account of this pod. Blocks: call it in a thread.

    Args:
        folder: Folder with the token, the CA certificate and the namespace.

    Raises:
        OptionsError: If this is not a pod, or its service account is not mounted.
    """
    absent = explain_absence(folder)
    if absent:
        raise OptionsError(
            f"not in a cluster: {absent}. Outside of pods, use a kubeconfig file. "
            "In a pod, check that automountServiceAccountToken is not false."
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
