"""Contestant: kr8s, with its async functions.

It has a list and a watch. Its lists do not return their version, so the watch starts at
that of the newest pod. It does not report an expired version but retries it forever, so
that a user cannot know when to relist.
"""

from __future__ import annotations

import sys
from typing import Any

import kr8s
from by_hand import CopyByHand
from kr8s.asyncio.objects import Pod
from peer_program import CA_FILE, TOKEN, Unsupported, parser_of, run_program


class Kr8s(CopyByHand[Pod]):
    """Lists and watches by `kr8s.asyncio.get` and `kr8s.asyncio.watch`."""

    async def copy(self) -> None:
        """Copy all pods until cancelled."""
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
            Unsupported: Always.
        """
        raise Unsupported("kr8s silently retries an expired watch at the same version")

    def metadata(self, pod: Pod) -> tuple[str, str, str, str]:
        """Return namespace, name, uid and version."""
        it = pod.metadata
        return it.namespace, it.name, it.uid, it.resourceVersion

    def body(self, pod: Pod) -> tuple[str, str]:
        """Return node and phase."""
        return pod.spec.nodeName, pod.status.phase

    def _kubeconfig(self) -> dict[str, Any]:
        cluster = {"server": self.options.url}
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
    sys.exit(run_program(Kr8s, parser_of(__doc__)))
