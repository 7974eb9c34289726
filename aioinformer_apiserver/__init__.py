"""Kubernetes API server for tests, in one process and without etcd.

Rule of this package: it imitates a kube-apiserver in all that clients can observe,
and misbehaves only where a test requests it. It imports public names of `aioinformer`
only. `README.md` describes its parts. Users of aioinformer import it by
`aioinformer.testing`.
"""

from aioinformer_apiserver.auth.rbac import User
from aioinformer_apiserver.http.memory import MemoryResponse
from aioinformer_apiserver.requests.routes import RequestRecord
from aioinformer_apiserver.server import LocalAPIServer
from aioinformer_apiserver.storage.storage import SavedState

__all__ = ["LocalAPIServer", "MemoryResponse", "RequestRecord", "SavedState", "User"]
