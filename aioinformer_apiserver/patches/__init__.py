"""Patches: JSON patch, merge patch, strategic merge patch, server-side apply.

Rule of this package: pure functions from bodies to a new body; no argument is
changed. Of a kind, they only use its `Schema`.
"""
