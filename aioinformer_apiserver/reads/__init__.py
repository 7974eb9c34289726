"""Lists and watches: which states and changes somebody gets to see, and when.

The law of this package: it only reads the storage, and waits for it.
"""
