"""Discovery, OpenAPI, version and health checks.

The law of this package: pure functions of the served kinds and the request.
"""
