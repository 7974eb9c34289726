"""Writes: request bodies are decoded, completed, validated and stored.

Rule of this package: each write is one synchronous step, and a rejected write changes
nothing.
"""
