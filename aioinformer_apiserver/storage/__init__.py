"""The objects, their versions and their history, and what is known about each kind.

The law of this package: every change is one synchronous step, and nobody below has an
opinion on what a body should say.
"""
