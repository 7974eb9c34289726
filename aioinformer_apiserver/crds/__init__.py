"""CustomResourceDefinitions: validation, status, and the resources that they serve.

The law of this package: pure functions over bodies, except for `CustomResources`; no
argument is changed.
"""
