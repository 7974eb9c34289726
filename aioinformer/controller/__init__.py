"""Controllers: from a change to a reconcile. Empty so far.

The law of this layer: it stands on informers, work queues and the client, and does
nothing that a user could not do with them by hand.
"""
