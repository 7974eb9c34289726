"""Objects with their versions and history, and the properties of each kind.

Rule of this package: every change is one synchronous step, and bodies are not
validated.
"""
