"""Watches made of other watches, for programs and tests.

No informer needs them.
"""
