"""Controllers, leader election, shards and event recording.

This layer uses only the public parts of informers, work queues and the client, so that
users can replace any part of it.
"""

from aioinformer.controller.client import Elector, ReconcileClient
from aioinformer.controller.context import (
    Context,
    PlainReconcile,
    Reconcile,
    with_object,
)
from aioinformer.controller.controller import Controller
from aioinformer.controller.daemons import Daemon
from aioinformer.controller.event_recorder import EventRecorder
from aioinformer.controller.finalizers import finalizer
from aioinformer.controller.leader_election import LeaderElector, LeaderLock
from aioinformer.controller.lease_candidate import LeaseCandidate
from aioinformer.controller.lease_lock import LeaseLock
from aioinformer.controller.lease_record import LeaseRecord, LeaseStatus
from aioinformer.controller.manager import Manager
from aioinformer.controller.owner_references import (
    set_controller_reference,
    set_owner_reference,
)
from aioinformer.controller.predicates import (
    Predicate,
    annotations_changed,
    generation_changed,
    labels_changed,
    matches_labels,
    resource_version_changed,
)
from aioinformer.controller.reconcile import Cause, ReconcileRequest, Result
from aioinformer.controller.shards.sharded_informer import ShardedInformer
from aioinformer.controller.shards.shards import Shards, ShardUser
from aioinformer.controller.shards.status import RangeStatus, ShardsStatus
from aioinformer.controller.source import enqueue_owner, enqueue_self
from aioinformer.controller.status import (
    ControllerStatus,
    DelayedRequest,
    EndedReconcile,
    FailingRequest,
    QueuedRequest,
    RunningReconcile,
    WaitingRequests,
)
from aioinformer.controller.timers import Every
from aioinformer.model.conditions import (
    find_status_condition,
    is_status_condition_true,
    set_status_condition,
)

__all__ = [
    "Cause",
    "Context",
    "Controller",
    "ControllerStatus",
    "Daemon",
    "DelayedRequest",
    "Elector",
    "EndedReconcile",
    "EventRecorder",
    "Every",
    "FailingRequest",
    "LeaderElector",
    "LeaderLock",
    "LeaseCandidate",
    "LeaseLock",
    "LeaseRecord",
    "LeaseStatus",
    "Manager",
    "PlainReconcile",
    "Predicate",
    "QueuedRequest",
    "RangeStatus",
    "Reconcile",
    "ReconcileClient",
    "ReconcileRequest",
    "Result",
    "RunningReconcile",
    "ShardUser",
    "ShardedInformer",
    "Shards",
    "ShardsStatus",
    "WaitingRequests",
    "annotations_changed",
    "enqueue_owner",
    "enqueue_self",
    "finalizer",
    "find_status_condition",
    "generation_changed",
    "is_status_condition_true",
    "labels_changed",
    "matches_labels",
    "resource_version_changed",
    "set_controller_reference",
    "set_owner_reference",
    "set_status_condition",
    "with_object",
]
