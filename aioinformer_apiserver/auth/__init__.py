"""Authentication and authorization.

The law of this package: it is synchronous, and runs before any object is looked up.
"""
