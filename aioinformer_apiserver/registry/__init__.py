"""What becomes of a write: understood, completed, judged, stored.

The law of this package: one step each; whatever is refused has changed nothing.
"""
