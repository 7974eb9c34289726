"""Parsing and validation of requests, with the errors of a real server.

Rule of this package: it is pure. The requested objects need not exist.
"""
