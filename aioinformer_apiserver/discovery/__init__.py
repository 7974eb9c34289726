"""Discovery, OpenAPI, version and health checks.

Rule of this package: pure functions of the served kinds and the request.
"""
