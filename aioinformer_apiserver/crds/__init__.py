"""CustomResourceDefinitions: validation, status, and served resources.

Rule of this package: pure functions over bodies, except for `CustomResources`; no
argument is changed.
"""
