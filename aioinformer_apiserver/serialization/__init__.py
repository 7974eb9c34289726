"""How what is stored is shown to who asked: whole, in part, or as a table; JSON or YAML.

The law of this package: pure, and list after list it never holds more than a piece.
"""
