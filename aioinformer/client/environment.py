"""Where a client looks when it is not told: kubeconfig files, then the pod it is in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioinformer.client.in_cluster import (
    SERVICE_ACCOUNT,
    explain_absence,
    load_in_cluster,
)
from aioinformer.client.kubeconfig import Kubeconfig, default_paths
from aioinformer.errors import OptionsError

if TYPE_CHECKING:
    from pathlib import Path

    from aioinformer.client.config import ClientConfig

__all__ = ["load_from_environment"]


def load_from_environment(
    context: str | None = None, folder: Path = SERVICE_ACCOUNT
) -> ClientConfig:
    """Read the first that there is. Blocks: call it in a thread.

    The files named by `KUBECONFIG`; where it is not set, `~/.kube/config`; where those
    do not exist or are empty, the service account of this pod. (As kubectl does: if
    `KUBECONFIG` is set, `~/.kube/config` is not looked at.)

    Args:
        context: A context of the kubeconfig files; None for the current one. With one,
            the service account is not used.
        folder: Where a pod's service account is mounted.

    Raises:
        OptionsError: If there is nothing, or a context is named and there is no
            kubeconfig; the text lists what was looked for.
    """
    paths, origin = default_paths()
    found = Kubeconfig.read(paths)
    if not found.empty:
        return found.config(context)

    looked = [f"{path} ({_state(path)})" for path in paths] or ["no file"]
    if context is not None:
        raise OptionsError(
            f"no context {context!r}: there is no kubeconfig. Looked for: "
            f"{', '.join(looked)}, from {origin}. Set KUBECONFIG to a file that has it, "
            "or name no context to use the service account of a pod."
        )

    absent = explain_absence(folder)
    if not absent:
        return load_in_cluster(folder)

    raise OptionsError(
        "no Kubernetes configuration found. Looked for: "
        f"{', '.join(looked)}, from {origin}; in-cluster ({absent}). "
        "Set KUBECONFIG to a kubeconfig file, run in a pod with a service account, "
        "or use Client.from_url()."
    )


def _state(path: Path) -> str:
    return "is empty" if path.exists() else "does not exist"
