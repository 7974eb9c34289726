"""What is said when something is refused: the codes, reasons and words of a real server.

The law of this package: pure, and below everything else.
"""
