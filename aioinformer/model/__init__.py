"""Model of Kubernetes objects: resources, objects, keys, selectors.

Rule of this layer: pure and synchronous. Nothing here waits, logs, reads a clock, or
uses the network.
"""

from aioinformer.model.conditions import condition, is_ready, rolled_out
from aioinformer.model.keys import meta_namespace_key, split_key
from aioinformer.model.objects import KubeObject
from aioinformer.model.resource import Resource
from aioinformer.model.selectors import FieldSelector, LabelSelector
from aioinformer.model.shards import HashRange, ShardSelector, ranges_of
from aioinformer.model.times import kube_time
from aioinformer.model.transforms import drop, strip_managed_fields, transform_dict

__all__ = [
    "FieldSelector",
    "HashRange",
    "KubeObject",
    "LabelSelector",
    "Resource",
    "ShardSelector",
    "condition",
    "drop",
    "is_ready",
    "kube_time",
    "meta_namespace_key",
    "ranges_of",
    "rolled_out",
    "split_key",
    "strip_managed_fields",
    "transform_dict",
]
