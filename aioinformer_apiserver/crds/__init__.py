"""CustomResourceDefinitions: validation, status, and served resources.

The law of this package: pure functions over bodies, except for `CustomResources`; no
argument is changed.
"""
