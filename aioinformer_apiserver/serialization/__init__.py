"""Objects as responses: whole objects, metadata or tables, in JSON or YAML.

The law of this package: it is pure, and encodes long lists in pieces.
"""
