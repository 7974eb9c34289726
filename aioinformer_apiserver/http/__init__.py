"""Requests and responses, over HTTP or in memory.

Rule of this package: it waits, counts bytes and closes connections. The packages below
decide about the content.
"""
