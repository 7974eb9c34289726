"""Factories with other defaults: for resources known only at run time, and metadata."""

from __future__ import annotations

from aioinformer.informer.factory import SharedInformerFactory

__all__ = ["DynamicInformerFactory", "MetadataInformerFactory"]


class DynamicInformerFactory(SharedInformerFactory):
    """A factory for resources that are known only when the program runs.

    `factory.informer("example.com/v1", "widgets")` is taken as it is, without asking the
    server which resources it has: of what kind the objects are, and whether they are in
    namespaces, they say themselves. Only where a namespace is given, for one or for all,
    has the factory to be told of those that have none:
    `Resource.of("example.com/v1", "zones", namespaced=False)`. By its kind the server is
    asked for a resource here, too. One that it does not serve is no error:
    `status.not_served` says so, and the informer goes on asking.

    In everything else it is a `SharedInformerFactory`.
    """

    _any_resource = True


class MetadataInformerFactory(DynamicInformerFactory):
    """The same, asking for nothing of all objects but their metadata.

    See `metadata_only` of `SharedInformerFactory.informer`.
    """

    _metadata_only = True
