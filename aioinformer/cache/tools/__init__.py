"""Queues and stores of client-go that are not on the path of an event.

For programs that build on them. An informer accepts an `OrderedFIFO` as its queue.
Informers do not use the others.
"""
