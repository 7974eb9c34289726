"""Write down how the built-in kinds look in the binary encoding of Kubernetes.

    python tests/e2e/protobuf_fields.py > aioinformer_apiserver/protobuf/fields.json

Run by hand, when the imitated version of Kubernetes changes. It needs Go, which compiles
the Kubernetes types and reads their tags (`protobuf/main.go`, beside this file).
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from aioinformer.model import resources
from aioinformer.model.resource import Resource

__all__: list[str] = []

# What clients send besides objects that are stored.
EXTRAS = [
    "authentication.k8s.io/v1/SelfSubjectReview",
    "authentication.k8s.io/v1/TokenRequest",
    "authentication.k8s.io/v1/TokenReview",
    "authorization.k8s.io/v1/LocalSubjectAccessReview",
    "authorization.k8s.io/v1/SelfSubjectAccessReview",
    "authorization.k8s.io/v1/SelfSubjectRulesReview",
    "authorization.k8s.io/v1/SubjectAccessReview",
    "autoscaling/v1/HorizontalPodAutoscaler",
    "autoscaling/v1/Scale",
    "events.k8s.io/v1/Event",
    "policy/v1/Eviction",
    "v1/Binding",
    "v1/DeleteOptions",
]

# Its clients speak JSON alone, and its schemas are written in a way of their own.
JSON_ONLY = "CustomResourceDefinition"


def main() -> None:
    """Print the table."""
    served = [it for it in vars(resources).values() if isinstance(it, Resource)]
    kinds = {f"{it.api_version}/{it.kind}" for it in served if it.kind != JSON_ONLY}
    folder = Path(__file__).parent / "protobuf"
    subprocess.run(
        ["go", "run", "-mod=readonly", ".", *sorted(kinds.union(EXTRAS))],
        cwd=folder,
        check=True,
    )


if __name__ == "__main__":
    main()
