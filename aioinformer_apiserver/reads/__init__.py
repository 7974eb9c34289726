"""Lists and watches.

Rule of this package: it only reads the storage, and waits for it.
"""
