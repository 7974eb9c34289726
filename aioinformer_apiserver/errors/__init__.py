"""Errors with the codes, reasons and messages of a real server.

The law of this package: it is pure, and below everything else.
"""
