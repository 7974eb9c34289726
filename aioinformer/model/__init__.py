"""What Kubernetes objects are: resources, objects, keys, selectors.

The law of this layer: pure and synchronous. Nothing here waits, logs, looks at a clock,
or knows that there is a network.
"""

from aioinformer.model.keys import meta_namespace_key, split_key
from aioinformer.model.objects import KubeObject
from aioinformer.model.resource import Resource
from aioinformer.model.selectors import FieldSelector, LabelSelector

__all__ = [
    "FieldSelector",
    "KubeObject",
    "LabelSelector",
    "Resource",
    "meta_namespace_key",
    "split_key",
]
