"""Contestant: kubernetes_asyncio, with its generated models.

It has a list and a `Watch`, which resumes after a clean end. It retries an expired version
once, and then raises; its user relists.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from by_hand import GONE, CopyByHand
from kubernetes_asyncio import client, watch
from kubernetes_asyncio.client import ApiException
from peer_program import CA_FILE, TOKEN, parser_of, run_program

if TYPE_CHECKING:
    from kubernetes_asyncio.client import V1Pod


class KubernetesAsyncio(CopyByHand["V1Pod"]):
    """Lists and watches by `CoreV1Api`."""

    async def copy(self) -> None:
        """Copy all pods until cancelled."""
        config = client.Configuration(host=self.options.url)
        config.ssl_ca_cert = CA_FILE
        if TOKEN:
            config.api_key = {"BearerToken": TOKEN}
            config.api_key_prefix = {"BearerToken": "Bearer"}

        async with client.ApiClient(config) as api:
            list_pods = client.CoreV1Api(api).list_pod_for_all_namespaces
            self.begin()
            while True:
                pods = await list_pods()
                version = pods.metadata.resource_version
                self.keep({self.put(pod) for pod in pods.items})
                del pods
                async with watch.Watch() as watching:
                    events = watching.stream(list_pods, resource_version=version)
                    try:
                        async for event in events:
                            self.change(event["type"], event["object"])
                    except ApiException as error:
                        if error.status != GONE:
                            raise

    def metadata(self, pod: V1Pod) -> tuple[str, str, str, str]:
        """Return namespace, name, uid and version."""
        it = pod.metadata
        return it.namespace, it.name, it.uid, it.resource_version

    def body(self, pod: V1Pod) -> tuple[str, str]:
        """Return node and phase."""
        return pod.spec.node_name, pod.status.phase


if __name__ == "__main__":
    sys.exit(run_program(KubernetesAsyncio, parser_of(__doc__)))
