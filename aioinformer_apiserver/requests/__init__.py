"""What is asked: read from a request and checked, in the words of a real server.

The law of this package: pure; nothing of what is asked need exist.
"""
