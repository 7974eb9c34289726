"""Contestant: the official client's `SharedInformer`, which runs in a thread.

It lists and watches by itself, and keeps a cache. It has no indexes, and does not report
that it is synced: its handlers get the first list when the cache is complete.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from by_hand import Nodes
from kubernetes import client
from kubernetes.client import V1Pod, V1PodList
from kubernetes.informer import ADDED, DELETED, ERROR, MODIFIED, SharedInformer
from peer_program import CA_FILE, TOKEN, PeerProgram, parser_of, run_program

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from peer_program import Fields

# Models are loaded on first use.
MODELS = (V1Pod, V1PodList)


class Official(PeerProgram):
    """Copies by a `SharedInformer` of `CoreV1Api`.

    Args:
        options: Arguments of `PeerProgram`.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__(options)
        self._nodes = Nodes[V1Pod]()
        # Pods of the first list that handlers have not got yet; None before the first.
        self._to_list: int | None = None
        # Versions before a relist, which reports all pods as modified.
        self._before: set[str] = set()

        config = client.Configuration(host=options.url, ssl_ca_cert=CA_FILE)
        if TOKEN:
            config.api_key = {"authorization": TOKEN}
            config.api_key_prefix = {"authorization": "Bearer"}

        core = client.CoreV1Api(client.ApiClient(config))
        self._informer = SharedInformer(core.list_pod_for_all_namespaces)
        self._informer.add_event_handler(ADDED, self._added)
        self._informer.add_event_handler(MODIFIED, self._modified)
        self._informer.add_event_handler(DELETED, self._deleted)
        self._informer.add_event_handler(ERROR, self.fail)

    async def copy(self) -> None:
        """Copy all pods until cancelled."""
        self.begin()
        self._informer.start()
        await asyncio.Event().wait()

    def prepare_relist(self) -> None:
        """Remember the current pods."""
        super().prepare_relist()
        pods = self._informer.cache.list()
        self._before = {pod.metadata.resource_version for pod in pods}

    def contents(self) -> Iterator[Fields]:
        """Return the contents of the copy."""
        for pod in self._informer.cache.list():
            it = pod.metadata
            yield (
                it.namespace,
                it.name,
                it.uid,
                it.resource_version,
                pod.spec.node_name,
                pod.status.phase,
            )

    # ------------------------------------------------------------ in its thread

    def _added(self, pod: V1Pod) -> None:
        self._look(pod)
        if self._to_list is None:
            self._to_list = len(self._informer.cache.list_keys())

        if self._to_list:
            self._to_list -= 1
            if not self._to_list:
                self.listed(len(self._informer.cache.list_keys()))
        else:
            self.seen(pod.metadata.resource_version)

    def _modified(self, pod: V1Pod) -> None:
        self._look(pod)
        version = pod.metadata.resource_version
        if version not in self._before:
            self.seen(version)

    def _deleted(self, pod: V1Pod) -> None:
        it = pod.metadata
        self._nodes.drop(f"{it.namespace}/{it.name}")
        self.seen(it.resource_version)

    def _look(self, pod: V1Pod) -> None:
        if self.options.body:
            it = pod.metadata
            self._nodes.put(f"{it.namespace}/{it.name}", pod.spec.node_name, pod)
            self.running += pod.status.phase == "Running"


if __name__ == "__main__":
    status = run_program(Official, parser_of(__doc__))
    # The informer's thread still reads. `stop()` would wait forever if a watch has just
    # been requested, because the new watch discards the stop. The thread may abort an
    # interpreter that ends properly.
    os._exit(status)
