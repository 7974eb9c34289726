"""Errors with the codes, reasons and messages of a real server.

Rule of this package: it is pure, and below everything else.
"""
