"""Parsing and validation of requests, with the errors of a real server.

The law of this package: it is pure. The requested objects need not exist.
"""
