"""Watches made of other watches, for programs and tests.

Informers do not need them.
"""
