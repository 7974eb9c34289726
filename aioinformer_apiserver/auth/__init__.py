"""Authentication and authorization.

Rule of this package: it is synchronous, and runs before any object is looked up.
"""
