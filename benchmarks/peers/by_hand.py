"""A copy kept by hand, for libraries that only list and watch."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Generic, TypeVar

from peer_program import PeerProgram

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from peer_program import Fields

__all__ = ["GONE", "CopyByHand", "Nodes"]

T = TypeVar("T")

GONE = 410
"""Status of a watch whose version is too old, which requires a list."""


class Nodes(Generic[T]):
    """Pods by node."""

    def __init__(self) -> None:
        self.pods: dict[str, dict[str, T]] = {}
        self._node_of: dict[str, str] = {}

    def put(self, key: str, node: str, pod: T) -> None:
        """Enter a pod, or its new state."""
        before = self._node_of.get(key)
        if before is not None and before != node:
            del self.pods[before][key]

        self._node_of[key] = node
        self.pods.setdefault(node, {})[key] = pod

    def drop(self, key: str) -> None:
        """Remove a pod, if it is there."""
        node = self._node_of.pop(key, None)
        if node is not None:
            del self.pods[node][key]


class CopyByHand(PeerProgram, Generic[T]):
    """Dictionary of pods, and another one by node if bodies are read.

    Args:
        options: Arguments of `PeerProgram`.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__(options)
        self.pods: dict[str, T] = {}
        self.nodes = Nodes[T]()

    @abstractmethod
    def metadata(self, pod: T) -> tuple[str, str, str, str]:
        """Return namespace, name, uid and version."""

    @abstractmethod
    def body(self, pod: T) -> tuple[str, str]:
        """Return node and phase."""

    def put(self, pod: T) -> str:
        """Take in a state of a pod, whether it was listed or watched.

        Returns:
            The key of the pod.
        """
        namespace, name, _, version = self.metadata(pod)
        key = f"{namespace}/{name}"
        before = self.pods.get(key)
        self.pods[key] = pod
        if self.options.body:
            node, phase = self.body(pod)
            self.nodes.put(key, node, pod)
            self.running += phase == "Running"

        if before is None or self.metadata(before)[3] != version:
            self.seen(version)

        return key

    def keep(self, keys: set[str]) -> None:
        """Remove all pods that are not in a list."""
        for key in self.pods.keys() - keys:
            self._drop(key)

        self.listed(len(self.pods))

    def change(self, kind: str, pod: T) -> None:
        """Apply an event of a watch."""
        if kind in {"ADDED", "MODIFIED"}:
            self.put(pod)
        elif kind == "DELETED":
            namespace, name, _, version = self.metadata(pod)
            self._drop(f"{namespace}/{name}")
            self.seen(version)

    def _drop(self, key: str) -> None:
        self.pods.pop(key, None)
        self.nodes.drop(key)

    def contents(self) -> Iterator[Fields]:
        """Return the contents of the copy."""
        for pod in self.pods.values():
            yield *self.metadata(pod), *self.body(pod)
