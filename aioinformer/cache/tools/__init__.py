"""Queues and stores of client-go beside the path of an event.

For programs that build on them directly. No informer needs them: an `OrderedFIFO` can be
given to one.
"""
