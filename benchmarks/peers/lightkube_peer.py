"""Contestant: lightkube, with its async client.

It has a list and a watch. The watch resumes after a clean end, and raises refusals; after
an expired version its user relists.
"""

from __future__ import annotations

import sys

from by_hand import GONE, CopyByHand
from lightkube import ApiError, AsyncClient, KubeConfig
from lightkube.config.models import Cluster, User
from lightkube.resources.core_v1 import Pod
from peer_program import CA_FILE, TOKEN, parser_of, run_program

ALL_NAMESPACES = "*"


class Lightkube(CopyByHand[Pod]):
    """Lists and watches by `AsyncClient`."""

    async def copy(self) -> None:
        """Copy all pods until cancelled."""
        cluster = Cluster(server=self.options.url, certificate_auth=CA_FILE)
        config = KubeConfig.from_one(cluster=cluster, user=User(token=TOKEN))
        async with AsyncClient(config) as client:
            self.begin()
            while True:
                pods = client.list(Pod, namespace=ALL_NAMESPACES)
                self.keep({self.put(pod) async for pod in pods})
                events = client.watch(
                    Pod, namespace=ALL_NAMESPACES, resource_version=pods.resourceVersion
                )
                try:
                    async for kind, pod in events:
                        self.change(kind, pod)
                except ApiError as error:
                    if error.status.code != GONE:
                        raise

    def metadata(self, pod: Pod) -> tuple[str, str, str, str]:
        """Return namespace, name, uid and version."""
        it = pod.metadata
        return it.namespace, it.name, it.uid, it.resourceVersion

    def body(self, pod: Pod) -> tuple[str, str]:
        """Return node and phase."""
        return pod.spec.nodeName, pod.status.phase


if __name__ == "__main__":
    sys.exit(run_program(Lightkube, parser_of(__doc__)))
