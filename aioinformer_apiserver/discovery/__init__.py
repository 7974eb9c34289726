"""What a server says about itself: what it serves, how that looks, and that it lives.

The law of this package: pure functions of the kinds that are served, and of the request.
"""
