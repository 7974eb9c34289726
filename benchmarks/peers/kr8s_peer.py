"""A contestant: kr8s, its asynchronous functions.

It has a list and a watch. Its lists do not tell their version, so the watch begins at that
of the newest pod. Of an expired version it does not tell: it tries the same one again, for
ever; so nobody can know when to list again.
"""

from __future__ import annotations

import sys
from typing import Any

import kr8s
from by_hand import CopyByHand
from kr8s.asyncio.objects import Pod
from speaking import CA_FILE, TOKEN, Unable, parser_of, speak


class Kr8s(CopyByHand[Pod]):
    """Lists and watches by `kr8s.asyncio.get` and `kr8s.asyncio.watch`."""

    async def copy(self) -> None:
        """Copy all pods, and go on until cancelled."""
        kubeconfig = self._kubeconfig()
        self.begin()
        api = await kr8s.asyncio.api(kubeconfig=kubeconfig)
        pods = kr8s.asyncio.get("pods", namespace=kr8s.ALL, api=api)
        self.keep({self.put(pod) async for pod in pods})
        newest = max(
            (int(self.metadata(pod)[3]) for pod in self.pods.values()), default=0
        )
        events = kr8s.asyncio.watch(
            "pods", namespace=kr8s.ALL, since=str(newest), api=api
        )
        async for kind, pod in events:
            self.change(kind, pod)

    def prepare_relist(self) -> None:
        """Refuse.

        Raises:
            Unable: Always.
        """
        raise Unable(
            "kr8s begins an expired watch again at the same version, and tells nobody"
        )

    def metadata(self, pod: Pod) -> tuple[str, str, str, str]:
        """Namespace, name, uid and version."""
        it = pod.metadata
        return it.namespace, it.name, it.uid, it.resourceVersion

    def body(self, pod: Pod) -> tuple[str, str]:
        """Node and phase."""
        return pod.spec.nodeName, pod.status.phase

    def _kubeconfig(self) -> dict[str, Any]:
        cluster = {"server": self.asked.url}
        if CA_FILE:
            cluster["certificate-authority"] = CA_FILE

        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "it", "cluster": cluster}],
            "users": [{"name": "it", "user": {"token": TOKEN} if TOKEN else {}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
            "current-context": "it",
        }


if __name__ == "__main__":
    sys.exit(speak(Kr8s, parser_of(__doc__)))
