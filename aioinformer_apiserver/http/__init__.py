"""Requests come in here, and answers go out: over HTTP, or without a network.

The law of this package: it waits, counts and closes; what is asked and what is answered
is decided below.
"""
