"""Lists and watches.

The law of this package: it only reads the storage, and waits for it.
"""
