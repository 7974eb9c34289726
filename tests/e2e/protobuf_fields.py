"""Write the protobuf fields of the built-in kinds of Kubernetes.

    python tests/e2e/protobuf_fields.py > aioinformer_apiserver/protobuf/fields.json

Run it by hand when the imitated version of Kubernetes changes. It needs Go to compile the
Kubernetes types and read their tags (`protobuf/main.go`, beside this file).
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from aioinformer.model import resources
from aioinformer.model.resource import Resource

__all__: list[str] = []

# Bodies that clients send besides stored objects.
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

# Its clients only use JSON, and its schemas have a different form.
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
