"""Queues and stores of client-go that are not on the path of an event.

For programs that build on them. An informer takes an `OrderedFIFO` in place of its
queue; the others are for programs alone.
"""
