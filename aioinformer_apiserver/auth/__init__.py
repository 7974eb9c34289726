"""Who asks, and what they may do.

The law of this package: synchronous, and before anything is looked up.
"""
