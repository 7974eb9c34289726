"""Changing an object by saying what to change, in the ways an API server offers.

The law of this package: pure functions, bodies in and a new body out; nothing given is
changed. What they need to know about a kind, they take from its `Schema`.
"""
